"""One way to a gateway: an address or a socket, and the key that opens it.

The key goes to that one address, in one header, and nowhere else: no redirect is followed, no path
leaves the address, and what is not encrypted takes no proxy. A request with an idempotency key is
sent again where that may help, a few times; one without is sent once.
"""

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from threadlog.api.parts import Wire
from threadlog.api.problems import PROBLEM_TYPE, ProblemBody, error_of
from threadlog.errors import (
    InFlightError,
    LockedError,
    QuotaError,
    RefusedError,
    RejectedError,
    ThreadlogError,
    TransientError,
    UnauthenticatedError,
)
from threadlog.ids import ThreadId, is_uuid
from threadlog.limits import (
    CLIENT_BODY_BYTES_MAX,
    CLIENT_CONNECT_MS,
    CLIENT_REQUEST_MS,
    CLIENT_RETRY_MS,
    CLIENT_SILENCE_MS,
    CLIENT_TRIES_MAX,
    CLIENT_WAIT_MS,
    IDEMPOTENCY_KEY_CHARS_MAX,
)

EVENT_STREAM = "text/event-stream"
_SOCKET_BASE = "http://localhost"
_UNAUTHENTICATED, _SERVER = 401, 500
_SECONDS = re.compile(r"[0-9]{1,8}")
Query = Mapping[str, str | int]
Pause = Callable[[float], Awaitable[None]]
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came back. `error` None: it worked. `retry_after_s`: what the gateway asks for."""

    content: bytes
    error: ThreadlogError | None = None
    retry_after_s: float = 0.0


class Connection:
    """Requests to one gateway.

    Raises:  what the gateway's problem tells of; TransientError: it cannot be reached, LockedError
             where it is a socket: whether it took the request is unknown.
    """

    def __init__(
        self, base: str, key: str, *, socket: Path | None = None, pause: Pause = asyncio.sleep
    ) -> None:
        """`base`: scheme, host and port, without a path. `socket`: goes there instead."""
        self._is_socket = socket is not None
        self._pause = pause
        self._base = base
        self._http = httpx2.AsyncClient(
            base_url=base,
            headers={"Authorization": f"Bearer {key}", "Accept-Encoding": "identity"},
            transport=None if socket is None else httpx2.AsyncHTTPTransport(uds=str(socket)),
            timeout=httpx2.Timeout(CLIENT_REQUEST_MS / 1_000, connect=CLIENT_CONNECT_MS / 1_000),
            follow_redirects=False,
            # A proxy would read the key of what is not encrypted.
            trust_env=base.startswith("https:"),
        )

    @classmethod
    def through(cls, socket: Path, key: str) -> "Connection":
        """A connection to the runtime that listens at `socket`."""
        return cls(_SOCKET_BASE, key, socket=socket)

    async def close(self) -> None:
        """No connection is open."""
        await self._http.aclose()

    async def get(self, path: str, query: Query | None = None) -> bytes:
        """The content of the answer; asked once."""
        answer = await self._once("GET", path, query=query)
        if answer.error is not None:
            raise answer.error
        return answer.content

    async def send(self, method: str, path: str, body: Wire, key: str) -> bytes:
        """The content of the answer to this change, which happens once however often it is sent.

        Raises:  RejectedError: the key is none.
        """
        content = body.model_dump_json(exclude_none=True).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": _quoted(key)}
        tries = 0
        while True:
            answer = await self._once(method, path, content=content, headers=headers)
            if answer.error is None:
                return answer.content
            tries += 1
            wait_s = max(pause_s(tries, CLIENT_RETRY_MS), answer.retry_after_s)
            is_over = tries == CLIENT_TRIES_MAX or wait_s > CLIENT_WAIT_MS / 1_000
            if is_over or not _may_pass(answer.error):
                raise answer.error
            await self._pause(wait_s)

    @asynccontextmanager
    async def stream(
        self, path: str, query: Query, last_event_id: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a live stream, as they come, until the block ends."""
        headers = {"Accept": EVENT_STREAM, "Last-Event-ID": str(last_event_id)}
        asked = self._http.build_request("GET", _checked(path), params=query, headers=headers)
        asked.extensions["timeout"] = {
            "connect": CLIENT_CONNECT_MS / 1_000,
            "read": CLIENT_SILENCE_MS / 1_000,
            "write": CLIENT_REQUEST_MS / 1_000,
            "pool": CLIENT_CONNECT_MS / 1_000,
        }
        with self._network():
            response = await self._http.send(asked, stream=True)
        try:
            if not response.is_success:
                with self._network():
                    async with asyncio.timeout(CLIENT_REQUEST_MS / 1_000):
                        content = await self._content(response)
                raise self._error(response, content)
            if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
                raise TransientError(f"{self._name} answers with something else than a stream")
            yield self._chunks(response)
        finally:
            await response.aclose()

    async def _chunks(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        with self._network():
            async for chunk in response.aiter_raw():
                yield chunk

    async def _once(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Answer:
        asked = self._http.build_request(
            method, _checked(path), params=query, content=content, headers=headers
        )
        try:
            with self._network():
                async with asyncio.timeout(CLIENT_REQUEST_MS / 1_000):
                    response = await self._http.send(asked, stream=True)
                    try:
                        found = await self._content(response)
                    finally:
                        await response.aclose()
        except TransientError as error:
            return _Answer(b"", error)
        if response.is_success:
            return _Answer(found)
        return _Answer(b"", self._error(response, found), _retry_after_s(response))

    async def _content(self, response: httpx2.Response) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > CLIENT_BODY_BYTES_MAX:
                raise TransientError(f"{self._name} answers without an end")
        return bytes(content)

    def _error(self, response: httpx2.Response, content: bytes) -> ThreadlogError:
        """What this answer, which is no success, tells of."""
        status = response.status_code
        if response.headers.get("content-type", "").startswith(PROBLEM_TYPE):
            return self._problem(response, content)
        if response.is_redirect:
            return RefusedError(f"{self._name} points elsewhere, which is not followed: name that")
        if status == _UNAUTHENTICATED:
            return UnauthenticatedError(f"{self._name} does not take the key")
        if status >= _SERVER:
            return TransientError(f"{self._name} answers {status}")
        return RejectedError(f"{self._name} answers {status} as no gateway does: see its address")

    def _problem(self, response: httpx2.Response, content: bytes) -> ThreadlogError:
        try:
            error = error_of(ProblemBody.model_validate_json(content))
        except ValidationError:
            return TransientError(f"{self._name} answers {response.status_code} oddly")
        if isinstance(error, UnauthenticatedError) and not self._is_socket:
            return UnauthenticatedError(
                f"{self._name} does not take the key in THREADLOG_KEY: it is none, or it has ended"
            )
        if isinstance(error, QuotaError):
            error.retry_after_s = round(_retry_after_s(response)) or error.retry_after_s
        return error

    @contextmanager
    def _network(self) -> Iterator[None]:
        """What the network does is an error of ours; of its text nothing is kept but its kind."""
        try:
            yield
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            if self._is_socket:
                raise LockedError("the runtime that holds the file does not answer") from error
            raise TransientError(
                f"{self._name} cannot be reached: see that a gateway runs there"
            ) from error

    @property
    def _name(self) -> str:
        return "the runtime that holds the file" if self._is_socket else self._base


def parsed(model: type[M], content: bytes) -> M:
    """The answer as the model that it must be.

    Raises:  TransientError: it is none.
    """
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise TransientError(f"the gateway answered oddly: no {model.__name__}") from error


def thread_path(thread: ThreadId, rest: str = "") -> str:
    """The path of a thread, or of what lies below it.

    Raises:  TransientError: what a gateway called a thread is none.
    """
    if not is_uuid(thread):
        raise TransientError("the gateway answered oddly: no id of a thread")
    return f"/v1/threads/{thread}{rest}"


def pause_s(tries: int, base_ms: int) -> float:
    """How long to wait before the next try after so many: twice as long each time, with jitter."""
    whole_s = min(base_ms << min(tries - 1, 16), CLIENT_WAIT_MS) / 1_000
    return whole_s * random.SystemRandom().uniform(0.5, 1.0)


def _may_pass(error: ThreadlogError) -> bool:
    """Whether the same request may work a moment later; who holds a file is looked for again."""
    return isinstance(error, TransientError | InFlightError) and not isinstance(error, LockedError)


def _checked(path: str) -> str:
    assert path.startswith("/v1/"), "no path leaves the address"
    return path


def _retry_after_s(response: httpx2.Response) -> float:
    """How long the gateway asks to be left alone; 0: it does not say."""
    text = response.headers.get("retry-after", "")
    return float(text) if _SECONDS.fullmatch(text) else 0.0


def _quoted(key: str) -> str:
    """The key as the header has it."""
    is_text = key.isascii() and key.isprintable()
    if not is_text or not 0 < len(key) <= IDEMPOTENCY_KEY_CHARS_MAX:
        raise RejectedError(
            f"an idempotency key has 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
        )
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
