"""A process that only reads the file follows a thread while another one writes it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.helpers.events import LOCAL, OTHER, thread_id
from tests.helpers.thread_events import (
    MODEL,
    configured,
    created,
    message,
    responded,
    step_finished,
    step_started,
    turn_finished,
    turn_started,
)
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.sqlite.file import SqliteFile, open_read_only
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.moves import FileNotify
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.ids import ThreadId
from threadlog.ports.notify import Advanced, Frame
from threadlog.projection.service import Projection, ProjectionPorts
from threadlog.runtime.load import Loader
from threadlog.runtime.shared_fold import SharedFold
from threadlog.thread.fold import judge
from threadlog.thread.state import ThreadState

TURN = (message(), turn_started(), step_started(), responded(), step_finished(), turn_finished())
DEADLINE_S = 10.0


class Written:
    """The file as its one writer has it: log and projection."""

    def __init__(self, file: SqliteFile) -> None:
        self.log = SqliteLog(file)
        self.views = SqliteViews(file)
        self.states: dict[ThreadId, ThreadState] = {}

    async def go(self, *makers, thread: ThreadId) -> ThreadState:  # type: ignore[no-untyped-def]  # makers
        state = self.states.get(thread, ThreadState(LOCAL, thread))
        for maker in makers:
            event = maker(state)
            await self.log.append([event])
            state = judge(state, event).state
        self.states[thread] = state
        async with asyncio.timeout(DEADLINE_S):
            await self.views.wait(await self.log.end())
        return state


@contextlib.asynccontextmanager
async def written(path: Path) -> AsyncIterator[Written]:
    async with opened(path) as file:
        made = Written(file)
        loader = Loader(made.views, SqliteSnapshots(file))
        ports = ProjectionPorts(made.log, made.views, loader, MemoryNotify(), SharedFold())
        projecting = asyncio.create_task(Projection(ports).run())
        try:
            yield made
        finally:
            projecting.cancel()
            await asyncio.gather(projecting, return_exceptions=True)


async def next_frame(frames: AsyncIterator[Frame]) -> Frame:
    async with asyncio.timeout(DEADLINE_S):
        return await anext(frames)


async def until_head(frames: AsyncIterator[Frame], state: ThreadState) -> Advanced:
    """The frame that tells of the thread's head; those before are of its past."""
    heads = []
    while True:
        frame = await next_frame(frames)
        assert isinstance(frame, Advanced)
        heads.append(frame.head)
        assert heads == sorted(heads)
        if frame.head == state.head:
            return frame


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[tuple[Written, FileNotify]]:
    """The writer, and a reader with a connection of its own."""
    async with written(tmp_path / "log.db") as made:
        file = await open_read_only(tmp_path / "log.db")
        try:
            yield made, FileNotify(SqliteViews(file))
        finally:
            await file.close()


async def test_a_reader_hears_where_a_thread_is_and_each_time_it_has_moved(
    reader: tuple[Written, FileNotify],
) -> None:
    made, notify = reader
    thread = thread_id()
    state = await made.go(created(), configured(model=MODEL), thread=thread)
    frames = notify.listen(LOCAL, thread)
    assert await next_frame(frames) == Advanced(state.head, None, is_idle=True)
    state = await made.go(*TURN[:3], thread=thread)
    assert state.turn is not None
    seen = await until_head(frames, state)
    assert seen == Advanced(state.head, state.turn.turn_id, is_idle=False)
    state = await made.go(*TURN[3:], thread=thread)
    assert await until_head(frames, state) == Advanced(state.head, None, is_idle=True)
    await frames.aclose()  # type: ignore[attr-defined]  # an asynchronous generator


async def test_a_reader_of_a_thread_that_is_not_there_yet_waits_for_it(
    reader: tuple[Written, FileNotify],
) -> None:
    made, notify = reader
    frames = notify.listen(LOCAL, thread_id(1))
    waiting = asyncio.ensure_future(next_frame(frames))
    await made.go(created(), thread=thread_id(0))
    foreign = asyncio.ensure_future(anext(notify.listen(OTHER, thread_id(1))))
    state = await made.go(created(), thread=thread_id(1))
    assert await waiting == Advanced(state.head, None, is_idle=True)
    await made.go(configured(model=MODEL), thread=thread_id(1))
    await until_head(frames, made.states[thread_id(1)])
    assert not foreign.done(), "another tenant hears nothing of it"
    foreign.cancel()
    await asyncio.gather(foreign, return_exceptions=True)
    await frames.aclose()  # type: ignore[attr-defined]  # an asynchronous generator


async def test_nothing_is_told_while_nothing_moves(reader: tuple[Written, FileNotify]) -> None:
    made, notify = reader
    await made.go(created(), thread=thread_id())
    frames = notify.listen(LOCAL, thread_id())
    await next_frame(frames)
    waiting = asyncio.ensure_future(anext(frames))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    notify.publish(LOCAL, thread_id(), Advanced(made.states[thread_id()].head, None, is_idle=True))
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert not done, "a reader has nothing to tell"
    state = await made.go(configured(model=MODEL), thread=thread_id())
    assert await waiting == Advanced(state.head, None, is_idle=True)
    await frames.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
