"""What one worker process holds of the log: a service for each partition, as its group says.

A partition that is given away is let go at once: nothing is claimed there any more, and the point
to commit is handed back. What already runs there goes on; the service reads on until its last claim
is closed (rule `follow`), and only then ends. If the partition comes back before that, the same
service takes it back, under a new epoch.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from threadlog.errors import ThreadlogError
from threadlog.ids import Partition, Position
from threadlog.limits import REVOKE_MS
from threadlog.ports.group import Group

_log = logging.getLogger("threadlog.assignment")
_COMMIT_S = 1.0
_LOOK_S = 0.02
_LET_GO_S = REVOKE_MS / 1_000 * 0.75
"""How long one partition may take to be let go; the rest of `REVOKE_MS` is for the commit."""


class PartitionService(Protocol):
    """A service on one partition. Made for one assignment, run once."""

    async def run(self, committed: Position | None) -> None:
        """Waits until it can begin, then serves the partition for ever.

        Shapes:  `committed`: how far the group has come; None: it never committed.
        """
        ...

    async def let_go(self) -> Position | None:
        """Another may serve the partition now; up to where all is done, None: never begun.

        Effects: nothing is claimed or decided any more; what runs goes on, `is_busy` until then.
        """
        ...

    def take_back(self, committed: Position | None) -> None:
        """It is served here again; everything was read meanwhile.

        Shapes:  `committed`: how far another owner has come since.
        """
        ...

    async def drain(self, timeout_ms: int) -> None:
        """What runs has ended, or was ended after `timeout_ms`, and is on record."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a claim of this service is open."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it serves, and does not wait to begin any more."""
        ...

    @property
    def commit_point(self) -> Position | None:
        """Up to where all is done; None: never begun."""
        ...


@dataclass(slots=True, eq=False)
class _Held:
    service: PartitionService
    task: asyncio.Task[None]
    committed: Position | None
    is_owned: bool = True
    following: asyncio.Task[None] | None = None


class Assignment:
    """Implements `ports.group.GroupListener` for one service. Started once, stopped once."""

    def __init__(self, name: str, group: Group, make: Callable[[Partition], PartitionService]):
        self.name = name
        self._group = group
        self._make = make
        self._held: dict[Partition, _Held] = {}
        self._committed: dict[Partition, Position] = {}
        self._following: set[asyncio.Task[None]] = set()
        self._has_drained = False
        self._is_joined = False
        self._committing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """The group knows this worker; partitions come when the group says so."""
        self._committing = asyncio.create_task(self._commit())
        self._watching = asyncio.create_task(self._watch())
        await self._group.join(self)
        self._is_joined = True

    async def failed(self) -> Exception:
        """What ended a service or the membership; waits until something does."""
        return await asyncio.shield(self._failure)

    @property
    def services(self) -> dict[Partition, PartitionService]:
        """The services of the partitions that are owned."""
        return {p: held.service for p, held in self._held.items() if held.is_owned}

    @property
    def followed(self) -> set[Partition]:
        """Partitions that are read on because a claim of this worker is open there."""
        return {p for p, held in self._held.items() if not held.is_owned}

    @property
    def points(self) -> dict[Partition, Position | None]:
        """How far each owned partition has come: the group's own word while it waits to begin."""
        owned = {p: held for p, held in self._held.items() if held.is_owned}
        return {p: held.service.commit_point or held.committed for p, held in owned.items()}

    @property
    def is_ready(self) -> bool:
        """Whether every partition that is owned is served."""
        return self.waits_for is None

    @property
    def waits_for(self) -> str | None:
        """Why not every partition that is owned is served; None: it is."""
        if not self._is_joined:
            return "not in its group yet"
        waiting = sorted(p for p, service in self.services.items() if not service.is_ready)
        if waiting:
            return f"partitions {waiting} wait for their views"
        return None

    async def stop(self, drain_ms: int) -> None:
        """Others have the partitions; nothing runs here any more; what was cut off is on record.

        Units:   `drain_ms`: how long what runs may go on.
        """
        # 1. Others may have the partitions at once (rule `handover`).
        for task in (self._committing, self._watching):
            if task is not None:
                task.cancel()
        await self._group.leave()
        # 2. What runs ends, or is ended.
        left = dict(self._held)
        drains = [held.service.drain(drain_ms) for held in left.values()]
        await asyncio.gather(*drains, return_exceptions=True)
        # 3. Nothing reads any more, not even what a follower is ending right now.
        self._has_drained = True
        await asyncio.gather(*self._following, return_exceptions=True)
        for partition, held in left.items():
            await self._close(partition, held)

    # -- GroupListener

    async def on_assigned(self, partitions: Mapping[Partition, Position | None]) -> None:
        """Each is served, or taken back by the service that still follows it."""
        for partition, committed in partitions.items():
            held = self._held.get(partition)
            if held is not None:
                held.is_owned = True
                if held.following is not None:
                    held.following.cancel()
                    held.following = None
                held.service.take_back(committed)
                continue
            service = self._make(partition)
            task = asyncio.create_task(service.run(committed), name=f"{self.name}-{partition}")
            task.add_done_callback(self._ended)
            self._held[partition] = _Held(service, task, committed)
        _log.info("%s: assigned %s", self.name, sorted(partitions))

    async def on_revoked(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """All are let go at once; where each has come."""
        points = await asyncio.gather(*(self._let_go(partition) for partition in partitions))
        found = zip(partitions, points, strict=True)
        _log.info("%s: revoked %s", self.name, sorted(partitions))
        return {partition: point for partition, point in found if point is not None}

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        """As revoked, and nothing is committed."""
        _log.warning("%s: lost %s", self.name, sorted(partitions))
        await asyncio.gather(*(self._let_go(partition) for partition in partitions))

    async def _let_go(self, partition: Partition) -> Position | None:
        held = self._held.get(partition)
        if held is None or not held.is_owned:
            return None
        held.is_owned = False
        self._committed.pop(partition, None)
        point = held.service.commit_point
        try:
            async with asyncio.timeout(_LET_GO_S):
                point = await held.service.let_go()
        except TimeoutError:
            _log.warning(
                "%s: partition %d goes before its claims are given back", self.name, partition
            )
        except Exception:  # noqa: BLE001  # a worker's edge: the partition goes all the same
            _log.exception("%s: partition %d was not let go in order", self.name, partition)
        if held.service.is_busy:
            held.following = asyncio.create_task(self._follow(partition, held))
            self._following.add(held.following)
            held.following.add_done_callback(self._following.discard)
        else:
            await self._close(partition, held)
        return point

    async def _follow(self, partition: Partition, held: _Held) -> None:
        """The partition is read on until nothing of ours is open there; cancelled if it is back."""
        while held.service.is_busy and not self._has_drained:
            await asyncio.sleep(_LOOK_S)
        await self._close(partition, held)

    async def _close(self, partition: Partition, held: _Held) -> None:
        """It reads no more. A service that came later has the partition to itself."""
        if self._held.get(partition) is held:
            del self._held[partition]
        held.task.cancel()
        await asyncio.gather(held.task, return_exceptions=True)

    # -- beside it

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A service that ends by an error ends the worker: nothing would serve its partition."""
        if not task.cancelled() and (error := task.exception()) is not None:
            # An error of ours says by itself what to do.
            trace = None if isinstance(error, ThreadlogError) else error
            _log.error("%s ended: %s", task.get_name(), error, exc_info=trace)
            self._fail(error if isinstance(error, Exception) else RuntimeError(str(error)))

    def _fail(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_result(error)

    async def _watch(self) -> None:
        self._fail(await self._group.failed())

    async def _commit(self) -> None:
        """What moved is committed, once a second."""
        while True:
            await asyncio.sleep(_COMMIT_S)
            points = {p: service.commit_point for p, service in self.services.items()}
            moved = {
                p: point
                for p, point in points.items()
                if point is not None and self._committed.get(p) != point
            }
            if moved:
                self._group.commit(moved)
                self._committed.update(moved)
