"""A thread that an error of ours stops in one process: its claims are closed, others go on."""

import asyncio
from typing import Any, Literal, NoReturn

import pytest

from tests.helpers.events import thread_id
from tests.helpers.fakes import Fault, FaultyLog, StepModel, StepTools
from tests.helpers.handover import START, Kind, Scene, finish, scene, was_ended
from tests.helpers.service_world import World
from tests.helpers.shared_world import P0, SharedWorld, hasten
from tests.helpers.thread_events import (
    created,
    requested,
    responded,
    step_started,
    turn_started,
)
from threadlog.events.step import ModelAttemptFailed
from threadlog.events.tool import ToolFinished
from threadlog.ids import Position
from threadlog.runtime.acting import Plan
from threadlog.runtime.actor import Actor
from threadlog.runtime.lanes import Lane

KINDS = pytest.mark.parametrize("kind", ["model", "call"])
Trouble = Literal["plan", "judge"]
TROUBLES = pytest.mark.parametrize("trouble", ["plan", "judge"])


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def fails(*_: object) -> NoReturn:
    raise KeyError("a bug of ours")


def break_down(actor: Actor[Any], trouble: Trouble) -> None:
    """The next record of any thread stops it in this process."""
    if trouble == "judge":
        actor.worker._folding.judge = fails  # type: ignore[method-assign,assignment]  # for this test
    else:
        actor.concerns = lambda state: True  # type: ignore[method-assign]  # it is asked
        actor.plan = fails  # type: ignore[method-assign,assignment]  # for this test


def old_actor(play: Scene) -> Actor[Any]:
    return play.old.service().actor


def lane_of(play: Scene) -> Lane[Any]:
    lane = old_actor(play).worker.lanes.get(f"local/{play.thread}")
    assert lane is not None
    return lane


async def touched(play: Scene) -> None:
    """A record of the thread that changes nothing: it is void."""
    await play.world.log.append([created()(play.world.state(play.thread))])


def accepted(play: Scene) -> list[str]:
    return [event for event in play.told() if "!" not in event]


async def stopped(play: Scene) -> None:
    await play.world.until(lambda: old_actor(play).worker.broken == {play.thread})


async def goes_on_elsewhere(play: Scene, outcome: str) -> None:
    """The other process has the partition now, and the thread moves there as it should."""
    await play.world.until(lambda: not old_actor(play).is_busy)
    await play.given()
    if outcome == "released":
        finish(await play.begun(1))
    if play.kind == "model":
        await play.world.until(lambda: "turn.finished" in play.told())
        verdict = "completed" if outcome == "released" else "error"
        assert play.world.state(play.thread).verdict == verdict
    else:
        await play.world.until(lambda: play.world.bodies(ToolFinished))
        [finished] = play.world.bodies(ToolFinished)
        expected = ("ok", None) if outcome == "released" else ("unknown", "internal")
        assert (finished.outcome, finished.reason) == expected
    await play.world.quiet()
    assert play.new.state(play.thread) in (None, play.world.state(play.thread)), "None: it is idle"
    await play.world.until(lambda: not old_actor(play).is_busy)
    assert old_actor(play).worker.has_ended, "it reads no more"


# -- what was not begun


@KINDS
@TROUBLES
async def test_a_claim_that_was_not_read_back_is_released(kind: Kind, trouble: Trouble) -> None:
    """`judge`: at a record before it. `plan`: right after it came back, before it began."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        log = play.old.logs[P0]
        log.faults.append("slow")
        await play.wanted()
        await world.until(lambda: log.asked)
        log.hold()
        await touched(play)
        log.hurry()
        await world.until(lambda: len(play.claims()) == 1 and not lane_of(play).own.sending)
        break_down(old_actor(play), trouble)
        log.let_go()
        await stopped(play)
        await world.until(play.releases)
        assert play.releases() == [("writer", "stopping")]
        await goes_on_elsewhere(play, "released")
        assert play.started() == (0, 1)
        assert play.claims() == [("w1", 1), ("w2", 2)]


@KINDS
@pytest.mark.parametrize("fault", ["slow", "unsaid", "slowly_late", "slowly_lost"])
async def test_a_claim_whose_append_is_under_way_is_released_and_never_starts(
    kind: Kind, fault: Fault
) -> None:
    """A request's claim goes with its turn's start, without which the release would be void."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        log = play.old.logs[P0]
        log.faults.append(fault)
        await play.wanted()
        await world.until(lambda: log.asked)
        break_down(old_actor(play), "judge")
        await touched(play)
        await stopped(play)
        await world.quiet()
        assert old_actor(play).is_busy, "what is on its way is waited for"
        log.hurry()
        await world.until(play.releases)
        await log.deliver_late()
        await world.until(lambda: not old_actor(play).is_busy)
        await goes_on_elsewhere(play, "released")
        assert play.started() == (0, 1)


def _breaks_when_it_has_planned(actor: Actor[Any]) -> None:
    """The first lane that plans a claim breaks right before that is sent."""
    plan, broken = actor.plan, list[object]()

    def planned(lane: Lane[Any]) -> Plan:
        found = plan(lane)
        if found.claims and not broken:
            broken.append(lane)
            asyncio.get_running_loop().call_soon(actor.worker.break_lane, lane)
        return found

    actor.plan = planned  # type: ignore[method-assign]  # for this test


@KINDS
async def test_a_claim_that_is_about_to_be_sent_is_not_sent(kind: Kind) -> None:
    """The lane breaks between its plan and the append."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        actor = old_actor(play)
        _breaks_when_it_has_planned(actor)
        await play.wanted()
        await stopped(play)
        await world.quiet()
        assert not play.claims(), "nobody would close it"
        assert not actor.is_busy
        await goes_on_elsewhere(play, "released")
        assert play.started() == (0, 1)


# -- what runs


@KINDS
@TROUBLES
async def test_what_runs_is_stopped_and_its_end_is_on_record_before_anybody_goes_on(
    kind: Kind, trouble: Trouble
) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        effects = play.models[0] if kind == "model" else play.tools[0]
        await play.wanted()
        running = await play.begun()
        await world.until(lambda: not lane_of(play).own.sending)
        effects.may_end.clear()
        log = play.old.logs[P0]
        log.faults.append("slow")
        told = play.told()
        break_down(old_actor(play), trouble)
        await touched(play)
        await stopped(play)
        await world.until(lambda: was_ended(running))
        await world.quiet()
        assert log.faults, "nothing is said of what still runs"
        assert old_actor(play).is_busy
        effects.may_end.set()
        await world.until(lambda: not log.faults)
        await world.quiet()
        assert old_actor(play).is_busy, "its outcome is on its way"
        assert accepted(play) == told
        log.hurry()
        closing = "model.attempt_failed" if kind == "model" else "tool.finished"
        await world.until(lambda: accepted(play) == [*told, closing])
        if kind == "model":
            [failed] = world.bodies(ModelAttemptFailed)
            assert (failed.error_class, failed.retryable) == ("internal", False)
        else:
            assert world.bodies(ToolFinished)[0].by == "writer"
        await goes_on_elsewhere(play, "closed")
        assert play.started() == (1, 0)


@KINDS
async def test_a_partition_that_goes_while_a_lane_breaks_is_read_on_until_its_claim_is_closed(
    kind: Kind,
) -> None:
    """It breaks while the partition is let go, without a round of the loop in between."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        await play.begun()
        actor = old_actor(play)
        let_go = actor.let_go

        async def breaking() -> Position:
            actor.worker.break_lane(lane_of(play))
            assert actor.is_busy, "at once"
            return await let_go()

        actor.let_go = breaking  # type: ignore[method-assign]  # for this test
        await play.given()
        await world.until(lambda: len(play.told()) > 1)
        await goes_on_elsewhere(play, "closed")
        assert play.started() == (1, 0)


@KINDS
async def test_a_drain_waits_until_what_a_stopped_lane_held_is_on_record(kind: Kind) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        await play.begun()
        log = play.old.logs[P0]
        log.faults += ["lost", "slow"]
        old_actor(play).worker.break_lane(lane_of(play))
        draining = asyncio.create_task(play.old.service().drain(10_000))
        await world.until(lambda: not log.faults)
        await world.quiet()
        assert not draining.done()
        log.hurry()
        async with asyncio.timeout(5):
            await draining
        assert len(play.told()) == 2


# -- slots


async def test_a_slot_of_a_stopped_thread_is_given_back_once() -> None:
    """Twice, and more would run than may: an append that no log takes hands its claims back."""
    tools = StepTools()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.tool_runner(tools, log=log, slots=1) as runner:
            log.faults.append("slow")
            wanted = (turn_started(), step_started("p0"), responded(calls=1), requested(0))
            await world.go(*START, *wanted)
            await world.until(lambda: log.asked)
            lane = runner.worker.lanes.get(f"local/{world.state().thread_id}")
            assert lane is not None
            claim = next(iter(lane.own.table.claims.values()))
            runner.worker.break_lane(lane)
            runner._forget(lane, claim)
            assert runner._slots._free == 1


async def test_a_slot_of_a_claim_that_was_never_sent_is_free_for_the_next_thread() -> None:
    tools, other = StepTools(), thread_id(1)
    async with World() as world, world.tool_runner(tools, slots=1) as runner:
        _breaks_when_it_has_planned(runner)
        wanted = (turn_started(), step_started("p0"), responded(calls=1), requested(0))
        await world.go(*START, *wanted)
        await world.until(lambda: runner.worker.broken)
        await world.go(*START, *wanted, thread=other)
        assert (await tools.started()).workspace.thread_id == other


async def test_neighbours_of_a_stopped_thread_go_on_in_the_same_process() -> None:
    model = StepModel()
    async with SharedWorld() as world:
        one, other = world.thread(0, 0), world.thread(0, 1)
        process = await world.planner("p1", model)
        await world.ready(process)
        await world.go(*START, thread=one)
        await model.asked()
        actor = process.service().actor
        lane = actor.worker.lanes.get(f"local/{one}")
        assert lane is not None
        actor.worker.break_lane(lane)
        await world.go(created(), *START[1:], thread=other)
        finish(await model.asked())
        await world.until(lambda: world.state(other).verdict == "completed")
        await world.until(lambda: world.bodies(ModelAttemptFailed, one))
        point = process.service()
        await world.until(lambda: point.commit_point == len(world.log.logs[0].entries))
