"""Two workers on one thread at once: log order decides, and every reader agrees."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.helpers.embedded import InstantTools
from tests.helpers.events import LOCAL, thread_id
from tests.helpers.fakes import StepModel, cli, reply
from tests.helpers.service_world import World
from tests.helpers.thread_events import MODEL, configured, created, message
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.ids import NO_POSITION, Seq
from threadlog.ports.log import Log, Record
from threadlog.thread.fold import judge
from threadlog.thread.snapshot import decode_state, encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState

START = (created(), configured(model=MODEL), message())
Verdicts = list[tuple[Seq | None, str | None]]


@asynccontextmanager
async def a_log(backend: str, folder: Path) -> AsyncIterator[Log]:
    if backend == "memory":
        yield MemoryLog()
        return
    async with opened(folder / "log.db") as file:
        yield SqliteLog(file)


async def records(log: Log) -> list[Record]:
    """Everything that is in the log."""
    end, found = await log.end(), list[Record]()
    async for batch in log.subscribe(NO_POSITION):
        found += batch
        if batch[-1].position >= end:
            break
    return found


def verdicts(found: list[Record], state: ThreadState) -> Verdicts:
    """Seq or reason of each record, as a reader with this state judges them."""
    judged: Verdicts = []
    for record in found:
        assert record.event is not None
        judgement = judge(state, record.event)
        state = judgement.state
        judged.append((judgement.seq, judgement.void))
    return judged


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_F29_of_two_workers_the_losers_events_are_void_for_every_reader(
    backend: str, tmp_path: Path
) -> None:
    """Two planners and two tool-runners that both believe the thread is theirs."""
    models = StepModel(), StepModel()
    tools = InstantTools()
    async with a_log(backend, tmp_path) as log, World() as world, AsyncExitStack() as running:
        for name, model in zip("12", models, strict=True):
            await running.enter_async_context(world.planner(model, f"p{name}", log))
            await running.enter_async_context(world.tool_runner(tools, f"t{name}", log))
        state = ThreadState(LOCAL, thread_id())
        events = []
        for maker in START:
            events.append(maker(state))
            state = judge(state, events[-1]).state
        await log.append(events)
        asked = 0
        async with asyncio.timeout(10):
            while state.verdict is None:
                for exchange in [e for m in models for e in m.sent if not e.outcome.done()]:
                    asked += 1
                    exchange.answer(reply("", cli("make")) if asked == 1 else reply("done"))
                await asyncio.sleep(0.001)
                state = ThreadState(LOCAL, thread_id())
                for record in await records(log):
                    assert record.event is not None
                    state = judge(state, record.event).state
    found = await records_of(log, backend, tmp_path)
    judged = verdicts(found, ThreadState(LOCAL, thread_id()))
    assert state.verdict == "completed"
    assert [seq for seq, _ in judged if seq is not None] == list(range(state.head + 1))
    voids = {void for _, void in judged if void is not None}
    assert voids, "both tried, or this proves nothing"
    sent = sum(len(model.sent) for model in models)
    assert sent == asked == 2, "each step was asked once, by the winner; the loser began nothing"
    assert len(tools.effects) == len(set(tools.effects)) == 1
    # A reader that starts anywhere, from a snapshot, judges what follows alike.
    state = ThreadState(LOCAL, thread_id())
    for n, record in enumerate(found):
        encoded = encode_state(state)
        restored = decode_state(encoded, FOLD_VERSION, state_hash(encoded))
        assert verdicts(found[n:], restored) == judged[n:]
        assert record.event is not None
        state = judge(state, record.event).state


async def records_of(log: Log, backend: str, folder: Path) -> list[Record]:
    """The same from the file, opened again."""
    if backend == "memory":
        return await records(log)
    async with opened(folder / "log.db") as file:
        return await records(SqliteLog(file))
