"""The group port: which partitions a worker has, and how far it has come in each.

Membership and reading are apart: a partition that was given away can be read on, until the last
claim there is closed (rule `follow`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from threadlog.ids import Partition, Position


class GroupListener(Protocol):
    """What a member does when its partitions change. None of these raises."""

    async def on_assigned(self, partitions: Mapping[Partition, Position | None]) -> None:
        """These are this member's too, from now on.

        Shapes:  with the committed position of each; None: none was ever committed.
        """
        ...

    async def on_revoked(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        """These go to another member once this returns; the positions to be committed for them.

        Units:   it has `limits.REVOKE_MS`; then they go all the same.
        """
        ...

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        """Others may have had these for a while already; nothing can be committed for them."""
        ...


class Group(Protocol):
    """Membership of one worker process in the group of its service."""

    async def join(self, listener: GroupListener) -> None:
        """The group knows of this member; `listener` hears of its partitions, on this loop.

        Effects: calls of one listener never overlap.
        """
        ...

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """The positions will be committed soon; never blocks. A failure is repeated by the next."""
        ...

    async def leave(self) -> None:
        """This member is none any more: what it had was revoked, and goes to others at once."""
        ...

    async def failed(self) -> Exception:
        """What ended this membership for good; waits for it, usually for ever."""
        ...
