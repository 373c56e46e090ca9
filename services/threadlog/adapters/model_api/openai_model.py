"""The OpenAI adapter: sends rendered bytes with the official SDK and reads the reply.

One request per `send`, of exactly the bytes given: no retries, no redirects. Bounded in time (idle
and in all) and in bytes; every failure is a ModelError whose text holds no key. Works with foreign
servers of the same wire form. Importing this module loads the SDK, which takes most of a second.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar

import httpx2
import openai

from threadlog import limits
from threadlog.adapters.model_api import openai_wire
from threadlog.adapters.model_api.failures import failure_of_status, malformed, without_secrets
from threadlog.adapters.model_api.json_text import loads
from threadlog.adapters.model_api.openai_failures import FOREIGN_ERRORS, failure_of_exception
from threadlog.adapters.model_api.openai_reply import ReplyReader
from threadlog.adapters.model_api.openai_wire import PROVIDER, Dialect
from threadlog.clock import Clock, SystemClock
from threadlog.errors import LateError, ModelError, UsageError
from threadlog.events.content import ModelRef
from threadlog.ports.model import Delta, ModelReply, ModelRequest, always

OFFICIAL_URL = "https://api.openai.com/v1"
NO_KEY = "none"
"""Sent where there is no key: servers that need none still want the header."""
_OFFICIAL_HOST = "api.openai.com"
_LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
_DRAIN_MS = 100
"""After the last event: enough to read the end of the body, so that the connection is kept."""
_LONG_CHUNK_BYTES = 64 * limits.KIB
_LIST_MS = 10_000


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
        url = _checked_url(base_url or OFFICIAL_URL)
        is_official = url.host == _OFFICIAL_HOST
        self._dialect = dialect or Dialect(limits_completion=is_official)
        self._key = _checked_key(api_key)
        self._total_ms = total_ms
        self._clock = clock or SystemClock()
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=self._key,
            max_retries=0,
            http_client=self._http_client(url, idle_ms),
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
        model = ModelRef(provider=PROVIDER, name=openai_wire.model_name(body))
        reader = ReplyReader(model, on_delta)
        _MAY_START.set(may_start)
        async with self._failing_as_model_errors(reader):
            stream = await self._client.post(
                "/chat/completions",
                cast_to=object,
                content=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            await self._read(stream.response, reader)
        return self._finish(reader)

    async def names(self) -> tuple[str, ...]:
        """The names of the models that the address offers, in its order; raises as `send` does."""
        async with self._failing_as_model_errors(None):
            stream = await self._client.get(
                "/models",
                cast_to=object,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            body = await _read_at_most(stream.response, limits.REPLY_BYTES_MAX)
            document = loads(body)
        entries = document.get("data") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise malformed("the address does not list its models: name one with --model")
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        return tuple(name for name in names if isinstance(name, str) and name)

    async def aclose(self) -> None:
        """Connections are closed; the model cannot be used any more."""
        await self._client.close()

    async def _read(self, response: httpx2.Response, reader: ReplyReader) -> None:
        """All bytes of the body went to `reader`; little time is given to what follows the reply.

        Raises:  TimeoutError only when the reply is complete, besides what `send` maps.
        """
        loop = asyncio.get_running_loop()
        tail_ms = None
        async with asyncio.timeout(None) as tail, aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                reader.feed(chunk)
                wanted_ms = _DRAIN_MS if reader.is_done else limits.MODEL_TAIL_MS
                if reader.is_complete and wanted_ms != tail_ms:
                    tail_ms = wanted_ms
                    tail.reschedule(loop.time() + tail_ms / 1_000)
                if len(chunk) > _LONG_CHUNK_BYTES:
                    await asyncio.sleep(0)  # a bomb decodes without ever waiting for the network

    def _finish(self, reader: ReplyReader) -> ModelReply:
        try:
            return reader.finish()
        except ModelError as error:
            raise self._without_key(error) from None

    @asynccontextmanager
    async def _failing_as_model_errors(self, reader: ReplyReader | None) -> AsyncIterator[None]:
        """Whatever goes wrong inside is a ModelError, or nothing once the reply is complete."""
        try:
            async with asyncio.timeout(self._total_ms / 1_000):
                yield
        except ModelError as error:
            raise self._without_key(error) from None
        except TimeoutError:
            if reader is None or not reader.is_complete:
                raise ModelError(
                    f"the reply took longer than {self._total_ms // 1_000} s",
                    error_class="timeout",
                    retryable=True,
                ) from None
        except FOREIGN_ERRORS as error:
            if (late := _late_in(error)) is not None:
                raise late from None
            if reader is None or not reader.is_complete:
                failure = failure_of_exception(error, now_ms=self._clock.now_ms())
                raise self._without_key(failure) from None

    def _without_key(self, error: ModelError) -> ModelError:
        """The same failure, its text free of the key."""
        return ModelError(
            without_secrets(str(error), None if self._key == NO_KEY else self._key),
            error_class=error.error_class,
            retryable=error.retryable,
            retry_after_ms=error.retry_after_ms,
        )

    def _http_client(self, url: httpx2.URL, idle_ms: int) -> httpx2.AsyncClient:
        connect_s = min(limits.MODEL_CONNECT_MS, self._total_ms) / 1_000
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(idle_ms / 1_000, connect=connect_s, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
            follow_redirects=False,  # the key is for this address
            event_hooks={"request": [_guard], "response": [self._refuse_other_than_success]},
            trust_env=url.host not in _LOOPBACK,  # no proxy stands between a machine and itself
        )

    async def _refuse_other_than_success(self, response: httpx2.Response) -> None:
        """The SDK would read the whole body of a failure, however large it decodes."""
        if response.is_success:
            return
        try:
            body = await _read_at_most(response, limits.ERROR_BODY_BYTES_MAX)
        except FOREIGN_ERRORS:
            body = b""  # the status says enough
        text = body.decode("utf-8", "replace")
        raise failure_of_status(response.status_code, text, response.headers, self._clock.now_ms())


_MAY_START: ContextVar[Callable[[], bool]] = ContextVar("may_start", default=always)
"""Of the request that the task at hand sends: the SDK passes nothing of ours through."""


class _Guarded(httpx2.AsyncByteStream):
    """A request's body that asks, when the connection stands and its first byte is due."""

    def __init__(self, body: httpx2.AsyncByteStream, may_start: Callable[[], bool]) -> None:
        self._body = body
        self._may_start = may_start

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if not self._may_start():
            raise LateError("the request was not sent: its claim is too old")
        async for chunk in self._body:
            yield chunk

    async def aclose(self) -> None:
        """The body is needed no more."""
        await self._body.aclose()


async def _guard(request: httpx2.Request) -> None:
    """A worker that was frozen while it connected must not send what others have settled."""
    if isinstance(request.stream, httpx2.AsyncByteStream):
        request.stream = _Guarded(request.stream, _MAY_START.get())


def _late_in(error: BaseException | None) -> LateError | None:
    """The refusal to send that the SDK has wrapped, if it is one."""
    while error is not None and not isinstance(error, LateError):
        error = error.__cause__ or error.__context__
    return error


async def list_models(base_url: str | None, api_key: str | None) -> tuple[str, ...]:
    """The names of the models that an address offers.

    Raises:  ModelError: it did not answer so. UsageError: the address or key cannot be one.
    """
    model = OpenAIModel(base_url=base_url, api_key=api_key, idle_ms=_LIST_MS, total_ms=_LIST_MS)
    try:
        return await model.names()
    finally:
        await model.aclose()


async def _read_at_most(response: httpx2.Response, bytes_max: int) -> bytes:
    """The decoded body, cut at `bytes_max`."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > bytes_max:
                break
    return bytes(body[:bytes_max])


def _checked_url(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text.strip())
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host:
        shown = without_secrets(text)
        raise UsageError(f"OPENAI_BASE_URL must be http:// or https:// and a host, not {shown!r}")
    return url


def _checked_key(text: str | None) -> str:
    key = (text or "").strip() or NO_KEY
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError("OPENAI_API_KEY holds characters that no key has: set it again")
    return key
