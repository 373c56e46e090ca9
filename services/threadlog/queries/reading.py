"""Reading threads: results of turns, and following a thread live."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from threadlog.errors import NotFoundError
from threadlog.events.content import TextPart, Usage
from threadlog.events.step import ModelResponded, StepFinished
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import EventId, Seq, TenantId, ThreadId, TurnId
from threadlog.limits import MIB, READ_EVENTS_MAX
from threadlog.ports.blobs import Blobs
from threadlog.ports.notify import Advanced, Frame, LiveDelta, Notify
from threadlog.ports.views import (
    Reads,
    StoredEvent,
    ThreadRow,
)
from threadlog.thread.state import add_usage

_LAST = 2**62
_PAGE_EVENTS = 8
_PAGE_BYTES = 1 * MIB
"""About as many events as have so many bytes are read at once, and at first few."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What came of the turn that admitted a message.

    Shapes:  `seq` is the turn's last; `usage` sums its steps, None where no step reported any.
    """

    thread_id: ThreadId
    turn_id: TurnId
    seq: Seq
    verdict: str
    cause: str | None
    answer: str
    steps: int
    usage: Usage | None


class Reader:
    """Reads of one tenant."""

    def __init__(
        self,
        views: Reads,
        blobs: Blobs,
        notify: Notify,
        tenant: TenantId,
        *,
        look_s: float | None = None,
    ) -> None:
        """`look_s`: how long frames may be silent before it looks by itself; None: none is lost."""
        self.views = views
        self.tenant = tenant
        self._blobs = blobs
        self._notify = notify
        self._look_s = look_s

    async def thread(self, thread: ThreadId) -> ThreadRow:
        """The thread's row.

        Raises:  NotFoundError
        """
        row = await self.views.thread(self.tenant, thread)
        if row is None:
            raise NotFoundError(f"no thread {thread}")
        return row

    async def events(
        self, thread: ThreadId, first: int = 0, *, last: int = _LAST
    ) -> AsyncIterator[StoredEvent]:
        """Accepted events from seq `first` to `last` or the present head, page by page.

        Effects: pages grow as long as their events are small: one is decoded in one piece.
        """
        limit = _PAGE_EVENTS
        while first <= last:
            page = await self.views.events(
                self.tenant, thread, first=Seq(first), last=Seq(last), limit=limit
            )
            for stored in page:
                yield stored
            if len(page) < limit:
                return
            first += len(page)
            mean = max(1, sum(len(stored.event.data) for stored in page) // len(page))
            limit = max(1, min(_PAGE_BYTES // mean, 8 * limit, READ_EVENTS_MAX))

    async def follow(
        self, thread: ThreadId, first: int = 0
    ) -> AsyncIterator[StoredEvent | LiveDelta]:
        """Accepted events from seq `first` on and, where they can be heard, live deltas.

        Shapes:  events come without gap or repeat; deltas may be lost.
        Effects: listens first, then reads, so that nothing falls between. Ends when closed.
        """
        async for moved in self._moves(thread):
            if isinstance(moved, LiveDelta):
                yield moved
                continue
            async for stored in self.events(thread, first):
                assert stored.seq is not None
                first = stored.seq + 1
                yield stored

    async def _moves(self, thread: ThreadId) -> AsyncIterator[LiveDelta | None]:
        """None whenever there may be new events, once at the start; deltas between."""
        frames = self._frames(thread)
        yield None
        async for frame in frames:
            yield frame if isinstance(frame, LiveDelta) else None

    def _frames(self, thread: ThreadId) -> AsyncIterator[Frame | None]:
        """What is heard of the thread from now on; None after a silence."""
        frames = self._notify.listen(self.tenant, thread)
        return frames if self._look_s is None else _with_silences(frames, self._look_s)

    async def turn_result(self, thread: ThreadId, message: EventId, first: int) -> TurnResult:
        """The result of the turn that admits `message`, an accepted one with seq `first`.

        Effects: waits as long as it takes; bound it outside.
        """
        seen: TurnId | None = None
        async for open_turn, is_idle in self._turns(thread):
            if open_turn == seen and not is_idle:
                continue
            # Another turn is open, or none: ours may have ended.
            seen = open_turn
            result = await self.find_result(thread, message, first)
            if result is not None:
                return result
        raise AssertionError("the stream of edges never ends")

    async def _turns(self, thread: ThreadId) -> AsyncIterator[tuple[TurnId | None, bool]]:
        """The open turn, and whether the thread is idle: now, and whenever the views moved."""
        frames = self._frames(thread)
        row = await self.thread(thread)
        yield row.open_turn, row.status == "idle"
        async for frame in frames:
            if isinstance(frame, Advanced):
                yield frame.open_turn, frame.is_idle
            elif frame is None:
                row = await self.thread(thread)
                yield row.open_turn, row.status == "idle"

    async def find_result(
        self, thread: ThreadId, message: EventId, first: int
    ) -> TurnResult | None:
        """The result of the turn that admitted `message`; None while there is none."""
        turn: TurnId | None = None
        answered: ModelResponded | None = None
        usage: Usage | None = None
        async for stored in self.events(thread, first):
            event, body = stored.event, stored.event.body
            if isinstance(body, TurnStarted) and message in body.admits:
                turn = event.turn_id
            if turn is None or event.turn_id != turn:
                continue
            if isinstance(body, ModelResponded):
                answered = body
            elif isinstance(body, StepFinished):
                usage = add_usage(usage, body.usage)
            elif isinstance(body, TurnFinished):
                assert stored.seq is not None
                answer = "" if answered is None else await self._answer(answered)
                return TurnResult(
                    thread, turn, stored.seq, body.verdict, body.cause, answer, body.steps, usage
                )
        return None

    async def _answer(self, body: ModelResponded) -> str:
        """The response's text; a long one is read from the blob store."""
        texts: list[str] = []
        for part in body.content:
            if not isinstance(part, TextPart):
                continue
            text = part.text
            if isinstance(text, str):
                texts.append(text)
            else:
                content = await self._blobs.get(self.tenant, text.sha256)
                texts.append("[unavailable]" if content is None else content.decode())
        return "".join(texts)


async def _with_silences(
    frames: AsyncIterator[Frame], silence_s: float
) -> AsyncIterator[Frame | None]:
    """The frames, and None whenever none has come for so long: frames may be lost, facts not."""
    coming: asyncio.Future[Frame] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(frames))
            done, _ = await asyncio.wait({coming}, timeout=silence_s)
            if not done:
                yield None
                continue
            try:
                frame = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield frame
    finally:
        if coming is not None:
            coming.cancel()
