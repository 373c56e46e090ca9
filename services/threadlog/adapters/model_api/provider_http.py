"""Requests to one provider's address, the same whichever SDK sends them.

One request each time: no retries, no redirects. Bounded in time (idle and in all) and in bytes;
every failure is a ModelError whose text holds no key. A request that comes too late is never sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import httpx2

from threadlog import limits
from threadlog.adapters.model_api.failures import failure_of_status, malformed, without_secrets
from threadlog.adapters.model_api.json_text import loads
from threadlog.adapters.model_api.providers import ProviderFacts
from threadlog.clock import Clock, SystemClock
from threadlog.errors import LateError, ModelError, UsageError
from threadlog.ports.model import ModelReply, always

NO_KEY = "none"
"""Sent where there is no key: servers that need none still want the header."""
LIST_MS = 10_000
"""How long an address may take to list its models."""
_LOOPBACK = frozenset(["localhost", "127.0.0.1", "::1"])
_DRAIN_MS = 100
"""After the last event: enough to read the end of the body, so that the connection is kept."""
_LONG_CHUNK_BYTES = 64 * limits.KIB


class Reader(Protocol):
    """One reply while it arrives."""

    @property
    def is_done(self) -> bool:
        """Nothing follows."""
        ...

    @property
    def is_complete(self) -> bool:
        """The model has finished; only usage may still come."""
        ...

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        ...

    def finish(self) -> ModelReply:
        """The reply, now that the body has ended."""
        ...


class FailureOf(Protocol):
    """What one of an SDK's exceptions means."""

    def __call__(self, error: Exception, *, now_ms: int) -> ModelError: ...


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK. `errors`: what it may raise besides ModelError; other exceptions are bugs of ours."""

    facts: ProviderFacts
    errors: tuple[type[Exception], ...]
    failure_of: FailureOf


class ProviderHttp:
    """One address, and what every request to it is held to; `client` is what an SDK sends with.

    Shapes:  `api_key` None: the address needs none.
    Units:   `idle_ms` without a byte, `total_ms` for the whole request, milliseconds.
    Raises:  UsageError: the address or the key cannot be one.
    """

    def __init__(
        self,
        sdk: Sdk,
        *,
        base_url: str,
        api_key: str | None,
        idle_ms: int,
        total_ms: int,
        clock: Clock | None,
    ) -> None:
        self._sdk = sdk
        self.url = _checked_url(base_url, sdk.facts)
        self.key = _checked_key(api_key, sdk.facts)
        self._total_ms = total_ms
        self._clock = clock or SystemClock()
        connect_s = min(limits.MODEL_CONNECT_MS, total_ms) / 1_000
        self.client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(idle_ms / 1_000, connect=connect_s, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
            follow_redirects=False,  # the key is for this address
            event_hooks={"request": [_guard], "response": [self._refuse_other_than_success]},
            trust_env=self.url.host not in _LOOPBACK,  # no proxy between a machine and itself
        )

    @asynccontextmanager
    async def sending(
        self, reader: Reader | None, may_start: Callable[[], bool] = always
    ) -> AsyncIterator[None]:
        """Whatever goes wrong inside is a ModelError, or nothing once the reply is complete.

        Raises:  LateError: `may_start` said no; no part of the body has left.
        """
        _MAY_START.set(may_start)
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
        except self._sdk.errors as error:
            if (ours := _ours_in(error)) is not None:
                raise ours from None
            if reader is None or not reader.is_complete:
                failure = self._sdk.failure_of(error, now_ms=self._clock.now_ms())
                raise self._without_key(failure) from None

    async def read(self, response: httpx2.Response, reader: Reader) -> None:
        """All bytes of the body went to `reader`; little time is given to what follows the reply.

        Raises:  TimeoutError only when the reply is complete, besides what `sending` maps.
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

    def finish(self, reader: Reader) -> ModelReply:
        """The reply that `reader` holds.

        Raises:  ModelError
        """
        try:
            return reader.finish()
        except ModelError as error:
            raise self._without_key(error) from None

    async def names(self, response: httpx2.Response) -> tuple[str, ...]:
        """The names in a list of models, in its order.

        Raises:  ModelError: malformed, besides what `sending` maps.
        """
        document = loads(await _read_at_most(response, limits.REPLY_BYTES_MAX))
        entries = document.get("data") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise malformed("the address does not list its models: name one with --model")
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)]
        return tuple(name for name in names if isinstance(name, str) and name)

    def _without_key(self, error: ModelError) -> ModelError:
        """The same failure, its text free of the key."""
        return ModelError(
            without_secrets(str(error), None if self.key == NO_KEY else self.key),
            error_class=error.error_class,
            retryable=error.retryable,
            retry_after_ms=error.retry_after_ms,
        )

    async def _refuse_other_than_success(self, response: httpx2.Response) -> None:
        """The SDK would read the whole body of a failure, however large it decodes."""
        if response.is_success:
            return
        try:
            body = await _read_at_most(response, limits.ERROR_BODY_BYTES_MAX)
        except self._sdk.errors:
            body = b""  # the status says enough
        text, now_ms = body.decode("utf-8", "replace"), self._clock.now_ms()
        # Free of the key at once: an SDK may log what it wraps.
        raise self._without_key(
            failure_of_status(response.status_code, text, response.headers, now_ms, self._sdk.facts)
        )


_MAY_START: ContextVar[Callable[[], bool]] = ContextVar("may_start", default=always)
"""Of the request that the task at hand sends: an SDK passes nothing of ours through."""


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


def _ours_in(error: BaseException | None) -> LateError | ModelError | None:
    """What we raised while the SDK sent, and it has wrapped, if it is that.

    Causes alone are followed: a context may be what the caller is busy handling.
    """
    while error is not None and not isinstance(error, LateError | ModelError):
        error = error.__cause__
    return error


async def _read_at_most(response: httpx2.Response, bytes_max: int) -> bytes:
    """The decoded body, cut at `bytes_max`."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > bytes_max:
                break
    return bytes(body[:bytes_max])


def _checked_url(text: str, facts: ProviderFacts) -> httpx2.URL:
    try:
        url = httpx2.URL(text.strip())
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host:
        shown = without_secrets(text)
        raise UsageError(f"{facts.url_name} must be http:// or https:// and a host, not {shown!r}")
    return url


def _checked_key(text: str | None, facts: ProviderFacts) -> str:
    key = (text or "").strip() or NO_KEY
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(f"{facts.key_name} holds characters that no key has: set it again")
    return key
