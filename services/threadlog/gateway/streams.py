"""The live stream: what has happened, then what happens, without a gap or a repeat.

The order on joining: listen first, then read the range, then the text so far of the open response,
then what is live. A client may come back with the id of the last event that it has, here or at any
other gateway. A stream ends with the key that opened it, within seconds.
"""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.types import Receive, Scope, Send

from threadlog.api.problems import problem_of
from threadlog.errors import CursorInvalidError, QuotaError, ThreadlogError, TransientError
from threadlog.events.envelope import Event
from threadlog.gateway import frames
from threadlog.gateway.auth import Caller
from threadlog.gateway.frames import DeltaFrame, EventFrame, Frame, FreshFrame
from threadlog.gateway.live import Feed, Live
from threadlog.gateway.parameters import Cursor, cursor_of
from threadlog.gateway.pieces import fitting, joined
from threadlog.gateway.reading import Found, find, known_cursor
from threadlog.gateway.reads import ReadCaller, Receipt
from threadlog.gateway.so_far import OpenResponse
from threadlog.gateway.strict import StrictRoute
from threadlog.gateway.waiting import until_gone
from threadlog.ids import Seq, TenantId
from threadlog.limits import (
    CALLS_PER_STEP_MAX,
    STREAM_AUTH_MS,
    STREAM_HEARTBEAT_MS,
    STREAM_LIFE_MS,
    WRITE_PIECE_BYTES,
)
from threadlog.ports.views import StoredEvent
from threadlog.telemetry.table import ResumeOutcome, StreamEnd

router = APIRouter(route_class=StrictRoute)
Until = Literal["never", "turn"]
_READ_AT_ONCE = 32
_TAIL_EVENTS = 4 * CALLS_PER_STEP_MAX + 8
"""No more events than that follow a claim before the step that it belongs to is closed."""
_TAIL_AT_ONCE = 8
_RETRY_MS = (1_000, 3_000)
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-store, no-transform",
    "X-Accel-Buffering": "no",
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "frames, as they come"}
}


@router.get("/v1/threads/{thread}/stream", response_class=Response, responses=_STREAM)
async def stream(
    request: Request,
    reader: ReadCaller,
    thread: str,
    since: Annotated[
        Cursor | None, Query(description="Behind this seq; default: from now.")
    ] = None,
    until: Annotated[Until, Query(description="turn: ends when no turn is open.")] = "never",
    receipt: Receipt = None,
) -> Response:
    """Follow a thread. `Last-Event-ID` wins over `since`; without either it begins at the head."""
    resumed = _last_event_id(request)
    found = await find(reader, thread, receipt)
    after = found.row.head if since is None else since
    after = after if resumed is None else resumed
    is_ahead = after > found.row.head
    found = await known_cursor(reader, found, after)
    resume: ResumeOutcome = "ahead" if is_ahead else "hit" if after == found.row.head else "cold"
    return _Stream(request, reader, found, _Wanted(after, until, resume))


def _last_event_id(request: Request) -> int | None:
    """The seq of the last event that the client has, None where it has said nothing.

    Raises:  CursorInvalidError
    """
    given = [v for k, v in request.headers.raw if k == b"last-event-id"]
    if not given:
        return None
    if len(given) > 1:
        raise CursorInvalidError("Last-Event-ID: one, or none")
    return cursor_of(given[0].decode("latin-1"), "Last-Event-ID")


@dataclass(frozen=True, slots=True)
class _Wanted:
    after: int
    until: Until
    resume: ResumeOutcome


class _Stream(Response):
    """Frames until the client leaves, or what was asked for has ended, or this process does."""

    def __init__(self, request: Request, reader: Caller, found: Found, wanted: _Wanted) -> None:
        super().__init__(None, 200, _HEADERS)
        del self.headers["content-length"]
        self._streams: Counter[TenantId] = request.app.state.streams
        self._live: Live = request.app.state.live
        self._reader = reader
        self._found = found
        self._wanted = wanted
        _check_room(self._streams, reader)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends frames, and minds at the same time whether anybody is there who may have them."""
        tenant, meter = self._reader.credential.tenant, self._reader.ports.meter
        self._streams[tenant] += 1
        meter.stream_began(self._wanted.resume)
        ended: StreamEnd = "client"
        try:
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(until_gone(receive))
            expiring = asyncio.create_task(_until_over(self._reader))
            tasks = (sending, leaving, expiring)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    ended = sending.result()
                elif expiring.done():
                    ended = "reauthorise"
                    # Its client does not read. The wire ends it in the middle, as is meant.
                    scope["state"]["is_cut"] = True
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass  # the client is gone, or did not read for too long
        finally:
            self._streams[tenant] -= 1
            meter.stream_ended(ended)

    async def _send(self, send: Send) -> StreamEnd:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)

        async def write(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        watch = _Watch(self._reader, self._live, self._found, self._wanted)
        async with watch.pieces() as pieces:
            async for piece in pieces:
                await write(piece)
        await write(b"", more=False)
        return watch.ended


def _check_room(streams: Counter[TenantId], reader: Caller) -> None:
    """Nothing, if the tenant may have one more stream.

    Raises:  QuotaError
    """
    bound = reader.ports.options.streams_per_tenant
    if streams[reader.credential.tenant] >= bound:
        reader.ports.meter.rejected("streams")
        raise QuotaError(
            f"{bound} streams of this tenant are open in this gateway: close one",
            limit="streams",
            retry_after_s=5,
        )


async def _until_over(reader: Caller) -> None:
    """The key is valid no longer, and the stream has had time to say so and end."""
    while reader.ports.keys.is_valid(reader.credential):
        await asyncio.sleep(STREAM_AUTH_MS / 1_000)
    await asyncio.sleep(STREAM_AUTH_MS / 1_000)


class _Leaving(Exception):
    """The stream must end, and the client is told to come back."""

    def __init__(self, reason: frames.ReconnectReason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class _Watch:
    """One client's stream of one thread."""

    reader: Caller
    live: Live
    found: Found
    wanted: _Wanted
    ended: StreamEnd = "client"
    _at: int = field(init=False, default=-1)
    _said: OpenResponse = field(init=False, default_factory=lambda: OpenResponse(None))
    _known: int = field(init=False, default=-1)
    """There are events up to here."""
    _page: int = field(init=False, default=4)
    """Events to read at once: about as many as are written at once."""
    _ends_s: float = field(init=False, default=0.0)
    _is_live: bool = field(init=False, default=False)
    """The range was sent: what comes now is happening."""
    _is_over: bool = field(init=False, default=False)

    @contextlib.asynccontextmanager
    async def pieces(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of the stream, in pieces that belong together."""
        source = self._pieces()
        try:
            yield source
        finally:
            await source.aclose()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        """1. listen, 2. read the range, 3. the text so far, 4. what is live."""
        row, wanted = self.found.row, self.wanted
        self._at = wanted.after
        self._ends_s = asyncio.get_running_loop().time() + STREAM_LIFE_MS / 1_000
        # Not as one wave do all come back after an outage.
        yield frames.retry(random.SystemRandom().randint(*_RETRY_MS))
        try:
            with self.live.join(row.tenant_id, row.thread_id) as feed:
                async for piece in self._range(None):
                    yield piece
                yield frames.fresh(self._at, self.found.behind_ms).data
                await feed.heard()
                partial = await self._open_response()
                if partial is not None:
                    yield partial
                self._is_live = True
                async for piece in self._follow(feed):
                    yield piece
        except _Leaving as leaving:
            self.ended = leaving.reason
            yield frames.reconnect(leaving.reason)
        except ThreadlogError as error:
            self.ended = "problem"
            yield frames.problem(problem_of(error))

    async def _follow(self, feed: Feed) -> AsyncIterator[bytes]:
        """What is live, until there is a reason to end, which is told."""
        loop = asyncio.get_running_loop()
        beat_s = loop.time() + STREAM_HEARTBEAT_MS / 1_000
        looked_at: int | None = None
        while True:
            has_news = False
            async for piece in joined(self._taken(feed)):
                yield piece
                has_news = True
            if self.wanted.until == "turn" and not self._is_over and looked_at != self._at:
                # Asked again as long as the views do not answer.
                with contextlib.suppress(TransientError):
                    self._is_over = await self._is_idle()
                    looked_at = self._at
            if has_news:
                beat_s = loop.time() + STREAM_HEARTBEAT_MS / 1_000
            if self._is_over:
                self.ended = "turn_finished"
                yield frames.end("turn_finished")
                return
            if feed.error is not None:
                raise feed.error
            self._check()
            if feed.is_slow:
                raise _Leaving("slow_reader")
            if loop.time() > beat_s:
                yield frames.HEARTBEAT
                beat_s = loop.time() + STREAM_HEARTBEAT_MS / 1_000
            await self._wait(feed)

    def _check(self) -> None:
        """Nothing, if this stream may go on. Asked while it catches up, too, which may take long.

        Raises:  _Leaving: it must end now.
        """
        ports = self.reader.ports
        if ports.stopping.is_set():
            raise _Leaving("shutdown")
        if not ports.keys.is_valid(self.reader.credential):
            raise _Leaving("reauthorise")
        if asyncio.get_running_loop().time() > self._ends_s:
            raise _Leaving("max_life")

    async def _wait(self, feed: Feed) -> None:
        """Something has come, or it is time to look whether the key is still valid."""
        ports = self.reader.ports
        tasks = [
            asyncio.create_task(feed.wait()),
            asyncio.create_task(ports.stopping.wait()),
        ]
        try:
            await asyncio.wait(
                tasks, timeout=STREAM_AUTH_MS / 1_000, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _taken(self, feed: Feed) -> AsyncIterator[bytes]:
        """What waits in the feed, but for what was sent already."""
        for frame in feed.take():
            if self._is_over:
                return  # behind the end of the turn that was asked for
            async for piece in self._live_frame(frame):
                yield piece
        # The follower may have begun behind the range that was read, and views may be set back.
        if self._at < self._known and not self._is_over:
            async for piece in self._range(self._known):
                yield piece

    async def _live_frame(self, frame: Frame) -> AsyncIterator[bytes]:
        match frame:
            case EventFrame():
                self._known = max(self._known, frame.seq)
                if frame.seq > self._at + 1:
                    async for piece in self._range(frame.seq - 1):
                        yield piece
                if frame.seq == self._at + 1:
                    yield self._event(frame)
            case DeltaFrame():
                if not self._said.has(frame.delta):
                    yield frame.data
            case FreshFrame():
                self._known = max(self._known, frame.as_of_seq)
                yield frame.data

    def _event(self, frame: EventFrame) -> bytes:
        if frame.seq != self._at + 1:
            # The views owe every event; the client is given what there is, and people are told.
            self.reader.ports.meter.stream_gap()
        self._at = frame.seq
        if frame.ends_turn and self._is_live and self.wanted.until == "turn":
            self._is_over = True
        if frame.claims is not None and (partial := self._said.began(frame.claims)) is not None:
            return frame.data + partial
        return frame.data

    async def _range(self, last: int | None) -> AsyncIterator[bytes]:
        """The events behind the last one that was sent, up to `last`, or to the present head."""
        while last is None or self._at < last:
            wanted = self._page if last is None else min(self._page, last - self._at)
            pieces, is_last = fitting(await self._read(self._at + 1, self._at + wanted), wanted)
            size = sum(len(frame.data) for frame in pieces)
            for frame in pieces:
                self._check()
                yield self._event(frame)
            if is_last:
                return
            count = WRITE_PIECE_BYTES * len(pieces) // size
            self._page = max(1, min(count, 2 * wanted, _READ_AT_ONCE))

    async def _read(self, first: int, last: int) -> list[StoredEvent]:
        row, views = self.found.row, self.reader.ports.views
        limit = last - first + 1
        page = await views.events(
            row.tenant_id, row.thread_id, first=Seq(first), last=Seq(last), limit=limit
        )
        return list(page)

    async def _is_idle(self) -> bool:
        row = self.found.row
        now = await self.reader.ports.views.thread(row.tenant_id, row.thread_id)
        return now is not None and now.status in ("idle", "halted") and now.head == self._at

    async def _open_response(self) -> bytes | None:
        """The text so far of the response that is open where the client stands now; else None."""
        row = self.found.row
        said = await self.reader.ports.notify.so_far(row.tenant_id, row.thread_id)
        self._said = OpenResponse(said)
        if not self._said.is_known:
            return None
        events: list[Event] = []
        low, lowest = self._at + 1, max(0, self._at - _TAIL_EVENTS)
        while low > lowest and not any(map(frames.claimed_by, events)):
            first = max(lowest, low - _TAIL_AT_ONCE)
            page = await self._read(first, low - 1)
            events += (stored.event for stored in reversed(page))
            low = first
        return self._said.joined(events, is_whole=low == 0)
