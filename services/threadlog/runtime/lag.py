"""How far a worker is behind its partitions: in records, and in time."""

from collections import deque
from collections.abc import Mapping

from threadlog.ids import Partition, Position

_SAMPLES_MAX = 4_096


class Lag:
    """Samples of the ends of partitions, and how old the oldest unhandled record must be.

    Units:   seconds on a monotonic clock. A record is as old as the first sample that saw it, so
             the age is right to one sampling interval; 0 when nothing is unhandled.
    """

    def __init__(self) -> None:
        self._ends: dict[Partition, deque[tuple[Position, float]]] = {}

    def sample(
        self, now_s: float, ends: Mapping[Partition, Position], done: Mapping[Partition, Position]
    ) -> tuple[dict[int, int], float]:
        """Records behind, by partition, and the age of the oldest one."""
        for gone in self._ends.keys() - ends.keys():
            del self._ends[gone]
        records: dict[int, int] = {}
        oldest_s = 0.0
        for partition, end in ends.items():
            at = done.get(partition, Position(0))
            seen = self._ends.setdefault(partition, deque(maxlen=_SAMPLES_MAX))
            if not seen or end > seen[-1][0]:
                seen.append((end, now_s))
            while seen and seen[0][0] <= at:
                seen.popleft()
            records[partition] = max(0, end - at)
            if seen:
                oldest_s = max(oldest_s, now_s - seen[0][1])
        return records, oldest_s


def is_moving(before: Position | None, at: Position, behind: int | None) -> bool:
    """Whether a partition cannot be called stuck: it moved, or nothing is left to do.

    Shapes:  `before` None: it was not known then. `behind` None: nobody knows what is left.
    """
    return before != at or behind == 0
