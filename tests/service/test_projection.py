"""The projection: views equal the fold, whatever the store forgets or refuses."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.helpers.events import LOCAL, event_id, thread_id
from tests.helpers.events import message as raw_message
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    attempt_failed,
    bent,
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
from tests.helpers.threads import Story
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.errors import RejectedError, TransientError
from threadlog.events.content import Usage
from threadlog.events.envelope import Event
from threadlog.ids import Position, Seq, TenantId, ThreadId
from threadlog.limits import INPUT_WINDOW, SNAPSHOT_EVERY_EVENTS
from threadlog.ports.snapshots import Snapshot
from threadlog.ports.views import ViewBatch
from threadlog.runtime.load import Loader
from threadlog.thread.snapshot import decode_state, encode_state

END = Seq(10**9)
BEGIN: tuple[Maker, ...] = (created(), configured(model=MODEL))
TURN: tuple[Maker, ...] = (
    message(),
    turn_started(),
    step_started(),
    responded(usage=Usage(input=10, output=3)),
    step_finished(),
    turn_finished(),
)


class FragileViews(MemoryViews):
    """Views that can go back to what they were, and whose `troubles` befall the next applies.

    `lost`: fails and nothing was applied; `unacknowledged`: fails although it was applied.
    """

    def __init__(self, log: MemoryLog, snapshots: MemorySnapshots) -> None:
        super().__init__(log, snapshots)
        self.troubles: list[str | None] = []
        self.save()

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble == "lost":
            raise TransientError("no answer")
        if trouble == "refused":
            raise RejectedError("no")
        stored = await super().apply(batch, urgent=urgent)
        if trouble == "unacknowledged":
            raise TransientError("no answer")
        return stored

    def save(self) -> None:
        self._saved = (self._watermark, {**self._judged}, {**self._threads})

    def restore(self) -> None:
        """As a store does that lost its last writes; the snapshots are newer than the rest."""
        self._watermark, judged, threads = self._saved
        self._judged, self._threads = {**judged}, {**threads}


class FragileWorld(World):
    """A world with fragile views."""

    def __init__(self) -> None:
        super().__init__()
        self.views = self.fragile = FragileViews(self.log, self.snapshots)


async def caught_up(world: World) -> None:
    async with asyncio.timeout(5):
        await world.views.wait(await world.log.end())


async def agrees(world: World) -> None:
    """Rows, seqs and reasons are what the fold says of the same log."""
    await caught_up(world)
    for thread, state in world.states.items():
        row = await world.views.thread(LOCAL, thread)
        assert row is not None
        assert (row.head, row.turns, row.verdict) == (state.head, state.turns, state.verdict)
        assert row.open_turn == (None if state.turn is None else state.turn.turn_id)
        assert row.usage.steps == state.totals.steps
        wanted = [j.seq for e, j in world.judged if e.thread_id == thread and j.seq is not None]
        stored = await world.views.events(LOCAL, thread, first=Seq(0), last=END, limit=10**6)
        assert [s.seq for s in stored] == wanted
        voids = [j.void for e, j in world.judged if e.thread_id == thread and j.void is not None]
        assert [s.void for s in await world.views.voids(LOCAL, thread, limit=10**6)] == voids


async def test_views_are_what_the_fold_says() -> None:
    async with World() as world:
        await world.go(*BEGIN, *TURN, message(), turn_started())
        await world.log.append([turn_started()(world.state())])
        world.state()
        await agrees(world)
        row = await world.views.thread(LOCAL, thread_id())
        assert row is not None
        assert (row.title, row.status, row.model) == ("a test", "open", "scripted/small")
        [usage] = await world.views.usage(LOCAL, ["thread"])
        assert (usage.totals.input, usage.totals.output, usage.totals.steps) == (10, 3, 1)


async def test_F18_each_billed_attempt_is_one_fact_and_they_sum_to_the_folds_total() -> None:
    failed = (step_started(), attempt_failed(usage=Usage(input=5)))
    answered = (step_started(), responded(usage=Usage(input=10, output=3, reasoning=1)))
    async with World() as world:
        turn = (message(), turn_started(), *failed, *answered, step_finished(), turn_finished())
        await world.go(*BEGIN, *turn, *TURN)
        await agrees(world)
        [usage] = await world.views.usage(LOCAL, ["thread"])
        totals = world.state().totals.usage
        assert totals is not None
        assert (usage.totals.input, usage.totals.output) == (totals.input, totals.output) == (25, 6)
        by_turn = await world.views.usage(LOCAL, ["turn"])
        assert sorted(row.totals.input for row in by_turn) == [10, 15]


async def test_a_store_that_lost_its_last_writes_is_filled_again() -> None:
    """The compare-and-set finds it; everything behind the stored watermark is projected again."""
    async with FragileWorld() as world:
        await world.go(*BEGIN, *TURN)
        await caught_up(world)
        world.fragile.save()
        await world.go(*TURN * 20)
        await caught_up(world)
        assert await world.snapshots.newest(LOCAL, thread_id()) is not None
        world.fragile.restore()
        await world.go(message())
        await agrees(world)


async def test_a_store_that_lost_everything_is_filled_again() -> None:
    async with FragileWorld() as world:
        world.fragile.save()
        await world.go(*BEGIN, *TURN * 20)
        await world.go(*BEGIN, *TURN, thread=thread_id(1))
        await caught_up(world)
        world.fragile.restore()
        await world.go(message(), thread=thread_id(1))
        await agrees(world)


async def test_an_apply_that_failed_is_repeated_and_counts_once() -> None:
    async with FragileWorld() as world:
        world.fragile.troubles = ["lost", "unacknowledged"]
        await world.go(*BEGIN, *TURN)
        await caught_up(world)
        await world.go(*TURN)
        await agrees(world)
        [usage] = await world.views.usage(LOCAL, ["thread"])
        assert usage.totals.input == 20


async def test_an_apply_that_is_refused_ends_the_projection_also_when_nobody_waits_for_it() -> None:
    """Otherwise the next rows would be stored over the hole. The world ends with its projection."""
    with pytest.raises(RejectedError):  # noqa: PT012  # where it ends is asserted inside
        async with FragileWorld() as world:
            await world.go(*BEGIN, message())
            await caught_up(world)
            world.fragile.troubles = ["refused"]
            await world.go(turn_started(), step_started())
            done, _ = await asyncio.wait({world.projecting}, timeout=5)
            assert done, "it ended"


async def test_snapshots_come_each_64_events_and_fold_on_to_the_same_state() -> None:
    async with World() as world:
        await world.go(*BEGIN, *TURN * 10)
        assert world.state().head == 61
        await caught_up(world)
        assert await world.snapshots.newest(LOCAL, thread_id()) is None
        await world.go(*TURN)
        await caught_up(world)
        assert (await newest(world)).seq >= SNAPSHOT_EVERY_EVENTS - 1
        await world.go(*TURN)
        loaded = await Loader(world.views, world.snapshots).load(
            LOCAL, thread_id(), Position(10**9)
        )
        assert loaded.snapshot == "hit"
        assert encode_state(loaded.state) == encode_state(world.state())


async def test_F75_a_cold_thread_of_10_000_events_folds_snapshot_and_tail_only() -> None:
    sizes: list[int] = []
    async with World() as world:
        story = Story()
        story.go(*BEGIN, *TURN * 1_667)
        events = [entry.event for entry in story.entries]
        assert len(events) > 10_000
        for part in (events[:1_000], events[1_000:]):
            await append_all(world.log, part)
            await caught_up(world)
            snapshot = await newest(world)
            sizes.append(len(snapshot.state))
        loaded = await Loader(world.views, world.snapshots).load(
            LOCAL, thread_id(), Position(len(events) + 1)
        )
        assert loaded.snapshot == "hit"
        assert loaded.folded < SNAPSHOT_EVERY_EVENTS + 500, "the snapshot, and one batch behind it"
        assert encode_state(loaded.state) == encode_state(story.state)
        assert max(sizes) < INPUT_WINDOW * 60, "the ids of the input window, and little more"
        snapshot = await newest(world)
        decoded = decode_state(snapshot.state, snapshot.fold_version, snapshot.sha256)
        assert decoded.head == snapshot.seq
        assert b"hello" not in snapshot.state, "no content"


async def newest(world: World) -> Snapshot:
    snapshot = await world.snapshots.newest(LOCAL, thread_id())
    assert snapshot is not None
    return snapshot


async def append_all(log: MemoryLog, events: Sequence[Event]) -> None:
    for at in range(0, len(events), 500):
        await log.append(events[at : at + 500])


async def test_records_that_cannot_be_used_are_dead_letters_and_stop_nobody() -> None:
    async with World() as world:
        await world.go(*BEGIN)
        fields = {**vars(raw_message("x", thread_id()))}
        del fields["body"], fields["data"]
        no_envelope = await world.log.append_raw({**fields, "event_id": "no-uuid"}, b"{}")
        unfit = await world.log.append_raw(fields, b'{"content":[]}')
        await world.go(*TURN)
        await caught_up(world)
        letters = {letter.position: letter.reason for letter in world.views.dead_letters.values()}
        assert letters.keys() == {no_envelope, unfit}
        assert "envelope" in letters[no_envelope]
        assert letters[unfit] == "body does not fit its schema"
        assert world.state().verdict == "completed"
        await agrees(world)


async def test_F09_a_critical_unknown_event_stops_its_thread_and_no_other_one() -> None:
    async with World() as world:
        await world.go(*BEGIN, message(), turn_started(), unknown("note.added"))
        await agrees(world)
        stop = unknown("thread.frozen", critical=True)
        await world.log.append([stop(world.state()), message(key="k")(world.state())])
        await world.go(*BEGIN, *TURN, thread=thread_id(1))
        await agrees(world)
        row = await world.views.thread(LOCAL, thread_id())
        assert row is not None
        assert row.status == "halted"
        assert (await world.views.open_threads()).threads == []


async def test_a_version_that_is_newer_is_counted_alike() -> None:
    async with World() as world:
        await world.go(*BEGIN, bent(unknown("message.received", version=2), critical=False))
        await world.go(*TURN)
        await agrees(world)
        assert world.state().opaque == 1


class BrokenSnapshots(MemorySnapshots):
    """Raises what no port may raise, for one thread."""

    async def newest(self, tenant: TenantId, thread: ThreadId) -> Snapshot | None:
        if thread == thread_id(1):
            raise KeyError("a bug of ours")
        return await super().newest(tenant, thread)


async def test_an_error_of_ours_stops_one_threads_views_and_no_other_ones() -> None:
    world = World()
    world.snapshots = BrokenSnapshots()
    async with world:
        broken = raw_message("hello", thread_id(1), event_id=event_id(1))
        await world.log.append([broken])
        await world.log.append([raw_message("again", thread_id(1), event_id=event_id(2))])
        await world.go(*BEGIN, *TURN)
        await caught_up(world)
        reasons = [letter.reason for letter in world.views.dead_letters.values()]
        assert reasons == ["the projection failed here: KeyError", "its thread was stopped"]
        row = await world.views.thread(LOCAL, thread_id())
        assert row is not None
        assert row.verdict == "completed"
