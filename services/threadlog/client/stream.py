"""Following a thread through a gateway: every event once, in order, whatever breaks in between.

A stream that ends without saying so is taken up again behind the last event that was handed on.
What can not be mended by that ends it: a key that is not valid any more, a thread that is gone.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from pydantic import ValidationError

from threadlog.api.problems import ProblemBody, error_of
from threadlog.client.connection import Pause, Query, pause_s, thread_path
from threadlog.client.frames import Frame, FrameParser
from threadlog.client.heard import Heard
from threadlog.client.reads import stored_event
from threadlog.errors import CorruptError, QuotaError, ThreadlogError, TransientError
from threadlog.ids import CallId, ThreadId, TurnId
from threadlog.limits import CLIENT_AWAY_MS, CLIENT_BROKEN_MAX, CLIENT_RETRY_MS, CLIENT_WAIT_MS
from threadlog.ports.notify import LiveDelta, SoFar
from threadlog.ports.views import StoredEvent

Item = StoredEvent | LiveDelta


class Streams(Protocol):
    """What of a `Connection` a stream needs."""

    def stream(
        self, path: str, query: Query, last_event_id: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The bytes of a live stream, as they come, until the block ends."""
        ...


class ThreadStream:
    """One thread from behind a seq on. Iterate over `items` once."""

    def __init__(
        self,
        connection: Streams,
        thread: ThreadId,
        after: int,
        *,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._connection = connection
        self._thread = thread
        self._at = after
        self._pause = pause
        self._heard = Heard()
        self._is_over = False
        self._retry_ms = CLIENT_RETRY_MS
        self._tries = 0
        self._broken = 0
        self._away_since_s: float | None = None

    async def items(self) -> AsyncGenerator[Item, None]:
        """Events without gap or repeat, and pieces of responses between them.

        Raises:  RejectedError: the gateway refuses it. TransientError: it did not come back for
                 `CLIENT_AWAY_MS`. CorruptError: what it sends is no stream, again and again.
        """
        while True:
            error: ThreadlogError | None = None
            try:
                async with aclosing(self._connected()) as items:
                    async for item in items:
                        yield item
            except (TransientError, CorruptError) as broken:
                error = broken
            if self._is_over:
                return
            await self._wait(error)

    async def _connected(self) -> AsyncGenerator[Item, None]:
        """What comes until this connection ends."""
        path, query = thread_path(self._thread, "/stream"), {"since": self._at}
        parser = FrameParser()
        async with self._connection.stream(path, query, self._at) as chunks:
            async for chunk in chunks:
                for frame in parser.feed(chunk):
                    for item in self._items(frame):
                        yield item
                    if self._is_over or frame.name == "reconnect":
                        return

    def _items(self, frame: Frame) -> list[Item]:
        """What the frame brings. A name that is not known brings nothing.

        Raises:  CorruptError: it is not what it says. What a `problem` tells of.
        """
        if frame.retry_ms is not None:
            self._retry_ms = min(max(frame.retry_ms, 1), CLIENT_WAIT_MS)
        if not frame.name and not frame.data and frame.id is None:
            return []
        if not frame.name:
            return self._event(frame)
        if frame.name == "problem":
            raise _problem(frame)
        # Somebody who serves it is there.
        self._tries, self._away_since_s = 0, None
        if frame.name == "end":
            self._is_over = True
        if frame.name == "delta":
            delta = self._heard.delta(_delta(frame))
            return [] if delta is None else [delta]
        if frame.name == "partial":
            return list(self._heard.so_far(_so_far(frame)))
        return []

    def _event(self, frame: Frame) -> list[Item]:
        stored = stored_event(frame.data, self._thread)
        if stored.seq is None or frame.id != str(stored.seq):
            raise CorruptError("the stream sends an event under the number of another")
        if stored.seq <= self._at:
            return []
        if stored.seq != self._at + 1:
            raise CorruptError("the stream leaves out an event")
        self._at = stored.seq
        self._tries = self._broken = 0
        self._away_since_s = None
        return [stored]

    async def _wait(self, error: ThreadlogError | None) -> None:
        """It is time to connect again.

        Raises:  the error: there is no hope left.
        """
        now_s = asyncio.get_running_loop().time()
        self._tries += 1
        if isinstance(error, CorruptError):
            self._broken += 1
            if self._broken >= CLIENT_BROKEN_MAX:
                raise error
        if self._away_since_s is None:
            self._away_since_s = now_s
        elif now_s - self._away_since_s > CLIENT_AWAY_MS / 1_000:
            raise error or TransientError("the stream ends as soon as it begins")
        wait_s = pause_s(self._tries, self._retry_ms)
        if isinstance(error, QuotaError):
            wait_s = max(wait_s, min(error.retry_after_s, CLIENT_AWAY_MS / 1_000))
        await self._pause(wait_s)


def _problem(frame: Frame) -> ThreadlogError:
    try:
        return error_of(ProblemBody.model_validate_json(frame.data))
    except ValidationError:
        return CorruptError("the stream sends a problem that is none")


def _delta(frame: Frame) -> LiveDelta:
    members = _members(frame)
    call = members.get("call_id")
    return LiveDelta(
        TurnId(_text(members, "turn_id")),
        _number(members, "step"),
        _number(members, "attempt"),
        _number(members, "n"),
        _text(members, "block"),
        _text(members, "text"),
        None if call is None else CallId(_text(members, "call_id")),
    )


def _so_far(frame: Frame) -> SoFar:
    members = _members(frame)
    return SoFar(
        TurnId(_text(members, "turn_id")),
        _number(members, "step"),
        _number(members, "attempt"),
        _number(members, "n"),
        _text(members, "text"),
        _text(members, "thinking"),
    )


def _members(frame: Frame) -> dict[str, object]:
    try:
        members = json.loads(frame.data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"the stream sends a {frame.name} that is no JSON") from error
    if not isinstance(members, dict):
        raise CorruptError(f"the stream sends a {frame.name} that is no object")
    return members


def _text(members: dict[str, object], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise CorruptError(f"the stream sends a frame whose {name} is no text")
    return value


def _number(members: dict[str, object], name: str) -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptError(f"the stream sends a frame whose {name} is no number")
    return value
