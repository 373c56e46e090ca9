"""The Anthropic adapter: sends rendered bytes with the official SDK and reads the reply.

One request per `send`, of exactly the bytes given, bounded as `provider_http` says. Importing this
module loads the SDK, which takes more than a second.
"""

import logging
from collections.abc import Callable

import anthropic

from threadlog import limits
from threadlog.adapters.model_api import anthropic_wire
from threadlog.adapters.model_api.anthropic_failures import FOREIGN_ERRORS, failure_of_exception
from threadlog.adapters.model_api.anthropic_reply import ReplyReader
from threadlog.adapters.model_api.anthropic_wire import PROVIDER, RENDERER
from threadlog.adapters.model_api.asked_model import model_name
from threadlog.adapters.model_api.provider_http import LIST_MS, ProviderHttp, Sdk
from threadlog.adapters.model_api.providers import ANTHROPIC
from threadlog.clock import Clock
from threadlog.events.content import ModelRef
from threadlog.ports.model import Delta, ModelReply, ModelRequest, always

OFFICIAL_URL = "https://api.anthropic.com"
_LISTED_MAX = 1_000
"""The most that one page of the list of models may hold."""
_SDK = Sdk(ANTHROPIC, FOREIGN_ERRORS, failure_of_exception)
# Below this level the SDK logs every body that it is given to send, and so every prompt.
logging.getLogger("anthropic._base_client").setLevel(logging.INFO)


class AnthropicModel:
    """The model port over one address.

    Shapes:  `base_url` None: Anthropic's own; `api_key` None: the address needs none.
    Units:   `idle_ms` without a byte, `total_ms` for the whole request, milliseconds.
    Raises:  UsageError: the address or the key cannot be one.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        idle_ms: int = limits.MODEL_IDLE_MS,
        total_ms: int = limits.MODEL_TOTAL_MS,
        clock: Clock | None = None,
    ) -> None:
        self._http = ProviderHttp(
            _SDK,
            base_url=base_url or OFFICIAL_URL,
            api_key=api_key,
            idle_ms=idle_ms,
            total_ms=total_ms,
            clock=clock,
        )
        self._client = anthropic.AsyncAnthropic(
            base_url=self._http.url,
            api_key=self._http.key,  # one is always given, or the SDK looks for others by itself
            max_retries=0,
            http_client=self._http.client,
            open_telemetry=False,  # no prompt goes where nobody has sent it
        )

    @property
    def renderer(self) -> str:
        return RENDERER

    def render(self, request: ModelRequest) -> bytes:
        return anthropic_wire.render(request)

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        model = ModelRef(provider=PROVIDER, name=model_name(body))
        reader = ReplyReader(model, on_delta)
        async with self._http.sending(reader, may_start):
            stream = await self._client.post(
                "/v1/messages",
                cast_to=object,
                content=body,
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
            await self._http.read(stream.response, reader)
        return self._http.finish(reader)

    async def names(self) -> tuple[str, ...]:
        """The names of the models that the address offers, in its order; raises as `send` does."""
        async with self._http.sending(None):
            stream = await self._client.get(
                "/v1/models",
                cast_to=object,
                options={"params": {"limit": _LISTED_MAX}},
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
            return await self._http.names(stream.response)

    async def aclose(self) -> None:
        """Connections are closed; the model cannot be used any more."""
        await self._client.close()


async def list_models(base_url: str | None, api_key: str | None) -> tuple[str, ...]:
    """The names of the models that an address offers.

    Raises:  ModelError: it did not answer so. UsageError: the address or key cannot be one.
    """
    model = AnthropicModel(base_url=base_url, api_key=api_key, idle_ms=LIST_MS, total_ms=LIST_MS)
    try:
        return await model.names()
    finally:
        await model.aclose()
