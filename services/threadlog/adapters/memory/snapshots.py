"""The snapshots port in memory: the last one stored of each thread."""

from threadlog.ids import TenantId, ThreadId
from threadlog.ports.snapshots import Snapshot


class MemorySnapshots:
    """Implements `ports.snapshots.Snapshots`."""

    def __init__(self) -> None:
        self._newest: dict[tuple[TenantId, ThreadId], Snapshot] = {}

    def store(self, snapshot: Snapshot) -> None:
        """`snapshot` is the newest of its thread; called by the views, with their batch."""
        self._newest[snapshot.tenant_id, snapshot.thread_id] = snapshot

    async def newest(self, tenant: TenantId, thread: ThreadId) -> Snapshot | None:
        return self._newest.get((tenant, thread))
