"""How far the views are behind the log: asked at most once a second, and only while anybody reads.

A gateway cannot know it exactly for every answer without asking the log each time. What it says is
right to about one sampling interval. No read waits for a log that does not answer: the last that
was known is said, and grows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from threadlog.clock import Clock
from threadlog.errors import ThreadlogError
from threadlog.ids import Partition, Position, TenantId, ThreadId
from threadlog.runtime.lag import Lag

_SAMPLE_MS = 1_000
_FIRST_S = 0.25
"""How long the first read of a partition waits for its sample."""

Ends = Callable[[Partition], Awaitable[tuple[Position, Position]]]
"""(the watermark that the views need to have all of the partition, the one they have)."""


@dataclass(slots=True)
class _Sampled:
    at_ms: int
    behind_ms: int


class Freshness:
    """Says for how long the log has held something that the views do not have."""

    def __init__(
        self,
        ends: Ends,
        home: Callable[[TenantId, ThreadId], Partition],
        clock: Clock,
        partitions: int = 1,
    ) -> None:
        self._ends = ends
        self._home = home
        self._clock = clock
        self._partitions = partitions
        self._asked_ms: dict[Partition, int] = {}
        self._sampled: dict[Partition, _Sampled] = {}
        self._lags: dict[Partition, Lag] = {}
        self._sampling: dict[Partition, asyncio.Task[None]] = {}

    async def of(self, tenant: TenantId, thread: ThreadId) -> int:
        """Milliseconds that the views of this thread's partition are behind; 0: not at all."""
        return await self._of(self._home(tenant, thread))

    async def known(self) -> int:
        """The most of all partitions, for lists over them."""
        partitions = map(Partition, range(self._partitions))
        return max(await asyncio.gather(*map(self._of, partitions)))

    async def _of(self, partition: Partition) -> int:
        """What was sampled last. A read waits only for the very first sample, and for a moment."""
        now_ms = self._clock.mono_ms()
        asked_ms = self._asked_ms.setdefault(partition, now_ms)
        found = self._sampled.get(partition)
        if found is None or now_ms - found.at_ms >= _SAMPLE_MS:
            task = self._sampling.get(partition)
            if task is None:
                task = asyncio.create_task(self._sample(partition))
                self._sampling[partition] = task
                task.add_done_callback(lambda _: self._sampling.pop(partition, None))
            if found is None:
                await asyncio.wait({task}, timeout=_FIRST_S)
                found = self._sampled.get(partition)
        now_ms = self._clock.mono_ms()
        if found is None:
            return now_ms - asked_ms
        # A sample that takes long is one that nobody answers.
        late_ms = now_ms - found.at_ms - 2 * _SAMPLE_MS
        return found.behind_ms + (late_ms if late_ms > 0 and self._sampling.get(partition) else 0)

    async def _sample(self, partition: Partition) -> None:
        try:
            end, reached = await self._ends(partition)
        except ThreadlogError:
            # The log or the views do not answer: they are behind for at least as long as that.
            now_ms, last = self._clock.mono_ms(), self._sampled.get(partition)
            since_ms = self._asked_ms[partition] if last is None else last.at_ms
            before_ms = 0 if last is None else last.behind_ms
            self._sampled[partition] = _Sampled(now_ms, before_ms + now_ms - since_ms)
            return
        now_ms = self._clock.mono_ms()
        lag = self._lags.setdefault(partition, Lag())
        _, oldest_s = lag.sample(now_ms / 1_000, {partition: end}, {partition: reached})
        self._sampled[partition] = _Sampled(now_ms, round(oldest_s * 1_000))
