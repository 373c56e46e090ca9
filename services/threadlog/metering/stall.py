"""Whether a worker stands still although there is something to do. Pure."""

from collections.abc import Mapping


class Stall:
    """Samples of how far a worker is."""

    def __init__(self, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._done: dict[int, int] | None = None
        self._since_ms = 0

    def sample(self, now_ms: int, done: Mapping[int, int], *, is_waiting: bool) -> int | None:
        """For how long it has stood still, when that is too long; else None.

        Shapes:  `is_waiting`: there is something to do. `done`: how far each partition is; other
                 partitions than before are a change, too.
        """
        if done != self._done or not is_waiting:
            self._done, self._since_ms = dict(done), now_ms
            return None
        stood_ms = now_ms - self._since_ms
        return stood_ms if stood_ms >= self._stall_ms else None
