"""How many calls one process runs at a time, over all the partitions that it holds."""

from collections.abc import Callable


class Slots:
    """Places for running calls; whoever finds none is woken when one is free again."""

    def __init__(self, slots_max: int) -> None:
        self._free = slots_max
        self._waiting: dict[int, Callable[[], None]] = {}

    def take(self, waiter: object, wake: Callable[[], None]) -> bool:
        """Whether there was a place, which is taken now; else `wake` is called once there may be.

        Shapes:  `waiter` is who asks: it waits once, however often it asks.
        """
        if self._free == 0:
            self._waiting[id(waiter)] = wake
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        """A place is free; all who wait look, for the first may not need it any more."""
        self._free += 1
        waiting, self._waiting = self._waiting, {}
        for wake in waiting.values():
            wake()
