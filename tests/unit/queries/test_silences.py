"""A reader whose frames may be lost looks by itself; where frames come, none is lost or doubled."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

import pytest

from tests.helpers.events import LOCAL, event_id, thread_id
from tests.helpers.turns import TURN, whole_turn
from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.ids import EventId, Seq, TenantId, ThreadId
from threadlog.ports.notify import Advanced, Frame, LiveDelta
from threadlog.ports.usage import UsageTotals
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
    ThreadStatus,
    Views,
)
from threadlog.queries.reading import Reader, _with_silences

DEADLINE_S = 5.0
LOOK_S = 0.005
MESSAGE = EventId(event_id("message"))


class GrowingViews:
    """Views of one thread that shows as many events of a turn as the test says."""

    def __init__(self) -> None:
        self.turn = whole_turn()
        self.shown = 3
        self.looks = 0

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow:
        self.looks += 1
        status: ThreadStatus = "idle" if self.shown == len(self.turn) else "open"
        head = Seq(self.shown - 1)
        position = self.turn[self.shown - 1].position
        row = (tenant, thread, "", status, head, position, 1, None, 0, None, None)
        return ThreadRow(*row, usage=UsageTotals(), created_at="", updated_at="")

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        self.looks += 1
        return self.turn[first : self.shown][:limit]


class LossyNotify(MemoryNotify):
    """Drops every frame."""

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        pass


def reader(views: GrowingViews, notify: MemoryNotify, look_s: float | None = LOOK_S) -> Reader:
    return Reader(cast(Views, views), MemoryBlobs(), notify, LOCAL, look_s=look_s)


async def grow(views: GrowingViews, notify: MemoryNotify) -> None:
    """One event at a time, each told."""
    while views.shown < len(views.turn):
        looks = views.looks
        async with asyncio.timeout(DEADLINE_S):
            while views.looks == looks:
                await asyncio.sleep(0)
        views.shown += 1
        is_idle = views.shown == len(views.turn)
        notify.publish(LOCAL, thread_id(), Advanced(Seq(views.shown - 1), None, is_idle))


async def test_a_result_comes_although_every_frame_was_lost() -> None:
    views, notify = GrowingViews(), LossyNotify()
    growing = asyncio.create_task(grow(views, notify))
    async with asyncio.timeout(DEADLINE_S):
        result = await reader(views, notify).turn_result(thread_id(), MESSAGE, 2)
    await growing
    assert (result.turn_id, result.verdict, result.answer) == (TURN, "completed", "Done.")


async def test_a_follower_sees_every_event_once_although_every_frame_was_lost() -> None:
    views, notify = GrowingViews(), LossyNotify()
    growing = asyncio.create_task(grow(views, notify))
    seen = await followed(reader(views, notify), len(views.turn))
    await growing
    assert seen == list(range(18))


async def followed(reading: Reader, count: int) -> list[int | str]:
    """Seqs of events and texts of deltas, until the event number `count` came."""
    seen: list[int | str] = []
    following = cast(AsyncGenerator[StoredEvent | LiveDelta], reading.follow(thread_id()))
    async with asyncio.timeout(DEADLINE_S):
        async for found in following:
            seen.append(found.text if isinstance(found, LiveDelta) else cast(int, found.seq))
            if isinstance(found, StoredEvent) and found.seq == count - 1:
                break
    await following.aclose()
    return seen


@pytest.mark.parametrize("look_s", [None, LOOK_S, 0.0])
async def test_frames_that_come_are_neither_lost_nor_doubled(look_s: float | None) -> None:
    """Also when each comes about when a silence ends."""
    views, notify = GrowingViews(), MemoryNotify()
    listening = reader(views, notify, look_s)
    deltas = [str(n) for n in range(200)]

    async def told() -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not views.looks:
                await asyncio.sleep(0)
        for n, text in enumerate(deltas):
            notify.publish(LOCAL, thread_id(), LiveDelta(TURN, 1, 1, n, "text", text))
            if n % 20 == 0:
                await asyncio.sleep(look_s or 0)
        views.shown = len(views.turn)
        notify.publish(LOCAL, thread_id(), Advanced(Seq(17), None, True))

    telling = asyncio.create_task(told())
    seen = await followed(listening, len(views.turn))
    await telling
    assert [s for s in seen if isinstance(s, int)] == list(range(18))
    texts = [s for s in seen if isinstance(s, str)]
    # A look by itself may show the last event before the frames that came before it were heard.
    assert texts == deltas[: len(texts)]
    if look_s is None:
        assert texts == deltas


async def test_without_frames_that_may_be_lost_nobody_looks_by_itself() -> None:
    views, notify = GrowingViews(), MemoryNotify()
    waiting = asyncio.create_task(reader(views, notify, None).turn_result(thread_id(), MESSAGE, 2))
    async with asyncio.timeout(DEADLINE_S):
        while not views.looks:
            await asyncio.sleep(0)
    looks = views.looks
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert views.looks == looks
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


# -- the silences themselves


class Source:
    """Frames as the test puts them; `waits`: somebody waits for one; `ended`: nobody ever will."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.waits = 0
        self.was_cancelled = False

    async def stream(self) -> AsyncIterator[Frame]:
        while True:
            self.waits += 1
            try:
                frame = await self.frames.get()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
            if frame is None:
                return
            yield frame


def moved(n: int) -> Advanced:
    return Advanced(Seq(n), None, False)


async def test_a_silence_leaves_the_wait_for_the_next_frame_as_it_is() -> None:
    source = Source()
    stream = _with_silences(source.stream(), 0.001)
    assert [await anext(stream) for _ in range(3)] == [None] * 3
    assert source.waits == 1, "one wait for all of them"
    source.frames.put_nowait(moved(1))
    assert await anext(stream) == moved(1)
    for n in range(2, 5):
        source.frames.put_nowait(moved(n))
    got = [f for f in [await anext(stream) for _ in range(3)] if f is not None]
    assert got == [moved(2), moved(3), moved(4)]


async def test_it_ends_when_the_frames_end() -> None:
    source = Source()
    source.frames.put_nowait(moved(1))
    source.frames.put_nowait(None)
    async with asyncio.timeout(DEADLINE_S):
        assert [f async for f in _with_silences(source.stream(), 1.0)] == [moved(1)]


async def test_closing_it_ends_the_wait() -> None:
    before = asyncio.all_tasks()
    source = Source()
    stream = cast(AsyncGenerator[Frame | None], _with_silences(source.stream(), 0.001))
    assert await anext(stream) is None
    await stream.aclose()
    await _ended(before)
    assert source.was_cancelled


async def test_closing_a_follower_or_cancelling_a_wait_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    views, notify = GrowingViews(), LossyNotify()
    following = cast(
        AsyncGenerator[StoredEvent | LiveDelta], reader(views, notify).follow(thread_id())
    )
    assert [(await anext(following)) for _ in range(3)]
    coming = asyncio.ensure_future(anext(following))
    for _ in range(5):
        await asyncio.sleep(LOOK_S)
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    await following.aclose()
    waiting = asyncio.create_task(reader(views, notify).turn_result(thread_id(), MESSAGE, 2))
    await asyncio.sleep(LOOK_S)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    del following, coming, waiting
    await _ended(before)


async def _ended(before: set["asyncio.Task[None]"]) -> None:
    """No task is left that was not there before."""
    gc.collect()
    async with asyncio.timeout(DEADLINE_S):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0)
