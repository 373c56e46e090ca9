"""Partitions change hands while something runs: nothing is settled, repeated or forgotten."""

import asyncio
from typing import Any

import pytest

from tests.helpers.fakes import StepTools
from tests.helpers.handover import START, Kind, finish, scene, was_ended
from tests.helpers.shared_world import P0, SharedWorld, hasten
from tests.helpers.thread_events import (
    MODEL,
    cancel,
    configured,
    created,
    requested,
    responded,
    step_started,
    turn_started,
)
from threadlog.events.step import ModelResponded
from threadlog.events.tool import Effect, ToolFinished
from threadlog.ids import Position
from threadlog.runtime.acting import Plan
from threadlog.runtime.lanes import Lane

KINDS = pytest.mark.parametrize("kind", ["model", "call"])
DONE = ["model.responded", "step.finished", "turn.finished"]


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


# -- revoked while the effect runs


@KINDS
async def test_F30_a_revoke_settles_and_repeats_nothing_and_the_old_owners_outcome_counts(
    kind: Kind,
) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        running = await play.begun()
        await play.given()
        assert play.old.assignment.followed == {P0}
        await world.quiet()
        assert len(play.told()) == 1, "the claim, and nothing since"
        finish(running)
        await world.until(lambda: not play.old.assignment.followed)
        await world.quiet()
        assert play.started() == (1, 0)
        assert play.claims() == [("w1", 1)]
        if kind == "model":
            [said] = [e for e, _ in world.judged if isinstance(e.body, ModelResponded)]
            assert said.worker == "w1"
            assert play.told() == ["step.started", *DONE]
            ends = [e.worker for e, _ in world.judged if e.type in DONE[1:]]
            assert ends == ["w2", "w2"], "the new owner goes on with the turn"
        else:
            assert play.told() == ["tool.started", "tool.finished"]
            assert world.bodies(ToolFinished)[0].outcome == "ok"
        assert play.old.service().actor.worker.has_ended, "it reads no more"
        assert (play.old.meter.claims, play.new.meter.claims) == ({"used": 1}, {})


@KINDS
async def test_a_cancel_after_the_handover_reaches_the_old_owner_and_stops_the_effect(
    kind: Kind,
) -> None:
    """Rule `follow`."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        running = await play.begun()
        await play.given()
        await world.go(cancel(), thread=play.thread)
        await world.until(lambda: was_ended(running))
        await world.until(lambda: not play.old.assignment.followed)
        await world.quiet()
        if kind == "model":
            assert play.told()[-1] == "turn.finished"
            assert world.state(play.thread).verdict == "cancelled"
        else:
            [finished] = world.bodies(ToolFinished)
            assert (finished.outcome, finished.by) == ("cancelled", "writer")
        assert play.started() == (1, 0)


@KINDS
async def test_a_living_but_revoked_writer_is_never_settled_however_long_it_takes(
    kind: Kind,
) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        running = await play.begun()
        await play.given()
        asked = world.members.asked
        await world.until(lambda: world.members.asked > asked + 200)
        assert len(play.told()) == 1
        finish(running)
        await world.until(lambda: len(play.told()) > 1)
        assert not play.releases()
        assert play.started() == (1, 0)


@KINDS
async def test_a_second_handover_changes_nothing_for_what_runs(kind: Kind) -> None:
    """The third owner watches the claim of the first, as the second did."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        running = await play.begun()
        await play.given()
        await world.quiet()
        await play.given(play.old)
        assert len(play.old.made) == 1, "the same service"
        assert play.new.service().actor.worker.has_ended, "it had nothing open"
        finish(running)
        await world.until(lambda: len(play.told()) > 1)
        await world.quiet()
        assert play.started() == (1, 0)
        assert not play.releases()


# -- revoked before the effect began


@KINDS
@pytest.mark.parametrize("gone", ["revoked", "lost"])
async def test_a_claim_that_was_not_read_back_is_released_and_the_next_attempt_is_anothers(
    kind: Kind, gone: str
) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        log = play.old.logs[P0]
        log.faults.append("slow")
        await play.wanted()
        await world.until(lambda: log.asked)
        log.hold()
        log.hurry()
        await world.until(lambda: len(play.claims()) == 1)
        moves = play.group.move if gone == "revoked" else play.group.lose
        moving = asyncio.create_task(moves(P0, "w2"))
        await world.quiet()
        assert play.started() == (0, 0)
        if gone == "revoked":
            assert play.group.owners[P0] == "w1", "its release is waited for"
        log.let_go()
        async with asyncio.timeout(5):
            await moving
        running = await play.begun(1)
        finish(running)
        await world.until(lambda: not play.old.assignment.followed)
        await world.quiet()
        assert play.releases() == [("writer", "revoked")]
        assert play.claims() == [("w1", 1), ("w2", 2)]
        assert play.started() == (0, 1)
        assert play.old.meter.claims == {"released": 1}
        commits = [name for name, _ in play.group.commits if name == "w1"]
        assert bool(commits) or gone == "lost"


@KINDS
async def test_a_claim_that_cannot_be_read_back_in_time_does_not_hold_the_revoke_up(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is released once it can be; until then the old owner reads on."""
    monkeypatch.setattr("threadlog.runtime.assignment._LET_GO_S", 0.02)
    async with SharedWorld() as world:
        play = await scene(world, kind)
        log = play.old.logs[P0]
        log.faults.append("slow")
        await play.wanted()
        await world.until(lambda: log.asked)
        log.hold()
        log.hurry()
        await play.given()
        await world.quiet()
        assert play.old.assignment.followed == {P0}
        assert play.started() == (0, 0)
        log.let_go()
        await play.begun(1)
        assert play.releases() == [("writer", "revoked")]
        assert play.started() == (0, 1)


@KINDS
async def test_a_claim_that_was_in_the_append_when_the_partition_went_never_starts(
    kind: Kind,
) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        log = play.old.logs[P0]
        log.faults.append("slow")
        await play.wanted()
        await world.until(lambda: log.asked)
        moving = asyncio.create_task(play.group.move(P0, "w2"))
        await world.quiet()
        log.hurry()
        async with asyncio.timeout(5):
            await moving
        await play.begun(1)
        assert play.started() == (0, 1)
        assert play.releases() == [("writer", "revoked")]


@KINDS
async def test_a_claim_that_is_about_to_be_sent_when_the_partition_goes_never_starts(
    kind: Kind,
) -> None:
    """It is in no table yet, so it is released only when it comes back."""
    async with SharedWorld() as world:
        play = await scene(world, kind)
        actor = play.old.service().actor
        plan, letting = actor.plan, list[asyncio.Task[Position]]()

        def planned(lane: Lane[Any]) -> Plan:
            found = plan(lane)
            if found.claims and not letting:
                letting.append(asyncio.create_task(actor.let_go()))
            return found

        actor.plan = planned  # type: ignore[method-assign]  # for this test
        await play.wanted()
        await world.until(lambda: letting and letting[0].done())
        await world.until(lambda: not actor.is_busy)
        assert play.started() == (0, 0)
        assert play.releases() == [("writer", "revoked")]


# -- revoked, and given back


@KINDS
async def test_what_comes_back_while_it_runs_is_taken_back_by_the_same_actor(kind: Kind) -> None:
    async with SharedWorld() as world:
        play = await scene(world, kind)
        await play.wanted()
        running = await play.begun()
        actor = play.old.service().actor
        epoch = actor.worker.ledger
        await play.given()
        await play.given(play.old)
        assert len(play.old.made) == 1
        assert actor.worker.ledger is not epoch, "a new epoch"
        finish(running)
        await world.until(lambda: len(play.told()) > 1)
        await world.quiet()
        assert play.started() == (1, 0)
        if kind == "model":
            assert play.told() == ["step.started", *DONE]
            assert {e.worker for e, _ in world.judged if e.type in DONE} == {"w1"}
        assert actor.is_owner


async def test_what_an_old_epoch_left_open_moves_nothing_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An append of the old epoch is acknowledged in the new one, which holds it open itself."""
    monkeypatch.setattr("threadlog.runtime.assignment._LET_GO_S", 0.02)
    async with SharedWorld() as world:
        play = await scene(world, "model")
        log, actor = play.old.logs[P0], play.old.service().actor
        first = actor.worker.ledger
        log.faults.append("slow")
        await play.wanted()
        await world.until(lambda: len(log.asked) == 1)
        at = actor.worker.lanes.get(f"local/{play.thread}")
        assert at is not None
        await play.group.move(P0, None)
        await play.group.move(P0, "w1")
        second = actor.worker.ledger
        assert second is not first
        assert (first.open_count, second.open_count) == (1, 1)
        assert second.commit_point < at.position, "the claim is still on its way"
        wanted_at = at.position
        log.hurry()
        finish(await play.begun())
        await world.until(lambda: "turn.finished" in play.told())
        await world.until(lambda: second.commit_point == len(world.log.logs[0].entries))
        assert first.commit_point < wanted_at, "nobody asks it any more"


async def test_a_thread_that_was_loading_when_the_partition_came_back_is_not_committed() -> None:
    async with SharedWorld() as world:
        cold = world.thread(0, 1)
        await world.go(created(), thread=cold)
        await world.caught_up()
        play = await scene(world, "call")
        gate = asyncio.Event()
        inner = world.parts[0].records

        async def slow(*arguments, **named):  # type: ignore[no-untyped-def]  # stands before one
            await gate.wait()
            return await inner(*arguments, **named)

        await play.wanted()
        running = await play.begun()
        world.parts[0].records = slow  # type: ignore[method-assign]  # for this test
        before = len(world.log.logs[0].entries)
        await world.go(configured(model=MODEL), thread=cold)
        await world.until(lambda: play.old.service().actor.worker.position == before + 1)
        assert play.old.state(cold) is None, "it loads"
        await play.group.move(P0, None)
        await play.group.move(P0, "w1")
        await world.go(created(), thread=world.thread(0, 2))
        await world.quiet()
        assert play.old.service().commit_point == before, "the record of the cold thread is open"
        gate.set()
        await world.until(lambda: play.old.service().commit_point == before + 2)
        finish(running)
        await world.until(lambda: play.old.state(cold) == world.state(cold))


# -- death


@KINDS
@pytest.mark.parametrize("effect", ["unsafe", "pure"])
async def test_a_dead_owners_claim_is_settled_once_it_is_certainly_gone(
    kind: Kind, effect: Effect
) -> None:
    """A tool call is `unknown` once, a pure one is tried again, a request is asked again."""
    async with SharedWorld() as world:
        play = await scene(world, kind, effect)
        await play.wanted()
        dead = await play.begun()
        await world.kill(play.old)
        await world.until(lambda: play.new.assignment.services and play.new.assignment.is_ready)
        asked = world.members.asked
        await world.until(lambda: world.members.asked > asked + 50)
        assert len(play.told()) == 1, "it is still listed among the living"
        world.bury(play.old)
        if kind == "call" and effect == "unsafe":
            await world.until(lambda: world.bodies(ToolFinished))
            await world.quiet()
            [finished] = world.bodies(ToolFinished)
            assert (finished.outcome, finished.by) == ("unknown", "settlement")
            assert play.started() == (1, 0)
        else:
            finish(await play.begun(1))
            await world.quiet()
            assert play.releases() == [("settlement", "worker_gone")]
            assert play.claims() == [("w1", 1), ("w2", 2)]
            assert play.started() == (1, 1)
        assert play.new.meter.claims["settled"] == 1
        told = play.told()
        if not dead.outcome.done():
            finish(dead)
        await world.quiet()
        assert play.told() == told, "the dead say nothing"


async def test_a_dead_owners_claim_is_watched_before_anybody_is_asked() -> None:
    """Rules `fresh` and `watch`: absence counts only behind the time of watching."""
    async with SharedWorld() as world:
        world.members.watch_ms = 150
        play = await scene(world, "call")
        await play.wanted()
        await play.begun()
        began_s = asyncio.get_running_loop().time()
        await world.kill(play.old)
        world.bury(play.old)
        assert play.group.owners[P0] == "w2"
        await world.until(lambda: world.bodies(ToolFinished))
        assert world.members.first_asked_s is not None
        assert world.members.first_asked_s - began_s >= 0.15


async def test_an_owner_that_is_one_no_more_stops_watching() -> None:
    """Else two would settle; and it watches again when the partition comes back."""
    async with SharedWorld() as world:
        play = await scene(world, "call")
        third = await world.tool_runner("w3", StepTools())
        await play.wanted()
        await play.begun()
        await world.kill(play.old)
        await play.given()
        own = world.thread(0, 1)
        await world.go(*START, turn_started(), step_started("p0"), thread=own)
        await world.go(responded(calls=1), requested(0), thread=own)
        busy = await play.begun(1)
        await play.given(third)
        assert play.new.assignment.followed == {P0}, "of its own call"
        lane = play.new.service().actor.worker.lanes.get(f"local/{play.thread}")
        assert lane is not None
        await world.until(lambda: not lane.own.watched)
        await play.given(play.new)
        await world.until(lambda: lane.own.watched)
        world.bury(play.old)
        await world.until(lambda: world.bodies(ToolFinished))
        assert play.new.meter.claims["settled"] == 1
        assert third.meter.claims["settled"] == 0
        finish(busy)
        await world.until(lambda: len(world.bodies(ToolFinished)) == 2)
