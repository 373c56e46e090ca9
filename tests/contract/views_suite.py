"""What every pair of views and view writer promises, on a log of its own tenant of rows.

`Parts` is one backend, opened. The tests judge what they append themselves: the fold is elsewhere.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.helpers.events import LOCAL, OTHER, WHEN, event_id, message
from tests.helpers.logs import DEADLINE_S
from tests.helpers.thread_events import (
    attempt_failed,
    file_changed,
    requested,
    responded,
    step_released,
    step_started,
    tool_finished,
    tool_started,
)
from tests.helpers.threads import CLAIMED, Move, Story
from threadlog import ids
from threadlog.events.envelope import Event
from threadlog.ids import EventId, Position, Seq, TenantId, ThreadId
from threadlog.ports.log import Log, Receipt
from threadlog.ports.snapshots import Snapshots
from threadlog.ports.usage import UsageTotals
from threadlog.ports.views import (
    Direction,
    Judged,
    PartitionViews,
    StoredEvent,
    ThreadPlace,
    ThreadRow,
    ThreadStatus,
    ViewBatch,
    Views,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """One backend's ports."""

    log: Log
    partition: PartitionViews
    views: Views
    snapshots: Snapshots


def row(
    thread: ThreadId, position: int, *, tenant: TenantId = LOCAL, status: ThreadStatus = "idle"
) -> ThreadRow:
    """A thread's row; its members follow from `position`."""
    return ThreadRow(
        tenant_id=tenant,
        thread_id=thread,
        title=f"title {position} é '\"",
        status=status,
        head=Seq(position),
        position=Position(position),
        turns=position,
        open_turn=ids.turn_id(thread, 1) if status == "open" else None,
        queued=1 if status == "queued" else 0,
        verdict="completed" if position % 2 else None,
        model="scripted/one",
        usage=UsageTotals(position, 2, 3, 4, 5, 6, None if position % 2 else 7),
        created_at=WHEN,
        updated_at=WHEN,
    )


async def judge(
    parts: Parts, events: Sequence[Event], seqs: Sequence[int | None]
) -> tuple[list[Receipt], list[StoredEvent]]:
    """The events are in the log and judged; what the views must then say of them."""
    receipts = [receipt for event in events for receipt in await parts.log.append([event])]
    reasons = [None if seq is not None else "stale" for seq in seqs]
    judged = [
        Judged(r.position, event, None if seq is None else Seq(seq), reason)
        for r, event, seq, reason in zip(receipts, events, seqs, reasons, strict=True)
    ]
    await apply(parts, ViewBatch(Position(0), receipts[-1].position, judged=judged))
    stored = [
        StoredEvent(j.position, j.seq, event, j.void)
        for j, event in zip(judged, events, strict=True)
    ]
    return receipts, stored


async def apply(parts: Parts, batch: ViewBatch) -> None:
    """The batch is in, whatever the watermark was."""
    batch = replace(batch, expected=await parts.partition.watermark())
    assert await parts.partition.apply(batch, urgent=True) == batch.watermark


TWO_FILES: tuple[Move, ...] = (
    *(*CLAIMED, attempt_failed(), step_started(), step_released(), step_started(), responded(1)),
    *(requested(0), tool_started(0), file_changed(0, "a"), file_changed(0, "b")),
    tool_finished(0),
)


class ViewsSuite:
    """Inherit, and define the fixture `parts`: a `Parts` whose views start empty."""

    # -- the watermark

    async def test_the_watermark_moves_with_its_batch(self, parts: Parts) -> None:
        assert await parts.partition.watermark() == 0
        assert await parts.partition.apply(ViewBatch(Position(0), Position(3)), urgent=True) == 3
        assert await parts.partition.watermark() == 3

    async def test_a_batch_that_expects_another_watermark_changes_nothing(
        self, parts: Parts
    ) -> None:
        thread = ThreadId(ids.draw())
        await apply(parts, ViewBatch(Position(0), Position(5)))
        for expected in (0, 4, 6):
            batch = ViewBatch(Position(expected), Position(9), threads=[row(thread, 9)])
            assert await parts.partition.apply(batch, urgent=True) == 5
        assert await parts.partition.watermark() == 5
        assert await parts.views.thread(LOCAL, thread) is None

    async def test_of_two_batches_for_one_watermark_one_is_applied(self, parts: Parts) -> None:
        first, second = ThreadId(ids.draw()), ThreadId(ids.draw())
        answers = await asyncio.gather(
            parts.partition.apply(
                ViewBatch(Position(0), Position(1), threads=[row(first, 1)]), urgent=True
            ),
            parts.partition.apply(
                ViewBatch(Position(0), Position(2), threads=[row(second, 2)]), urgent=True
            ),
        )
        assert answers[0] == answers[1] == await parts.partition.watermark()
        applied = [t for t in (first, second) if await parts.views.thread(LOCAL, t)]
        assert applied == [first if answers[0] == 1 else second]

    async def test_a_chain_of_batches_is_applied_in_order(self, parts: Parts) -> None:
        thread = ThreadId(ids.draw())
        batches = [
            ViewBatch(Position(n), Position(n + 1), threads=[row(thread, n + 1)]) for n in range(50)
        ]
        answers = await asyncio.gather(
            *(parts.partition.apply(b, urgent=n % 7 == 0) for n, b in enumerate(batches))
        )
        assert answers == list(range(1, 51))
        assert await parts.views.thread(LOCAL, thread) == row(thread, 50)

    async def test_a_batch_that_is_not_urgent_is_applied_without_company(
        self, parts: Parts
    ) -> None:
        async with asyncio.timeout(DEADLINE_S):
            batch = ViewBatch(Position(0), Position(1))
            assert await parts.partition.apply(batch, urgent=False) == 1

    # -- wait

    async def test_wait_ends_when_the_watermark_is_reached(self, parts: Parts) -> None:
        waiting = [asyncio.create_task(parts.partition.wait(Position(n))) for n in (1, 2, 5)]
        await apply(parts, ViewBatch(Position(0), Position(2)))
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*waiting[:2])
        assert not waiting[2].done()
        await apply(parts, ViewBatch(Position(0), Position(7)))
        async with asyncio.timeout(DEADLINE_S):
            await waiting[2]
            await parts.partition.wait(Position(7))

    async def test_after_wait_the_rows_are_there(self, parts: Parts) -> None:
        thread = ThreadId(ids.draw())
        waiting = asyncio.create_task(parts.partition.wait(Position(1)))
        await apply(parts, ViewBatch(Position(0), Position(1), threads=[row(thread, 1)]))
        await waiting
        assert await parts.views.thread(LOCAL, thread) == row(thread, 1)

    # -- threads

    async def test_a_thread_row_comes_back_as_it_was_last_stored(self, parts: Parts) -> None:
        thread = ThreadId(ids.draw())
        statuses: list[ThreadStatus] = ["queued", "open", "halted", "idle"]
        for position, status in enumerate(statuses, 1):
            stored = row(thread, position, status=status)
            await apply(parts, ViewBatch(Position(0), Position(position), threads=[stored]))
            assert await parts.views.thread(LOCAL, thread) == stored
            is_open = (LOCAL, thread) in (await parts.partition.open_threads()).threads
            assert is_open == (status in ("queued", "open"))

    async def test_threads_page_from_the_newest_to_the_oldest(self, parts: Parts) -> None:
        threads = [ThreadId(ids.draw()) for _ in range(25)]
        rows = [row(thread, at) for at, thread in enumerate(threads, 1)]
        rows += [row(ThreadId(ids.draw()), 30, tenant=OTHER)]
        await apply(parts, ViewBatch(Position(0), Position(30), threads=rows))
        # The oldest was active again.
        again = row(threads[0], 31)
        await apply(parts, ViewBatch(Position(0), Position(31), threads=[again]))
        pages: list[ThreadRow] = []
        before: ThreadPlace | None = None
        while page := await parts.views.threads(LOCAL, limit=10, before=before):
            pages += page
            before = page[-1].place
        assert pages == [again, *rows[24:0:-1]]

    async def test_open_threads_are_of_all_tenants(self, parts: Parts) -> None:
        mine, foreign, idle = (ThreadId(ids.draw()) for _ in range(3))
        rows = [
            row(mine, 1, status="open"),
            row(foreign, 2, tenant=OTHER, status="queued"),
            row(idle, 3),
        ]
        await apply(parts, ViewBatch(Position(0), Position(3), threads=rows))
        found = await parts.partition.open_threads()
        assert found.watermark == 3
        assert set(found.threads) == {(LOCAL, mine), (OTHER, foreign)}
        assert len(found.threads) == 2
        closed = [row(mine, 4), row(foreign, 5, tenant=OTHER)]
        await apply(parts, ViewBatch(Position(0), Position(5), threads=closed))
        found = await parts.partition.open_threads()
        assert (found.watermark, list(found.threads)) == (5, [])

    # -- events

    async def test_events_are_read_by_seq_from_either_end(self, parts: Parts) -> None:
        thread, other = ThreadId(ids.draw()), ThreadId(ids.draw())
        events = [message(f"m{n}", thread) for n in range(30)]
        seqs = [None if n % 3 == 2 else n - n // 3 for n in range(30)]
        mixed = [
            e
            for pair in zip(events, [message(f"o{n}", other) for n in range(30)], strict=True)
            for e in pair
        ]
        _, stored = await judge(parts, mixed, [s for n in range(30) for s in (seqs[n], n)])
        mine = [s for s in stored if s.event.thread_id == thread]
        accepted = [s for s in mine if s.seq is not None]

        async def read(first: int, last: int, limit: int) -> Sequence[StoredEvent]:
            return await parts.views.events(
                LOCAL, thread, first=Seq(first), last=Seq(last), limit=limit
            )

        assert [s.seq for s in accepted] == list(range(20))
        assert await read(0, 19, 100) == accepted
        assert await read(0, 19, 7) == accepted[:7]
        assert await read(15, 10_000, 100) == accepted[15:]
        assert await read(3, 3, 1) == accepted[3:4]
        assert await read(20, 25, 10) == []
        assert await parts.views.voids(LOCAL, thread, limit=100) == [
            s for s in mine if s.seq is None
        ]
        assert len(await parts.views.voids(LOCAL, thread, limit=4)) == 4

    async def test_find_prefers_the_accepted_copy(self, parts: Parts) -> None:
        thread = ThreadId(ids.draw())
        twice, never, missing = message("twice", thread), message("never", thread), event_id("no")
        _, stored = await judge(parts, [twice, twice, never, never], [None, 0, None, None])
        views = parts.views
        assert await views.find(LOCAL, thread, twice.event_id) == stored[1]
        assert await views.find(LOCAL, thread, never.event_id) == stored[2]
        assert await views.find(LOCAL, thread, missing) is None

    async def test_records_are_the_thread_s_own_judged_or_not(self, parts: Parts) -> None:
        """Void or accepted, each with a seq of its own."""
        thread, other = ThreadId(ids.draw()), ThreadId(ids.draw())
        events = [message(f"m{n}", thread if n % 2 else other) for n in range(12)]
        receipts, _ = await judge(parts, events, [None if n % 4 < 2 else n // 4 for n in range(12)])
        await parts.log.append([message("unjudged", thread)])
        after, before = receipts[2].position, receipts[9].position
        found = await parts.views.records(LOCAL, thread, after=after, before=before)
        assert [record.event for record in found] == [events[3], events[5], events[7]]
        assert [r.position for r in found] == [receipts[n].position for n in (3, 5, 7)]

    async def test_more_records_than_one_read_takes(self, parts: Parts) -> None:
        """What was judged: views in another place than the log know of no other record."""
        thread = ThreadId(ids.draw())
        events = [message(f"m{n}", thread) for n in range(1_100)]
        seqs = [None if n % 5 == 1 else n - (n + 3) // 5 for n in range(1_100)]
        receipts, _ = await judge(parts, events, seqs)
        first, last = receipts[0].position, receipts[-1].position
        found = await parts.views.records(
            LOCAL, thread, after=Position(first - 1), before=Position(last + 1)
        )
        assert [record.event for record in found] == events

    # -- causes

    async def test_F05_one_query_leads_from_a_file_to_the_message_and_back(
        self, parts: Parts
    ) -> None:
        accepted = Story().go(*TWO_FILES).accepted
        await judge(parts, accepted, list(range(len(accepted))))
        root = next(e for e in accepted if e.type == "message.received")
        changes = [e for e in accepted if e.type == "file.changed"]
        assert len(changes) == 2
        for changed in changes:
            views = parts.views
            up = await views.causes(
                changed.tenant_id, changed.thread_id, changed.event_id, "ancestors", limit=99
            )
            assert [s.event.type for s in up] == [
                *("message.received", "turn.started", "step.started", "model.attempt_failed"),
                *("step.started", "step.released", "step.started", "model.responded"),
                *("tool.requested", "tool.started", "file.changed"),
            ]
            assert up[0].event == root
            down = await views.causes(
                root.tenant_id, root.thread_id, root.event_id, "descendants", limit=999
            )
            assert [s.event for s in up] == [s.event for s in down if s in up]

    async def test_causes_cross_threads_of_the_tenant(self, parts: Parts) -> None:
        one, two = ThreadId(ids.draw()), ThreadId(ids.draw())
        root = message("root", one)
        left = message("left", one, caused_by=root.event_id)
        right = message("right", two, caused_by=root.event_id)
        leaf = message("leaf", two, caused_by=left.event_id)
        void = message("void", two, caused_by=left.event_id)
        apart = message("apart", one)
        beyond = message("beyond", two, caused_by=void.event_id)
        events = [root, left, right, leaf, void, apart, beyond]
        _, stored = await judge(parts, events, [0, 1, 0, 1, None, 2, 2])

        async def causes(of: Event, **more: int) -> tuple[list[Event], list[Event]]:
            limit = more.get("limit", 100)
            up = await parts.views.causes(
                LOCAL, of.thread_id, of.event_id, "ancestors", limit=limit
            )
            down = await parts.views.causes(
                LOCAL, of.thread_id, of.event_id, "descendants", limit=limit
            )
            return [s.event for s in up], [s.event for s in down]

        assert await causes(root) == ([root], [root, left, right, leaf])
        assert await causes(leaf) == ([root, left, leaf], [leaf])
        assert await causes(left) == ([root, left], [left, leaf])
        assert await causes(void) == ([], [])
        assert await causes(beyond) == ([beyond], [beyond])
        assert await causes(leaf, limit=2) == ([left, leaf], [leaf])
        assert await causes(root, limit=3) == ([root], [root, left, right])
        [found] = await parts.views.causes(LOCAL, one, apart.event_id, "ancestors", limit=9)
        assert found == stored[5]

    async def test_an_id_that_two_tenants_use_links_neither_to_the_other(
        self, parts: Parts
    ) -> None:
        thread = ThreadId(ids.draw())
        root, leaf = event_id("same root"), event_id("same leaf")
        events = [
            message(text, thread, tenant=tenant, event_id=named, caused_by=cause)
            for text, named, cause in (("root", root, None), ("leaf", leaf, root))
            for tenant in (LOCAL, OTHER)
        ]
        _, stored = await judge(parts, events, [0, 0, 1, 1])
        for tenant, own in ((LOCAL, stored[0::2]), (OTHER, stored[1::2])):
            assert await parts.views.causes(tenant, thread, leaf, "ancestors", limit=9) == own
            assert await parts.views.causes(tenant, thread, root, "descendants", limit=9) == own

    async def test_a_long_chain_of_causes_is_followed(self, parts: Parts) -> None:
        thread = ThreadId(ids.draw())
        chain = [message("0", thread)]
        for n in range(1, 200):
            chain.append(message(str(n), thread, caused_by=chain[-1].event_id))
        await judge(parts, chain, list(range(200)))
        down = await parts.views.causes(LOCAL, thread, chain[0].event_id, "descendants", limit=500)
        up = await parts.views.causes(LOCAL, thread, chain[-1].event_id, "ancestors", limit=500)
        assert [s.event for s in down] == [s.event for s in up] == chain

    async def test_a_void_copy_of_a_cause_does_not_cut_the_chain(self, parts: Parts) -> None:
        thread = ThreadId(ids.draw())
        cause = message("cause", thread)
        early = message("early", thread, caused_by=cause.event_id)
        late = message("late", thread, caused_by=cause.event_id)
        await judge(parts, [cause, early, cause, late, cause], [None, 0, 1, 2, None])
        down = await parts.views.causes(LOCAL, thread, cause.event_id, "descendants", limit=9)
        assert [s.seq for s in down] == [0, 1, 2]
        for effect, seqs in ((early, [0, 1]), (late, [1, 2])):
            up = await parts.views.causes(LOCAL, thread, effect.event_id, "ancestors", limit=9)
            assert [s.seq for s in up] == seqs

    async def test_a_cause_that_comes_only_later_is_no_link(self, parts: Parts) -> None:
        """No runtime of ours writes one; an imported log may hold a ring."""
        thread = ThreadId(ids.draw())
        one, two = event_id("ring one"), event_id("ring two")
        ring = [
            message("1", thread, event_id=one, caused_by=two),
            message("2", thread, event_id=two, caused_by=one),
        ]
        await judge(parts, ring, [0, 1])
        expected: list[tuple[EventId, Direction, list[Event]]] = [
            (one, "ancestors", ring[:1]),
            (one, "descendants", ring),
            (two, "ancestors", ring),
            (two, "descendants", ring[1:]),
        ]
        for of, direction, events in expected:
            found = await parts.views.causes(LOCAL, thread, of, direction, limit=100)
            assert [s.event for s in found] == events

    # -- tenants

    async def test_a_foreign_tenant_sees_nothing(self, parts: Parts) -> None:
        """Not even with ids that it knows, and with an event of its own that names mine."""
        thread = ThreadId(ids.draw())
        mine = [message("mine", thread), message("void", thread)]
        theirs = message("theirs", thread, tenant=OTHER, caused_by=mine[0].event_id)
        receipts, stored = await judge(parts, [*mine, theirs], [0, None, 0])
        shown = ViewBatch(Position(0), Position(99), threads=[row(thread, 1)])
        await apply(parts, shown)
        stranger = TenantId("stranger")
        for tenant, own in ((OTHER, [stored[2]]), (stranger, [])):
            await self._sees_only(parts, tenant, thread, own, mine[0].event_id)
        down = await parts.views.causes(LOCAL, thread, mine[0].event_id, "descendants", limit=9)
        assert down == stored[:1]
        found = await parts.views.records(
            LOCAL, thread, after=Position(0), before=Position(receipts[-1].position + 1)
        )
        assert [record.event for record in found] == mine

    async def _sees_only(
        self,
        parts: Parts,
        tenant: TenantId,
        thread: ThreadId,
        own: list[StoredEvent],
        known: EventId,
    ) -> None:
        views = parts.views
        assert await views.thread(tenant, thread) is None
        assert await views.threads(tenant, limit=10) == []
        everything = await views.events(tenant, thread, first=Seq(0), last=Seq(99), limit=99)
        assert everything == own
        assert await views.voids(tenant, thread, limit=99) == []
        assert await views.find(tenant, thread, known) is None
        assert await views.causes(tenant, thread, known, "descendants", limit=99) == []
        assert await views.usage(tenant, ()) == []
        assert await parts.snapshots.newest(tenant, thread) is None
        for stored in own:
            up = await views.causes(tenant, thread, stored.event.event_id, "ancestors", limit=99)
            assert up == [stored]
