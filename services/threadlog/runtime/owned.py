"""An actor on one partition of a log that several workers share."""

from typing import Any

from threadlog.ids import Position
from threadlog.ports.log import Log
from threadlog.ports.views import PartitionViews
from threadlog.runtime.actor import Actor
from threadlog.runtime.patience import patiently


class OwnedActor:
    """Implements `runtime.assignment.PartitionService`."""

    def __init__(self, actor: Actor[Any], log: Log, views: PartitionViews) -> None:
        self.actor = actor
        self._log = log
        self._views = views
        self.is_ready = False

    async def run(self, committed: Position | None) -> None:
        """Begins where the views are, once they have passed what the group has committed.

        Effects: the open threads of the partition are loaded first: what an earlier owner began is
                 found in their states, not in the records.
        """
        target = committed if committed is not None else await patiently(self._log.end)
        while True:
            await patiently(lambda: self._views.wait(target))
            found = await patiently(self._views.open_threads)
            if found.watermark >= target:
                break
            # Again: the views were emptied in between.
        self.is_ready = True
        await self.actor.worker.run(found.watermark, found.threads)

    async def let_go(self) -> Position | None:
        """Nothing is claimed, decided or settled any more."""
        if not self.is_ready:
            return None
        return await self.actor.let_go()

    def take_back(self, committed: Position | None) -> None:
        """Acts again, in a new epoch."""
        self.actor.take_back(committed)

    async def drain(self, timeout_ms: int) -> None:
        """What runs has ended, or was ended, and is on record."""
        await self.actor.drain(timeout_ms)

    @property
    def is_busy(self) -> bool:
        """Whether a claim of this worker is open on the partition."""
        return self.actor.is_busy

    @property
    def commit_point(self) -> Position | None:
        """Up to where every consequence is acknowledged."""
        return self.actor.worker.ledger.commit_point if self.is_ready else None
