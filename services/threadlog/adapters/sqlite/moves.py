"""The notify port of a process that only reads the file: its watermark says when to look again."""

from collections.abc import AsyncIterator

from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.ids import Position, TenantId, ThreadId
from threadlog.ports.notify import Advanced, Frame, SoFar


class FileNotify:
    """Implements `ports.notify.Notify` without deltas: those stay in the process that runs."""

    def __init__(self, views: SqliteViews) -> None:
        self._views = views

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        """Nobody hears a reader."""

    async def so_far(self, tenant: TenantId, thread: ThreadId) -> SoFar | None:
        return None

    async def listen(self, tenant: TenantId, thread: ThreadId) -> AsyncIterator[Frame]:
        """Where the thread is now, and again whenever the views moved."""
        while True:
            watermark = await self._views.watermark()
            row = await self._views.thread(tenant, thread)
            if row is not None:
                yield Advanced(row.head, row.open_turn, row.status == "idle")
            await self._views.wait(Position(watermark + 1))
