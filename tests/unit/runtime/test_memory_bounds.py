"""Few threads in memory: those that left come back with the right state, and nobody waits long.

The views here answer only up to their watermark, as those of a remote log do: whoever asks for more
waits, and a projection that waits for its own watermark hangs.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.helpers.events import LOCAL
from tests.helpers.fakes import StepModel, StepTools, reply
from tests.helpers.shared_world import P0, Process, SharedWorld, hasten
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    configured,
    created,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    turn_finished,
    turn_started,
)
from threadlog.ids import Position, ThreadId

IDLE: tuple[Maker, ...] = (created(), configured(model=MODEL))
TURN: tuple[Maker, ...] = (
    message(),
    turn_started(),
    step_started(),
    responded(),
    step_finished(),
    turn_finished(),
)
LANES = 2


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
async def world() -> AsyncIterator[SharedWorld]:
    async with SharedWorld(lanes_max=LANES) as world:
        yield world


async def test_lanes_that_left_come_back_although_the_views_lag_behind(world: SharedWorld) -> None:
    """Loading waits for no more than where the last one left: `_known`."""
    threads = [world.thread(0, n) for n in range(5)]
    views = world.parts[0]
    runner = await world.tool_runner("t1", StepTools())
    await world.ready(runner)
    lanes = runner.service().actor.worker.lanes
    for thread in threads:
        await world.go(*IDLE, thread=thread)
    await world.until(lambda: len(lanes) == LANES)
    await world.caught_up()
    views.moving.clear()
    held_at = Position(10)
    for thread in threads[:LANES]:
        await world.go(configured(system_prompt="x"), thread=thread)
        await world.until(partial(_is_known, world, runner, thread))
    assert [before <= held_at + 1 for before in views.asked] == [True] * LANES
    assert len(lanes) == LANES
    assert await views.watermark() == held_at


async def test_a_lane_that_left_behind_the_watermark_waits_for_no_more_than_that(
    world: SharedWorld,
) -> None:
    threads = [world.thread(0, n) for n in range(4)]
    views = world.parts[0]
    runner = await world.tool_runner("t1", StepTools())
    await world.ready(runner)
    actor = runner.service().actor
    for thread in threads[:1]:
        await world.go(*IDLE, thread=thread)
    await world.caught_up()
    views.moving.clear()
    for thread in threads[1:]:
        await world.go(*IDLE, thread=thread)
    await world.until(lambda: len(actor.worker.lanes) == LANES)
    assert runner.state(threads[1]) is None, "it left at position 4, before the views were there"
    await world.go(configured(system_prompt="x"), thread=threads[1])
    await world.until(lambda: views.asked)
    await world.quiet()
    assert runner.state(threads[1]) is None, "a record of it may be missing yet"
    assert views.asked[-1] == 5
    views.moving.set()
    await world.until(lambda: runner.state(threads[1]) == world.state(threads[1]))


async def test_a_thread_that_left_has_its_turn_when_it_comes_back(world: SharedWorld) -> None:
    model = StepModel()
    planner = await world.planner("p1", model)
    await world.ready(planner)
    threads = [world.thread(0, n) for n in range(6)]
    for thread in threads:
        await world.go(*IDLE, thread=thread)
    await world.until(lambda: len(planner.service().actor.worker.lanes) == LANES)
    for _ in range(3):
        for thread in threads:
            await world.go(message(), thread=thread)
        await world.until(lambda: _answer(model) and all(_is_idle(world, t) for t in threads))
    assert {world.state(t).turns for t in threads} == {3}
    assert len(model.sent) == 18


def _is_known(world: SharedWorld, process: Process, thread: ThreadId) -> bool:
    return process.state(thread) == world.state(thread)


def _answer(model: StepModel) -> bool:
    for exchange in model.sent:
        if not exchange.outcome.done():
            exchange.answer(reply("done"))
    return True


def _is_idle(world: SharedWorld, thread: ThreadId) -> bool:
    state = world.state(thread)
    return state.turn is None and not state.queue


async def test_lanes_with_something_open_stay(world: SharedWorld) -> None:
    tools = StepTools()
    runner = await world.tool_runner("t1", tools)
    await world.ready(runner)
    threads = [world.thread(0, n) for n in range(5)]
    for thread in threads:
        await world.go(*IDLE, message(), turn_started(), step_started("p0"), thread=thread)
        await world.go(responded(calls=1), requested(0), thread=thread)
    runs = [await tools.started() for _ in threads]
    assert len(runner.service().actor.worker.lanes) == 5
    for run in runs:
        run.finish()
    await world.until(lambda: not runner.assignment.services[P0].is_busy)
    for thread in threads:
        await world.go(step_finished(), step_started("p0"), responded(), thread=thread)
        await world.go(step_finished(), turn_finished(), thread=thread)
    await world.until(lambda: len(runner.service().actor.worker.lanes) == LANES)


# -- the projection


async def test_the_projection_never_waits_for_itself(world: SharedWorld) -> None:
    """Each thread leaves its memory and comes back; every load asks for what is applied already."""
    threads = [world.thread(0, n) for n in range(7)]
    for thread in threads:
        await world.go(*IDLE, thread=thread)
        await world.caught_up()
    for _ in range(4):
        for thread in threads:
            await world.go(*TURN, thread=thread)
            await world.caught_up()
    assert world.parts[0].asked, "it loaded some, or this proves nothing"
    for thread in threads:
        row = await world.views.thread(LOCAL, thread)
        assert row is not None
        state = world.state(thread)
        assert (row.head, row.turns, row.title) == (state.head, 4, "a test")


async def test_a_batch_of_more_threads_than_memory_holds_hangs_nobody(world: SharedWorld) -> None:
    """Their rows are on their way together: none of them may leave before it is applied."""
    threads = [world.thread(0, n) for n in range(9)]
    for thread in threads:
        await world.go(*IDLE, thread=thread)
    await world.caught_up()
    world.parts[0].moving.clear()
    for _ in range(2):
        for thread in threads:
            await world.go(*TURN, thread=thread)
    await asyncio.sleep(0)
    world.parts[0].moving.set()
    await world.caught_up()
    for thread in threads:
        row = await world.views.thread(LOCAL, thread)
        assert row is not None
        assert (row.head, row.turns) == (world.state(thread).head, 2)
