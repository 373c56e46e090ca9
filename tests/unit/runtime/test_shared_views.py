"""Projections whose views do not obey them: emptied, set back, or moved by another projection."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.helpers.events import LOCAL
from tests.helpers.shared_world import P0, SharedWorld, hasten
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    configured,
    created,
    message,
    responded,
    step_finished,
    step_started,
    turn_finished,
    turn_started,
    unknown,
)
from threadlog.ids import Position, Seq
from threadlog.projection import service as projecting
from threadlog.projection.owned import OwnedProjection

IDLE: tuple[Maker, ...] = (created(), configured(model=MODEL))
TURN: tuple[Maker, ...] = (
    message(),
    turn_started(),
    step_started(),
    responded(),
    step_finished(),
    turn_finished(),
)


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
async def world() -> AsyncIterator[SharedWorld]:
    async with SharedWorld() as world:
        yield world


@pytest.mark.parametrize("back_to", ["nothing", "the middle"])
async def test_views_that_went_back_while_nothing_comes_are_found_and_made_again(
    world: SharedWorld, back_to: str
) -> None:
    views = world.parts[0]
    await world.go(*IDLE, *TURN, thread=world.thread())
    await world.go(*IDLE, thread=world.thread(0, 1))
    await world.caught_up()
    if back_to == "the middle":
        views.save()
    await world.go(*TURN * 15, thread=world.thread(0, 1))
    await world.go(*TURN, thread=world.thread())
    await world.caught_up()
    before = views.content()
    snapshot = await world.snapshots.newest(LOCAL, world.thread(0, 1))
    assert snapshot is not None, "it is ahead of what is restored"
    views.restore()
    assert views.content() != before
    async with asyncio.timeout(5):
        await views.wait(Position(len(world.log.logs[0].entries)))
    assert views.content() == before, "nobody had to append anything"


async def test_views_that_went_back_are_found_at_the_next_rows_at_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It never applies its rows over a state that it does not know."""
    monkeypatch.setattr(projecting, "_COMPARE_S", 60.0)
    async with SharedWorld() as world:
        views, thread = world.parts[0], world.thread()
        await world.go(*IDLE, *TURN, thread=thread)
        await world.caught_up()
        views.restore()
        await world.go(*TURN, thread=thread)
        await world.caught_up()
        row = await world.views.thread(LOCAL, thread)
        assert row is not None
        assert (row.head, row.turns) == (world.state(thread).head, 2)
        stored = await world.views.events(LOCAL, thread, first=Seq(0), last=row.head, limit=99)
        assert [each.seq for each in stored] == list(range(row.head + 1))


async def test_of_two_projections_of_a_partition_one_wins_each_batch() -> None:
    """Their views are those of one alone."""

    async def told(projections: int) -> tuple[tuple[object, ...], int]:
        async with SharedWorld() as world:
            for _ in range(projections - 1):
                world.project(P0, gather_ms=0)
            for n in range(4):
                await world.go(*IDLE, unknown("note.added"), thread=world.thread(0, n))
            for maker in TURN * 10:
                for n in range(4):
                    await world.go(maker, thread=world.thread(0, n))
                    await asyncio.sleep(0)
            await world.log.logs[0].append_record("", None, "no key")
            await world.caught_up()
            await world.quiet()
            return world.parts[0].content(), world.parts[0].refused

    (alone, refused_alone), (together, refused) = await told(1), await told(2)
    assert refused_alone == 0
    assert refused, "both tried, or this proves nothing"
    assert together == alone


async def test_an_owned_projection_says_how_far_it_is_once_it_has_begun(
    world: SharedWorld,
) -> None:
    await world.go(*IDLE, thread=world.thread())
    owned = OwnedProjection(world.project(P0))
    assert (owned.is_ready, owned.commit_point, owned.is_busy) == (False, None, False)
    await world.until(lambda: owned.is_ready)
    await world.until(lambda: owned.commit_point == 2)
    await world.go(*TURN, thread=world.thread())
    await world.until(lambda: owned.commit_point == 8)
    assert await owned.let_go() == 8
