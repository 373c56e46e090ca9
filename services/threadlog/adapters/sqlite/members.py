"""The members port of the embedded runtime: the lock of the file proves who is gone."""

from threadlog.ids import WorkerId


class LockMembers:
    """Implements `ports.members.Members`.

    Only one process holds the file's lock, so every worker that this process does not run is gone,
    for certain and at once. To be used only while the lock is held.
    """

    watch_ms = 0

    def __init__(self) -> None:
        self._own: set[WorkerId] = set()

    def register(self, worker: WorkerId) -> None:
        """`worker` runs in this process, until it ends."""
        self._own.add(worker)

    async def is_gone(self, worker: WorkerId) -> bool:
        return worker not in self._own
