"""The views port on the embedded file: both the projection's side and the readers'."""

import asyncio
from collections.abc import Sequence
from typing import cast

from threadlog.adapters.sqlite import view_queries
from threadlog.adapters.sqlite.file import POLL_S, SqliteFile
from threadlog.adapters.sqlite.jobs import ViewJob
from threadlog.ids import NO_POSITION, EventId, Position, Seq, TenantId, ThreadId
from threadlog.ports.log import Record
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
)
from threadlog.ports.views import (
    Direction,
    OpenThreads,
    StoredEvent,
    ThreadPlace,
    ThreadRow,
    ViewBatch,
)

_PAGE = "AND position < ? ORDER BY position DESC LIMIT ?"
_ONE = "AND thread_id = ?"
# One statement, so that both are of one moment.
_OPEN = (
    "SELECT position, tenant_id, thread_id FROM (SELECT position FROM watermark WHERE id = 1)"
    " LEFT JOIN (SELECT tenant_id, thread_id FROM threads WHERE status IN ('open', 'queued'))"
    " ON 1 ORDER BY 2, 3"
)
_END = 2**63 - 1


class SqliteViews:
    """Implements `ports.views.PartitionViews` and `ports.views.Views`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._reader = file.view_reader

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        return await self.watermark()

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        job = ViewJob(self._file.future(), batch, urgent)
        # The writer answers a ViewJob with the stored watermark.
        return cast(Position, await self._file.run(job))

    async def watermark(self) -> Position:
        return await self._file.read_watermark()

    async def wait(self, position: Position) -> None:
        if not self._file.is_read_only:
            await self._file.watermark_feed.wait(position)
            return
        while await self._file.read_watermark() < position:
            await asyncio.sleep(POLL_S)

    async def reached(self, tenant: TenantId, thread: ThreadId, position: Position) -> None:
        await self.wait(position)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self.thread(tenant, thread)

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        rows = await self._reader.run(lambda c: view_queries.thread_rows(c, _ONE, (tenant, thread)))
        return rows[0] if rows else None

    async def threads(
        self, tenant: TenantId, *, limit: int, before: ThreadPlace | None = None
    ) -> Sequence[ThreadRow]:
        end = _END if before is None else before.position
        return await self._reader.run(
            lambda c: view_queries.thread_rows(c, _PAGE, (tenant, end, limit))
        )

    async def open_threads(self) -> OpenThreads:
        rows = await self._reader.run(lambda c: c.execute(_OPEN).fetchall())
        found = [(TenantId(t), ThreadId(i)) for _, t, i in rows if i is not None]
        return OpenThreads(Position(rows[0][0]), found)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        return await self._reader.run(
            lambda c: view_queries.events_by_seq(c, (tenant, thread), first, last, limit)
        )

    async def voids(
        self, tenant: TenantId, thread: ThreadId, *, limit: int
    ) -> Sequence[StoredEvent]:
        return await self._reader.run(lambda c: view_queries.voids(c, tenant, thread, limit))

    async def find(
        self, tenant: TenantId, thread: ThreadId, event_id: EventId
    ) -> StoredEvent | None:
        return await self._reader.run(
            lambda c: view_queries.event_by_id(c, tenant, thread, event_id)
        )

    async def causes(
        self,
        tenant: TenantId,
        thread: ThreadId,
        event_id: EventId,
        direction: Direction,
        *,
        limit: int,
    ) -> Sequence[StoredEvent]:
        return await self._reader.run(
            lambda c: view_queries.causes(c, (tenant, thread), event_id, direction, limit)
        )

    async def records(
        self, tenant: TenantId, thread: ThreadId, *, after: Position, before: Position
    ) -> Sequence[Record]:
        return await self._reader.run(
            lambda c: view_queries.records(c, (tenant, thread), after, before)
        )

    async def usage(
        self, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None = None
    ) -> Sequence[UsageRow]:
        return await self._reader.run(lambda c: view_queries.usage(c, tenant, group, thread))
