"""The members port in memory: the living are those who joined and have not left."""

from threadlog.ids import WorkerId


class MemoryMembers:
    """Implements `ports.members.Members`. `watch_ms` as the port says."""

    def __init__(self, watch_ms: int = 0) -> None:
        self.watch_ms = watch_ms
        self._living: set[WorkerId] = set()

    def join(self, worker: WorkerId) -> None:
        """`worker` is alive from now on."""
        self._living.add(worker)

    def leave(self, worker: WorkerId) -> None:
        """`worker` is gone."""
        self._living.discard(worker)

    async def is_gone(self, worker: WorkerId) -> bool:
        return worker not in self._living
