"""A log of several partitions in memory, with views that wait as those of a remote log do."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.errors import ViewsRebuildingError
from threadlog.events.envelope import Event
from threadlog.ids import (
    NO_POSITION,
    EventId,
    Partition,
    Position,
    Seq,
    TenantId,
    ThreadId,
    partition_of,
)
from threadlog.ports.log import Log, Receipt, Record
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
)
from threadlog.ports.views import (
    Direction,
    StoredEvent,
    ThreadPlace,
    ThreadRow,
    ViewBatch,
)


class StrangeLog(MemoryLog):
    """A log that holds what others may have brought there."""

    async def append_record(self, key: str, event: Event | None, problem: str | None) -> Position:
        """A record that no appender of ours makes; neither event nor problem: a gap."""
        position = self._add(key, event, problem)
        await self._tell()
        return position


class SharedLog:
    """Implements `ports.log.Appender`: events go to the partition of their key."""

    def __init__(self, partitions: int) -> None:
        self.logs = [StrangeLog() for _ in range(partitions)]

    def partition_of(self, key: str) -> Partition:
        return partition_of(key, len(self.logs))

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        return await self.logs[self.partition_of(events[0].key)].append(events)

    def partition(self, partition: Partition) -> Log:
        """One partition, as a service has it."""
        return _PartitionLog(self, self.logs[partition])


class _PartitionLog:
    """Implements `ports.log.Log`."""

    def __init__(self, shared: SharedLog, log: MemoryLog) -> None:
        self._shared, self._log = shared, log

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        return await self._shared.append(events)

    async def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        async for batch in self._log.subscribe(after):
            yield batch

    async def end(self) -> Position:
        return await self._log.end()


class RemoteViews(MemoryViews):
    """Views of one partition of a remote log. They can be held back, emptied, and set back.

    `asked`: the positions up to which records were wanted. `begun`: end and reached, as projections
    began with them. `moving`: nothing is applied while it is cleared. `refuses_until`: threads
    cannot be read before the watermark is there, as the port says of views that were set back.
    """

    def __init__(self, log: MemoryLog, snapshots: MemorySnapshots) -> None:
        super().__init__(log, snapshots)
        self.asked: list[Position] = []
        self.begun: list[tuple[Position, Position]] = []
        self.refuses_until = NO_POSITION
        self.refused = 0
        self.moving = asyncio.Event()
        self.moving.set()
        self.save()

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        self.begun.append((end, reached))
        if self._watermark < reached:
            self.refuses_until = max(self.refuses_until, reached)
        return await super().begin(end, reached=reached)

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        if self._watermark < self.refuses_until:
            raise ViewsRebuildingError("not there again")
        return await self.row(tenant, thread)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return self._threads.get((tenant, thread))

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        await self.moving.wait()
        stored = await super().apply(batch, urgent=urgent)
        self.refused += stored != batch.watermark
        return stored

    async def records(
        self, tenant: TenantId, thread: ThreadId, *, after: Position, before: Position
    ) -> Sequence[Record]:
        self.asked.append(before)
        await self.wait(Position(before - 1))
        found = await super().records(tenant, thread, after=after, before=before)
        # A remote log has no index of its own: what is not stored here cannot be found there.
        return [record for record in found if record.position in self._judged]

    def save(self) -> None:
        """What `restore` goes back to."""
        self._saved = (self._watermark, {**self._judged}, {**self._threads})

    def restore(self) -> None:
        """As a store does that lost its last writes."""
        self._watermark, judged, threads = self._saved
        self._judged, self._threads = {**judged}, {**threads}

    def content(self) -> tuple[object, ...]:
        """All that readers can see."""
        rows = sorted(self._judged.items())
        threads = sorted(self._threads.items())
        return self._watermark, rows, threads, sorted(self.dead_letters.items()), self._facts


class SharedViews:
    """Implements `ports.views.Views` over the views of all partitions."""

    def __init__(self, log: SharedLog, parts: Sequence[MemoryViews]) -> None:
        self._log, self._parts = log, parts

    def _of(self, tenant: TenantId, thread: ThreadId) -> MemoryViews:
        return self._parts[self._log.partition_of(f"{tenant}/{thread}")]

    async def reached(self, tenant: TenantId, thread: ThreadId, position: Position) -> None:
        await self._of(tenant, thread).reached(tenant, thread, position)

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self._of(tenant, thread).thread(tenant, thread)

    async def threads(
        self, tenant: TenantId, *, limit: int, before: ThreadPlace | None = None
    ) -> Sequence[ThreadRow]:
        raise NotImplementedError

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        part = self._of(tenant, thread)
        return await part.events(tenant, thread, first=first, last=last, limit=limit)

    async def voids(
        self, tenant: TenantId, thread: ThreadId, *, limit: int
    ) -> Sequence[StoredEvent]:
        return await self._of(tenant, thread).voids(tenant, thread, limit=limit)

    async def find(
        self, tenant: TenantId, thread: ThreadId, event_id: EventId
    ) -> StoredEvent | None:
        return await self._of(tenant, thread).find(tenant, thread, event_id)

    async def causes(
        self,
        tenant: TenantId,
        thread: ThreadId,
        event_id: EventId,
        direction: Direction,
        *,
        limit: int,
    ) -> Sequence[StoredEvent]:
        part = self._of(tenant, thread)
        return await part.causes(tenant, thread, event_id, direction, limit=limit)

    async def records(
        self, tenant: TenantId, thread: ThreadId, *, after: Position, before: Position
    ) -> Sequence[Record]:
        part = self._of(tenant, thread)
        return await part.records(tenant, thread, after=after, before=before)

    async def usage(
        self, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None = None
    ) -> Sequence[UsageRow]:
        raise NotImplementedError
