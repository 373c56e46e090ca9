"""The views port in memory: the batches as they came, and loops over the log for every question."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.ids import NO_POSITION, EventId, Position, Seq, TenantId, ThreadId
from threadlog.ports.log import Record
from threadlog.ports.usage import (
    UsageFact,
    UsageGroup,
    UsageRow,
    UsageTotals,
)
from threadlog.ports.views import (
    DeadLetter,
    Direction,
    Judged,
    OpenThreads,
    StoredEvent,
    ThreadPlace,
    ThreadRow,
    ViewBatch,
)


class MemoryViews:
    """Implements `ports.views.PartitionViews` and `ports.views.Views` on a `MemoryLog`."""

    def __init__(self, log: MemoryLog, snapshots: MemorySnapshots) -> None:
        self._log = log
        self._snapshots = snapshots
        self._watermark = NO_POSITION
        self._moved = asyncio.Condition()
        self._judged: dict[Position, Judged] = {}
        self._threads: dict[tuple[TenantId, ThreadId], ThreadRow] = {}
        self._facts: dict[Position, UsageFact] = {}
        self.dead_letters: dict[Position, DeadLetter] = {}

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        return self._watermark

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        if batch.expected != self._watermark:
            return self._watermark
        self._judged.update((row.position, row) for row in batch.judged)
        self._threads.update(((row.tenant_id, row.thread_id), row) for row in batch.threads)
        self._facts.update((row.position, row) for row in batch.usage)
        self.dead_letters.update((row.position, row) for row in batch.dead_letters)
        for snapshot in batch.snapshots:
            self._snapshots.store(snapshot)
        self._watermark = batch.watermark
        async with self._moved:
            self._moved.notify_all()
        return batch.watermark

    async def watermark(self) -> Position:
        return self._watermark

    async def wait(self, position: Position) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self._watermark >= position)

    async def reached(self, tenant: TenantId, thread: ThreadId, position: Position) -> None:
        await self.wait(position)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self.thread(tenant, thread)

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return self._threads.get((tenant, thread))

    async def threads(
        self, tenant: TenantId, *, limit: int, before: ThreadPlace | None = None
    ) -> Sequence[ThreadRow]:
        rows = [
            row
            for row in self._threads.values()
            if row.tenant_id == tenant and (before is None or row.position < before.position)
        ]
        return sorted(rows, key=lambda row: row.position, reverse=True)[:limit]

    async def open_threads(self) -> OpenThreads:
        is_open = ("open", "queued")
        found = sorted(key for key, row in self._threads.items() if row.status in is_open)
        return OpenThreads(self._watermark, found)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        found = [
            stored
            for stored in self._stored(tenant, thread)
            if stored.seq is not None and first <= stored.seq <= last
        ]
        return found[:limit]

    async def voids(
        self, tenant: TenantId, thread: ThreadId, *, limit: int
    ) -> Sequence[StoredEvent]:
        return [s for s in self._stored(tenant, thread) if s.seq is None][:limit]

    async def find(
        self, tenant: TenantId, thread: ThreadId, event_id: EventId
    ) -> StoredEvent | None:
        copies = [s for s in self._stored(tenant, thread) if s.event.event_id == event_id]
        accepted = [s for s in copies if s.seq is not None]
        return next(iter(accepted + copies), None)

    async def causes(
        self,
        tenant: TenantId,
        thread: ThreadId,
        event_id: EventId,
        direction: Direction,
        *,
        limit: int,
    ) -> Sequence[StoredEvent]:
        copies = list(self._stored(tenant))
        first = {s.event.event_id: s.position for s in reversed(copies)}
        accepted = [s for s in copies if s.seq is not None]

        def follows(effect: StoredEvent, cause: StoredEvent) -> bool:
            is_named = effect.event.caused_by == cause.event.event_id
            return is_named and first[cause.event.event_id] < effect.position

        start = [
            s for s in accepted if s.event.event_id == event_id and s.event.thread_id == thread
        ]
        if direction == "descendants":
            return _closure(start, accepted, follows)[:limit]
        # The nearest are kept: those that come last in the log.
        found = _closure(start, accepted, lambda a, b: follows(b, a))
        return found[max(len(found) - limit, 0) :]

    async def records(
        self, tenant: TenantId, thread: ThreadId, *, after: Position, before: Position
    ) -> Sequence[Record]:
        key = f"{tenant}/{thread}"
        return [r for r in self._log.entries if r.key == key and after < r.position < before]

    async def usage(
        self, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None = None
    ) -> Sequence[UsageRow]:
        groups: dict[tuple[str, ...], list[UsageFact]] = defaultdict(list)
        for fact in self._facts.values():
            if fact.tenant_id == tenant and thread in (None, fact.thread_id):
                groups[tuple(_group_value(fact, name) for name in group)].append(fact)
        return [
            UsageRow(values, _sum(facts), sum(fact.tool_ms or 0 for fact in facts))
            for values, facts in sorted(groups.items())
        ]

    def _stored(self, tenant: TenantId, thread: ThreadId | None = None) -> Iterator[StoredEvent]:
        """Every judged event of the tenant, or of one thread, in log order."""
        for entry in self._log.entries:
            event, judged = entry.event, self._judged.get(entry.position)
            if event is None or judged is None or event.tenant_id != tenant:
                continue
            if thread in (None, event.thread_id):
                yield StoredEvent(entry.position, judged.seq, event, judged.void)


def _closure(
    start: Iterable[StoredEvent],
    among: Sequence[StoredEvent],
    follows: Callable[[StoredEvent, StoredEvent], bool],
) -> list[StoredEvent]:
    """`start`, and all that follows from what is found already, in log order."""
    found = {s.position: s for s in start}
    edge = list(found.values())
    while edge:
        edge = [s for s in among if s.position not in found and any(follows(s, e) for e in edge)]
        found.update((s.position, s) for s in edge)
    return [found[position] for position in sorted(found)]


def _group_value(fact: UsageFact, name: UsageGroup) -> str:
    values: dict[UsageGroup, str] = {
        "tenant": fact.tenant_id,
        "thread": fact.thread_id,
        "turn": fact.turn_id,
        "model": f"{fact.provider}/{fact.model}",
        "day": fact.occurred_at[:10],
        "hour": fact.occurred_at[:13],
    }
    return values[name]


def _sum(facts: Sequence[UsageFact]) -> UsageTotals:
    prices = [fact.cost_micros for fact in facts if fact.cost_micros is not None]
    return UsageTotals(
        steps=len({(fact.turn_id, fact.step) for fact in facts if fact.tool_ms is None}),
        input=sum(fact.input for fact in facts),
        output=sum(fact.output for fact in facts),
        cache_read=sum(fact.cache_read for fact in facts),
        cache_write=sum(fact.cache_write for fact in facts),
        reasoning=sum(fact.reasoning for fact in facts),
        cost_micros=sum(prices) if prices else None,
    )
