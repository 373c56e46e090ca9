"""How far the views are behind the log: asked at most once a second, and only while anybody reads.

A gateway cannot know it exactly for every answer without asking the log each time. What it says is
right to one sampling interval, and it never says 0 for longer than that while the views are behind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from threadlog.clock import Clock
from threadlog.errors import TransientError
from threadlog.ids import Partition, Position, TenantId, ThreadId
from threadlog.runtime.lag import Lag

_SAMPLE_MS = 1_000

Ends = Callable[[Partition], Awaitable[tuple[Position, Position]]]
"""(the watermark that the views need to have all of the partition, the one they have)."""


@dataclass(slots=True)
class _Sampled:
    at_ms: int
    behind_ms: int


class Freshness:
    """Says for how long the log has held something that the views do not have."""

    def __init__(
        self, ends: Ends, home: Callable[[TenantId, ThreadId], Partition], clock: Clock
    ) -> None:
        self._ends = ends
        self._home = home
        self._clock = clock
        self._sampled: dict[Partition, _Sampled] = {}
        self._lags: dict[Partition, Lag] = {}
        self._sampling: dict[Partition, asyncio.Task[None]] = {}

    async def of(self, tenant: TenantId, thread: ThreadId) -> int:
        """Milliseconds that the views of this thread's partition are behind; 0: not at all."""
        return await self._of(self._home(tenant, thread))

    async def known(self) -> int:
        """The most of what was sampled lately, for lists over all partitions."""
        sampled = [await self._of(partition) for partition in list(self._sampled)]
        return max(sampled, default=0)

    async def _of(self, partition: Partition) -> int:
        found = self._sampled.get(partition)
        if found is None or self._clock.mono_ms() - found.at_ms >= _SAMPLE_MS:
            task = self._sampling.get(partition)
            if task is None:
                task = asyncio.create_task(self._sample(partition))
                self._sampling[partition] = task
                task.add_done_callback(lambda _: self._sampling.pop(partition, None))
            await asyncio.shield(task)
            found = self._sampled.get(partition)
        return 0 if found is None else found.behind_ms

    async def _sample(self, partition: Partition) -> None:
        now_ms = self._clock.mono_ms()
        try:
            end, reached = await self._ends(partition)
        except TransientError:
            # The log or the views do not answer: they are behind for at least as long as that.
            last = self._sampled.get(partition)
            before_ms = 0 if last is None else last.behind_ms + now_ms - last.at_ms
            self._sampled[partition] = _Sampled(now_ms, before_ms)
            return
        lag = self._lags.setdefault(partition, Lag())
        _, oldest_s = lag.sample(now_ms / 1_000, {partition: end}, {partition: reached})
        self._sampled[partition] = _Sampled(now_ms, round(oldest_s * 1_000))
