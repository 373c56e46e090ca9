"""The OpenAI adapter: sends rendered bytes with the official SDK and reads the reply.

One request per `send`, of exactly the bytes given, bounded as `provider_http` says. Works with
foreign servers of the same wire form. Importing this module loads the SDK, which takes most of a
second.
"""

from collections.abc import Callable

import openai

from threadlog import limits
from threadlog.adapters.model_api import openai_wire
from threadlog.adapters.model_api.asked_model import model_name
from threadlog.adapters.model_api.openai_failures import FOREIGN_ERRORS, failure_of_exception
from threadlog.adapters.model_api.openai_reply import ReplyReader
from threadlog.adapters.model_api.openai_wire import PROVIDER, Dialect
from threadlog.adapters.model_api.provider_http import LIST_MS, ProviderHttp, Sdk
from threadlog.adapters.model_api.providers import OPENAI
from threadlog.clock import Clock
from threadlog.events.content import ModelRef
from threadlog.ports.model import Delta, ModelReply, ModelRequest, always

OFFICIAL_URL = "https://api.openai.com/v1"
_OFFICIAL_HOST = "api.openai.com"
_SDK = Sdk(OPENAI, FOREIGN_ERRORS, failure_of_exception)


class OpenAIModel:
    """The model port over one address.

    Shapes:  `base_url` None: OpenAI's own; `api_key` None: the address needs none; `dialect` None:
             chosen by the address.
    Units:   `idle_ms` without a byte, `total_ms` for the whole request, milliseconds.
    Raises:  UsageError: the address or the key cannot be one.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dialect: Dialect | None = None,
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
        is_official = self._http.url.host == _OFFICIAL_HOST
        self._dialect = dialect or Dialect(limits_completion=is_official)
        self._client = openai.AsyncOpenAI(
            base_url=self._http.url,
            api_key=self._http.key,
            max_retries=0,
            http_client=self._http.client,
        )

    @property
    def renderer(self) -> str:
        return self._dialect.renderer

    def render(self, request: ModelRequest) -> bytes:
        return openai_wire.render(request, self._dialect)

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
                "/chat/completions",
                cast_to=object,
                content=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            await self._http.read(stream.response, reader)
        return self._http.finish(reader)

    async def names(self) -> tuple[str, ...]:
        """The names of the models that the address offers, in its order; raises as `send` does."""
        async with self._http.sending(None):
            stream = await self._client.get(
                "/models",
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            return await self._http.names(stream.response)

    async def aclose(self) -> None:
        """Connections are closed; the model cannot be used any more."""
        await self._client.close()


async def list_models(base_url: str | None, api_key: str | None) -> tuple[str, ...]:
    """The names of the models that an address offers.

    Raises:  ModelError: it did not answer so. UsageError: the address or key cannot be one.
    """
    model = OpenAIModel(base_url=base_url, api_key=api_key, idle_ms=LIST_MS, total_ms=LIST_MS)
    try:
        return await model.names()
    finally:
        await model.aclose()
