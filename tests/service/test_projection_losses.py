"""Views that were lost, set back or cut are found and made again, whatever else goes on."""

import asyncio

import pytest

from tests.helpers.events import LOCAL
from tests.helpers.shared_world import P0, SharedWorld, hasten
from tests.helpers.thread_events import MODEL, configured, created, message, turn_started
from threadlog.commands.requests import NewMessage
from threadlog.commands.service import Commands
from threadlog.errors import CorruptError, TransientError, ViewsRebuildingError
from threadlog.events.content import TextPart
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, Position, Seq, ThreadId
from threadlog.projection import service as projecting
from threadlog.projection.owned import OwnedProjection
from threadlog.projection.rows import title_of
from threadlog.runtime.assignment import Assignment
from threadlog.runtime.load import Loader
from threadlog.runtime.shared_fold import SharedFold
from threadlog.thread.snapshot import encode_state, state_hash

BEGIN = (created(), configured(model=MODEL))


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


def end_of(world: SharedWorld) -> Position:
    return Position(len(world.log.logs[0].entries))


async def cold(world: SharedWorld) -> ThreadId:
    """A thread that is in the views and in no memory: the projection has begun behind it."""
    thread = world.thread()
    await world.go(*BEGIN, thread=thread)
    await world.go(*BEGIN, thread=world.thread(0, 1))
    await world.caught_up()
    await world.end_projection()
    world.project(P0)
    await world.until(lambda: world.projecting[P0][0].has_begun)
    return thread


@pytest.mark.parametrize("what", ["emptied", "set back"])
async def test_views_that_are_lost_while_a_thread_is_loaded_are_made_again(what: str) -> None:
    """Its load waits for a watermark that nobody but this projection could move."""
    async with SharedWorld() as world:
        views = world.parts[0]
        if what == "set back":
            await world.go(*BEGIN, thread=world.thread(0, 2))
            await world.caught_up()
            views.save()
        thread = await cold(world)
        known = end_of(world)
        views.restore()
        await world.go(message(), thread=thread)
        await world.caught_up()
        row = await world.views.thread(world.state(thread).tenant_id, thread)
        assert row is not None
        assert row.head == world.state(thread).head
        assert (known, known) in views.begun, "it compares with what it knows"
        assert max(reached for _, reached in views.begun) == known


async def test_an_older_copy_is_refused_to_readers_until_it_is_where_it_was() -> None:
    async with SharedWorld() as world:
        views, thread = world.parts[0], world.thread()
        await world.go(*BEGIN, thread=thread)
        await world.caught_up()
        views.save()
        await world.go(message(), turn_started(), thread=thread)
        await world.caught_up()
        reached = end_of(world)
        views.moving.clear()
        views.restore()
        await world.until(lambda: views.refuses_until == reached)
        with pytest.raises(ViewsRebuildingError):
            await world.views.thread(world.state(thread).tenant_id, thread)
        views.moving.set()
        await world.caught_up()
        row = await world.views.thread(world.state(thread).tenant_id, thread)
        assert row is not None
        assert row.head == 3


async def test_views_lost_twice_are_refused_up_to_the_furthest_they_have_been() -> None:
    """The second time they are lost before they are back; what a reader has seen stays seen."""
    async with SharedWorld() as world:
        views, thread = world.parts[0], world.thread()
        await world.go(*BEGIN, message(), thread=thread)
        await world.caught_up()
        reached, projection = end_of(world), world.projecting[P0][0]
        views.moving.clear()
        views.restore()
        await world.until(lambda: views.refuses_until == reached and projection.watermark == 0)
        begun = len(views.begun)
        projection._lose(Position(0))
        await world.until(lambda: (reached, reached) in views.begun[begun:])


async def test_what_the_group_has_committed_is_what_was_reached() -> None:
    """A process that has just begun knows of nothing else."""
    async with SharedWorld() as world:
        views, thread = world.parts[0], world.thread()
        await world.go(*BEGIN, thread=thread)
        await world.caught_up()
        await world.end_projection()
        views.restore()
        views.moving.clear()
        projection, _ = world.projecting[P0]
        owned = OwnedProjection(projecting.Projection(_ports_of(world)))
        running = asyncio.create_task(owned.run(Position(2)))
        await world.until(lambda: owned.is_ready)
        assert views.begun[-1] == (2, 2)
        assert views.refuses_until == 2
        assert projection is not owned.projection
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _ports_of(world: SharedWorld) -> projecting.ProjectionPorts:
    loader = Loader(world.views, world.snapshots)
    log = world.log.partition(P0)
    return projecting.ProjectionPorts(log, world.parts[0], loader, world.notify, SharedFold())


async def test_a_log_that_ends_before_what_was_reached_ends_the_service_loudly() -> None:
    async with SharedWorld() as world:
        await world.go(*BEGIN, thread=world.thread())
        await world.caught_up()
        await world.end_projection()
        group = world.groups["planner"]
        group.committed[P0] = Position(3)
        made = Assignment(
            "projection",
            group.member("x1"),
            lambda _: OwnedProjection(projecting.Projection(_ports_of(world))),
        )
        await made.start()
        async with asyncio.timeout(5):
            error = await made.failed()
        assert isinstance(error, CorruptError)
        assert "the log ends at 2, but it went to 3" in str(error)
        assert "cut or replaced" in str(error)
        await made.stop(0)


# -- a record at which our own code fails


async def _stopped(world: SharedWorld, patch: pytest.MonkeyPatch) -> tuple[ThreadId, list[str]]:
    """A thread whose third event the projection cannot show; two more are behind it."""
    thread, errors = world.thread(), ["a bug of ours"]

    def failing(event: Event) -> str:
        if errors and event.type == "message.received" and event.thread_id == thread:
            raise KeyError(errors[0])
        return title_of(event)

    patch.setattr(projecting, "title_of", failing)
    await world.go(created(title=None), configured(model=MODEL), message(), thread=thread)
    await world.go(turn_started(), thread=thread)
    await world.caught_up()
    return thread, errors


async def voids(world: SharedWorld, thread: ThreadId) -> list[tuple[str, str | None]]:
    tenant = world.state(thread).tenant_id
    return [(s.event.type, s.void) for s in await world.views.voids(tenant, thread, limit=99)]


STOPPED = [("message.received", "stopped"), ("turn.started", "stopped")]


async def test_who_loads_a_thread_that_was_stopped_in_the_views_folds_all_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SharedWorld() as world:
        thread, _ = await _stopped(world, monkeypatch)
        assert await voids(world, thread) == STOPPED
        row = await world.views.thread(LOCAL, thread)
        assert row is not None
        assert (row.head, row.status) == (1, "idle"), "as it was right before"
        assert [(d.position, d.reason) for d in world.parts[0].dead_letters.values()] == [
            (3, "the projection failed here: KeyError"),
            (4, "its thread was stopped"),
        ]
        tenant = world.state(thread).tenant_id
        loaded = await Loader(world.views, world.snapshots).load(tenant, thread, Position(5))
        assert state_hash(encode_state(loaded.state)) == state_hash(
            encode_state(world.state(thread))
        )
        neighbour = world.thread(0, 1)
        await world.go(*BEGIN, message(), thread=neighbour)
        await world.caught_up()
        row = await world.views.thread(tenant, neighbour)
        assert row is not None
        assert row.head == 2
        assert world.projecting[P0][0].broken == {thread}


async def test_a_thread_that_was_stopped_stays_so_when_another_projection_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was set aside has no seq in the views: showing what follows would leave a gap."""
    async with SharedWorld() as world:
        thread, errors = await _stopped(world, monkeypatch)
        await world.end_projection()
        errors.clear()
        world.project(P0)
        await world.go(message(key="m"), thread=thread)
        await world.caught_up()
        await world.go(message(key="n"), thread=thread)
        await world.caught_up()
        again = ("message.received", "stopped")
        assert await voids(world, thread) == [*STOPPED, again, again]
        assert world.projecting[P0][0].broken == {thread}
        reasons = [d.reason for d in world.parts[0].dead_letters.values()]
        assert reasons[2:] == ["the projection failed here: CorruptError", "its thread was stopped"]


async def test_a_command_on_a_stopped_thread_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SharedWorld() as world:
        thread, _ = await _stopped(world, monkeypatch)
        commands = Commands(
            world.log, world.views, world.blobs, world.clock, tenant=LOCAL, actor="user:ann"
        )
        hello = NewMessage((TextPart(text="hello"),))
        for _ in range(2):
            with pytest.raises(CorruptError, match="log of the projection"):
                await commands.send_message(thread, hello, key="k")
        assert len(world.log.logs[0].entries) == 5, "the repeated one is known, and not accepted"


@pytest.mark.parametrize("is_mended", [False, True])
async def test_views_that_are_made_again_show_a_stopped_thread_as_far_as_they_can(
    monkeypatch: pytest.MonkeyPatch, *, is_mended: bool
) -> None:
    """In the same process as in another: to the same record, or to its end if the fault is gone."""
    async with SharedWorld() as world:
        views = world.parts[0]
        thread, errors = await _stopped(world, monkeypatch)
        if is_mended:
            errors.clear()
        views.restore()
        begun = len(views.begun)
        await world.until(lambda: len(views.begun) > begun + 1)
        await world.caught_up()
        stored = await world.views.events(
            world.state(thread).tenant_id, thread, first=Seq(0), last=Seq(99), limit=99
        )
        assert [s.seq for s in stored] == ([0, 1, 2, 3] if is_mended else [0, 1])
        assert await voids(world, thread) == ([] if is_mended else STOPPED)


async def test_a_comparison_that_fails_for_a_while_is_made_again() -> None:
    async with SharedWorld() as world:
        views, thread = world.parts[0], world.thread()
        await world.go(*BEGIN, thread=thread)
        await world.caught_up()
        begin, failures = views.begin, [TransientError("no answer")] * 3

        async def fails(end: Position, *, reached: Position = NO_POSITION) -> Position:
            if failures:
                raise failures.pop()
            return await begin(end, reached=reached)

        views.begin = fails  # type: ignore[method-assign]  # for this test
        views.restore()
        await world.caught_up()
        assert not failures
