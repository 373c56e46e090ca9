"""A process and its partitions: who serves which, from when on, and what is committed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import pytest

from tests.helpers.fakes import StepModel, StepTools, cli, reply
from tests.helpers.shared_log import RemoteViews
from tests.helpers.shared_world import P0, Process, SharedWorld, hasten
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    configured,
    created,
    message,
    requested,
    responded,
    step_started,
    turn_started,
)
from threadlog.errors import CorruptError, TransientError
from threadlog.events.step import StepStarted
from threadlog.events.tool import ToolFinished, ToolStarted
from threadlog.events.turn import TurnFinished
from threadlog.ids import Partition, Position, ThreadId
from threadlog.ports.log import Record
from threadlog.ports.views import OpenThreads
from threadlog.runtime.assignment import Assignment

START: tuple[Maker, ...] = (created(), configured(model=MODEL), message())
P1 = Partition(1)


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def carried(model: StepModel, tools: StepTools) -> None:
    """Every open request and command ends: a step with a call, then the last one."""
    for exchange in model.sent:
        if not exchange.outcome.done() and not exchange.was_stopped:
            exchange.answer(reply("done") if b"fine" in exchange.body else reply("", cli("make")))
    for run in tools.runs:
        if not run.outcome.done() and not run.was_killed:
            run.finish()


def ended(world: SharedWorld, *threads: ThreadId) -> bool:
    return all(world.state(t).verdict == "completed" and not world.state(t).turn for t in threads)


async def test_two_processes_share_the_partitions_and_what_one_leaves_the_other_serves() -> None:
    model, tools = StepModel(), StepTools()
    async with SharedWorld(4) as world:
        threads = [world.thread(p, n) for p in range(4) for n in range(3)]
        processes = [await world.planner(name, model) for name in ("p1", "p2")]
        runners = [await world.tool_runner(name, tools) for name in ("t1", "t2")]
        assert [len(p.assignment.services) for p in processes + runners] == [2, 2, 2, 2]
        for thread in threads:
            await world.go(*START, thread=thread)

        def all_ended() -> bool:
            carried(model, tools)
            return ended(world, *threads)

        await world.until(all_ended)
        await world.until(lambda: len(world.groups["planner"].committed) == 4)
        claims = [e for e, j in world.judged if j.void is None and isinstance(e.body, StepStarted)]
        claimed = {claim.worker for claim in claims}
        assert claimed == {"p1", "p2"}, "both had a share"
        await world.stop(processes[0])
        await world.stop(runners[1])
        assert [len(p.assignment.services) for p in processes + runners] == [0, 4, 4, 0]
        for thread in threads:
            await world.go(message(), thread=thread)
        await world.until(lambda: all_ended() and len(world.bodies(TurnFinished)) == 24)
        assert len(model.sent) == len(world.bodies(StepStarted)) == 36, "each step once"
        assert len(tools.runs) == len({r.call.call_id for r in tools.runs}) == 12
        assert all(f.outcome == "ok" for f in world.bodies(ToolFinished))


async def test_a_record_is_not_committed_before_what_it_causes_is_acknowledged() -> None:
    model = StepModel()
    async with SharedWorld() as world:
        thread, group = world.thread(), world.groups["planner"]
        process = await world.planner("p1", model)
        await world.go(created(), configured(model=MODEL), thread=thread)
        await world.until(lambda: group.committed.get(P0) == 2)
        log = process.logs[P0]
        log.faults.append("slow")
        await world.go(message(), thread=thread)
        await world.until(lambda: log.asked)
        await world.go(created(), thread=world.thread(0, 1))
        await _some_commits(world)
        assert group.committed[P0] == 2, "the message caused a turn that is not in the log"
        log.hurry()
        await model.asked()
        await world.until(lambda: group.committed[P0] == end_of(world))


def end_of(world: SharedWorld) -> Position:
    return Position(len(world.log.logs[0].entries))


async def _some_commits(world: SharedWorld) -> None:
    """Time for several commits, had anything moved."""
    for _ in range(20):
        await asyncio.sleep(0.002)
    await world.quiet()


# -- beginning


async def test_nothing_is_done_before_the_views_have_passed_what_was_committed() -> None:
    model = StepModel()
    async with SharedWorld() as world:
        thread, views = world.thread(), world.parts[0]
        await world.go(created(), configured(model=MODEL), thread=thread)
        await world.caught_up()
        views.moving.clear()
        await world.go(message(), thread=thread)
        world.groups["planner"].committed[P0] = Position(3)
        process = await world.planner("p1", model)
        await world.quiet()
        assert not process.assignment.is_ready
        assert world.told(thread)[-1] == "message.received", "it would decide on half a thread"
        assert process.service().commit_point is None
        views.moving.set()
        await world.until(lambda: process.assignment.is_ready)
        await model.asked()


class EmptiedViews:
    """Views that are emptied right before open threads are first told, and stay so for now."""

    def __init__(self, views: RemoteViews) -> None:
        self._views = views
        self.looks = 0

    async def wait(self, position: Position) -> None:
        await self._views.wait(position)

    async def open_threads(self) -> OpenThreads:
        self.looks += 1
        if self.looks == 1:
            self._views.moving.clear()
            self._views.restore()
        return await self._views.open_threads()


async def test_it_waits_again_when_the_views_were_emptied_while_it_began() -> None:
    """Otherwise open threads would be sought where there are none, and their turns rest."""
    model = StepModel()
    async with SharedWorld() as world:
        await world.go(*START, thread=world.thread())
        await world.caught_up()
        world.groups["planner"].committed[P0] = Position(3)
        world.begun_with[0] = emptied = EmptiedViews(world.parts[0])
        process = await world.planner("p1", model)
        await world.until(lambda: emptied.looks)
        await world.quiet()
        assert not process.assignment.is_ready
        assert not model.sent
        world.parts[0].moving.set()
        await model.asked()
        assert emptied.looks > 1


async def test_open_threads_go_on_although_no_record_of_theirs_comes() -> None:
    """What an earlier owner began lies before the point where this one begins to read."""
    tools, model = StepTools(), StepModel()
    async with SharedWorld() as world:
        one, other, idle = (world.thread(0, n) for n in range(3))
        open_turn = (*START, turn_started(), step_started("p0"))
        await world.go(*open_turn, responded(calls=1), requested(0), thread=one)
        await world.go(*START, thread=other)
        await world.go(created(), thread=idle)
        await world.caught_up()
        world.groups["planner"].committed[P0] = end_of(world)
        process = await world.planner("p1", model)
        runner = await world.tool_runner("t1", tools)
        await model.asked()
        await tools.started()
        assert process.state(idle) is None, "only those that are open"
        assert runner.state(one) == world.state(one)


async def test_views_that_cannot_be_reached_are_asked_until_they_can() -> None:
    model = StepModel()
    async with SharedWorld() as world:
        await world.go(*START, thread=world.thread())
        await world.caught_up()
        fails = ["wait", "open_threads"]
        for name in fails:
            _failing_once(world.parts[0], name, fails)
        await world.planner("p1", model)
        await model.asked()
        assert not fails


def _failing_once(port: object, name: str, fails: list[str]) -> None:
    inner: Callable[..., object] = getattr(port, name)

    async def failing(*arguments: object) -> object:
        if name in fails:
            fails.remove(name)
            raise TransientError("no answer")
        return await inner(*arguments)  # type: ignore[misc]  # a coroutine function

    setattr(port, name, failing)


# -- ending


async def test_a_service_that_fails_is_what_the_assignment_tells() -> None:
    async with SharedWorld() as world:
        process = await world.planner("p1", StepModel())
        telling = asyncio.create_task(process.assignment.failed())
        await world.quiet()
        assert not telling.done()
        broken = CorruptError("the log was cut")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(process.logs[P0]), "subscribe", _raising(broken))
            await world.groups["planner"].move(P0, None)
            await world.groups["planner"].move(P0, "p1")
            async with asyncio.timeout(5):
                assert await telling is broken


def _raising(error: Exception) -> Callable[[object, Position], AsyncIterator[Sequence[Record]]]:
    """What stands in for `subscribe`."""

    async def subscribe(self: object, after: Position) -> AsyncIterator[Sequence[Record]]:
        if after >= 0:
            raise error
        yield []

    return subscribe


async def test_a_membership_that_has_ended_is_what_the_assignment_tells() -> None:
    async with SharedWorld() as world:
        group = world.groups["planner"].member("p1")
        assignment = Assignment("p1", group, lambda partition: pytest.fail("none comes"))
        world.groups["planner"].deals_on_join = False
        await assignment.start()
        group.fail(CorruptError("thrown out"))
        async with asyncio.timeout(5):
            assert str(await assignment.failed()) == "thrown out"


@pytest.mark.parametrize("kind", ["model", "call"])
async def test_P5_a_process_that_stops_gives_its_partitions_away_and_then_finishes(
    kind: str,
) -> None:
    """The next owner serves while the call still runs: nothing waits for the drain."""
    world, process, other, thread, finish = await _running(kind)
    async with world:
        stopping = asyncio.create_task(world.stop(process))
        await world.until(lambda: process.group.owners[P0] == other.name)
        await world.until(lambda: other.assignment.is_ready)
        await world.quiet()
        assert not stopping.done(), "what runs may end"
        assert process.assignment.followed == {P0}
        finish()
        async with asyncio.timeout(5):
            await stopping
        assert not process.assignment.followed
        assert process.service().actor.worker.has_ended
        await world.quiet()
        told = world.told(thread)
        assert not [t for t in told if "released" in t or "!" in t], told
        assert _last(told, kind) == ("model.responded" if kind == "model" else "tool.finished")


@pytest.mark.parametrize("kind", ["model", "call"])
async def test_P5_what_outlives_the_drain_is_cut_off_and_that_is_on_record(kind: str) -> None:
    world, process, _, thread, _ = await _running(kind)
    async with world:
        async with asyncio.timeout(5):
            await world.stop(process, drain_ms=0)
        await world.quiet()
        told = world.told(thread)
        if kind == "model":
            assert _last(told, kind) == "model.attempt_failed"
        else:
            [finished] = world.bodies(ToolFinished)
            assert (finished.outcome, finished.reason) == ("unknown", "shutdown")
            assert finished.by == "writer"


async def test_a_process_that_follows_many_partitions_stops_in_order() -> None:
    """Followers end by themselves at the same moment; neither hinders the other."""
    tools = StepTools()
    async with SharedWorld(4) as world:
        runner = await world.tool_runner("t1", tools)
        for partition in range(4):
            await world.go(*CALL, thread=world.thread(partition))
        await world.until(lambda: len(tools.runs) == 4)
        for partition in range(4):
            await world.groups["tool_runner"].move(Partition(partition), None)
        assert len(runner.assignment.followed) == 4
        stopping = asyncio.create_task(world.stop(runner))
        await world.quiet()
        for run in tools.runs:
            run.finish()
        async with asyncio.timeout(5):
            await stopping
        assert all(owned.actor.worker.has_ended for _, owned in runner.made)
        assert len(world.bodies(ToolFinished)) == 4


CALL: tuple[Maker, ...] = (
    *START,
    turn_started(),
    step_started("p0"),
    responded(calls=1),
    requested(0),
)


def _last(told: list[str], kind: str) -> str:
    family = "model." if kind == "model" else "tool."
    return [t for t in told if t.startswith(family)][-1]


async def _running(
    kind: str,
) -> tuple[SharedWorld, Process, Process, ThreadId, Callable[[], None]]:
    """A process that runs a request or a command, and one that has nothing to do yet."""
    world = await SharedWorld().__aenter__()
    thread = world.thread()
    if kind == "model":
        model = StepModel()
        process = await world.planner("p1", model)
        other = await world.planner("p2", StepModel())
        await world.go(*START, thread=thread)
        exchange = await model.asked()
        return world, process, other, thread, lambda: exchange.answer(reply("done"))
    tools = StepTools()
    process = await world.tool_runner("t1", tools)
    other = await world.tool_runner("t2", StepTools())
    await world.go(*CALL, thread=thread)
    run = await tools.started()
    return world, process, other, thread, run.finish


# -- slots


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_the_slots_of_a_process_are_shared_over_its_partitions(*, is_revoked: bool) -> None:
    tools = StepTools()
    async with SharedWorld(3) as world:
        threads = [world.thread(p, n) for p in range(3) for n in range(2)]
        await world.tool_runner("t1", tools, slots=2)
        for thread in threads:
            await world.go(*CALL, thread=thread)
        await world.until(lambda: len(tools.runs) == 2)
        await world.quiet()
        assert len(world.bodies(ToolStarted)) == 2, "who has no slot does not claim"
        waiting = next(p for p in (P0, P1) if not _runs_on(world, tools, p))
        if is_revoked:
            await world.groups["tool_runner"].move(waiting, None)
        for ends in range(1, 7):
            if is_revoked and ends == 5:
                assert len(world.bodies(ToolStarted)) == 4, "the others' calls went on"
                await world.groups["tool_runner"].move(waiting, "t1")
            await world.until(partial(_has_run, tools, ends))
            assert sum(not run.outcome.done() for run in tools.runs) <= 2
            tools.runs[ends - 1].finish()
        await world.until(lambda: len(world.bodies(ToolFinished)) == 6)
        assert {f.outcome for f in world.bodies(ToolFinished)} == {"ok"}


def _has_run(tools: StepTools, calls: int) -> bool:
    return len(tools.runs) >= calls


def _runs_on(world: SharedWorld, tools: StepTools, partition: Partition) -> bool:
    running = {run.workspace.thread_id for run in tools.runs}
    return any(world.thread(partition, n) in running for n in range(2))
