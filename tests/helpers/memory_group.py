"""The group port in memory: a coordinator that deals partitions, and takes them as tests ask.

Callbacks never overlap. A partition is assigned only once its owner's callback has returned; one
that was lost is another's before its owner hears of it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from threadlog.ids import Partition, Position
from threadlog.ports.group import GroupListener

OnCommit = Callable[[str, Mapping[Partition, Position]], None]


class MemoryGroup:
    """Implements `ports.group.Group` for the member `name`."""

    def __init__(self, coordinator: "Coordinator", name: str) -> None:
        self.name = name
        self.listener: GroupListener | None = None
        self._coordinator = coordinator
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def join(self, listener: GroupListener) -> None:
        self.listener = listener
        await self._coordinator.add(self)

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        self._coordinator.commit(self.name, positions)

    async def leave(self) -> None:
        await self._coordinator.remove(self.name)

    async def failed(self) -> Exception:
        return await asyncio.shield(self._failure)

    def fail(self, error: Exception) -> None:
        """The membership has ended for good."""
        self._failure.set_result(error)


class Coordinator:
    """One group. `owners` by partition, None: nobody; `commits` of all members, in order."""

    def __init__(self, partitions: int) -> None:
        self.owners: dict[Partition, str | None] = {Partition(p): None for p in range(partitions)}
        self.committed: dict[Partition, Position] = {}
        self.commits: list[tuple[str, Mapping[Partition, Position]]] = []
        self.on_commit: OnCommit = lambda name, positions: None
        self.deals_on_join = True
        self._members: dict[str, MemoryGroup] = {}
        self._lock = asyncio.Lock()

    def member(self, name: str) -> MemoryGroup:
        """What the process `name` joins with."""
        return MemoryGroup(self, name)

    # -- what members do

    async def add(self, member: MemoryGroup) -> None:
        """A member joined: the partitions are dealt anew, or what nobody has is its own."""
        async with self._lock:
            self._members[member.name] = member
            if self.deals_on_join:
                await self._deal()

    async def remove(self, name: str) -> None:
        """A member left: what it had was revoked, and the others have it."""
        async with self._lock:
            if name not in self._members:
                return
            await self._revoke(name, self.owned(name))
            del self._members[name]
            await self._deal()

    def commit(self, name: str, positions: Mapping[Partition, Position]) -> None:
        """Nothing protects a position: whoever commits one is believed."""
        self.on_commit(name, positions)
        self.commits.append((name, dict(positions)))
        self.committed.update(positions)

    # -- what tests do

    def owned(self, name: str) -> list[Partition]:
        """The partitions of a member."""
        return [partition for partition, owner in self.owners.items() if owner == name]

    async def move(self, partition: Partition, to: str | None) -> None:
        """The partition is revoked from its owner, then it is `to`'s; None: nobody's."""
        async with self._lock:
            owner = self.owners[partition]
            if owner is not None:
                await self._revoke(owner, [partition])
            if to is not None:
                await self._assign(to, [partition])

    async def lose(self, partition: Partition, to: str | None) -> None:
        """It is `to`'s; only then its owner hears that it was lost, and commits nothing."""
        async with self._lock:
            owner, self.owners[partition] = self.owners[partition], None
            if to is not None:
                await self._assign(to, [partition])
            assert owner is not None
            await self._heard(owner).on_lost([partition])

    async def expire(self, name: str) -> None:
        """A member that died is none any more, and the others have what it had."""
        async with self._lock:
            del self._members[name]
            for partition in self.owned(name):
                self.owners[partition] = None
            await self._deal()

    # -- dealing

    async def _deal(self) -> None:
        """In turn, by name; who keeps a partition hears nothing of it."""
        names = sorted(self._members)
        wanted = {p: names[p % len(names)] if names else None for p in self.owners}
        for name in names:
            gone = [p for p in self.owned(name) if wanted[p] != name]
            if gone:
                await self._revoke(name, gone)
        for name in names:
            new = [p for p, owner in wanted.items() if owner == name and self.owners[p] != name]
            if new:
                await self._assign(name, new)

    async def _revoke(self, name: str, partitions: Sequence[Partition]) -> None:
        positions = await self._heard(name).on_revoked(partitions)
        if positions:
            self.commit(name, positions)
        for partition in partitions:
            self.owners[partition] = None

    async def _assign(self, name: str, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self.owners[partition] = name
        await self._heard(name).on_assigned({p: self.committed.get(p) for p in partitions})

    def _heard(self, name: str) -> GroupListener:
        listener = self._members[name].listener
        assert listener is not None
        return listener
