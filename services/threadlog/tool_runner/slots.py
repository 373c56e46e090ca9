"""How many calls one process runs at a time, over all the partitions that it holds."""

import asyncio
from collections.abc import Callable
from itertools import islice


class Slots:
    """Places for running calls; whoever finds none is woken when one is free again.

    As many are woken as there are places, and each looks within the same round of the loop; who
    does not need its place any more leaves it to the next. To be used on one event loop.
    """

    def __init__(self, slots_max: int) -> None:
        self._free = slots_max
        self._waiting: dict[int, Callable[[], None]] = {}
        self._is_offering = False

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
        """A place is free; whoever waits longest is woken."""
        self._free += 1
        if not self._is_offering:
            self._offer()

    def _offer(self) -> None:
        woken = list(islice(self._waiting, self._free))
        for wake in [self._waiting.pop(waiter) for waiter in woken]:
            wake()
        # Behind those that were woken: what they leave is offered to the next.
        self._is_offering = bool(woken)
        if woken:
            asyncio.get_running_loop().call_soon(self._offer)
