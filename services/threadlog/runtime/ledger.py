"""The ledger: how far a worker has come in one partition, in one epoch of owning it.

A record is open from when it was handed out until the appends that it caused are acknowledged. The
commit point never passes an open one. It covers that short time, not the life of a model call:
pending calls are found again from state. A new epoch has a ledger of its own, so that what was
opened in an old one moves nothing when it is closed.
"""

from collections import Counter

from threadlog.ids import Position


class Ledger:
    """One partition in one epoch. `start`: where its reading began."""

    def __init__(self, start: Position) -> None:
        self._seen = start
        self._open: Counter[Position] = Counter()

    def see(self, position: Position) -> None:
        """Everything up to `position` was handed out."""
        self._seen = max(self._seen, position)

    def open(self, position: Position) -> bool:
        """The record at `position` has consequences that are not acknowledged yet.

        Shapes:  False: the commit point has passed it, and never goes back. What is done late (a
                 retry, the outcome of a long call) follows from state, not from that record.
        """
        if position <= self.commit_point:
            return False
        self._open[position] += 1
        return True

    def close(self, position: Position) -> None:
        """One of the consequences of the record at `position` is acknowledged, or none is due."""
        self._open[position] -= 1
        if not self._open[position]:
            del self._open[position]

    @property
    def commit_point(self) -> Position:
        """Everything up to it is done: it lies before the lowest open record."""
        if not self._open:
            return self._seen
        return min(self._seen, Position(min(self._open) - 1))

    @property
    def open_count(self) -> int:
        """How many records are open."""
        return len(self._open)
