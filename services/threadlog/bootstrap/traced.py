"""Traces wired: what a process is traced with, and views whose moves are traced."""

from collections.abc import Iterator
from contextlib import contextmanager

from threadlog.clock import Clock
from threadlog.ids import NO_POSITION, Position, TenantId, ThreadId
from threadlog.ports.views import OpenThreads, PartitionViews, ThreadRow, ViewBatch
from threadlog.runtime.tracer import NoTracer, Tracer
from threadlog.settings import Settings


@contextmanager
def traced(settings: Settings, service: str, instance: str, clock: Clock) -> Iterator[Tracer]:
    """The tracer of this process; on leaving, what waited to be sent was sent, or given up.

    Effects: without an endpoint nothing of the library that sends spans is even loaded.
    """
    traces = settings.traces
    if traces.endpoint is None:
        yield NoTracer()
        return
    from threadlog.telemetry.spans import Spans
    from threadlog.telemetry.tracing import EventTracer

    spans = Spans(traces.endpoint, service, instance)
    try:
        yield EventTracer(spans, clock.now_ms, traces.sample_ratio)
    finally:
        spans.close()


class TracedViews:
    """Implements `ports.views.PartitionViews` on others. What is only made again is no span."""

    def __init__(self, inner: PartitionViews, tracer: Tracer, clock: Clock) -> None:
        self._inner = inner
        self._tracer = tracer
        self._clock = clock
        self._old = NO_POSITION
        """Up to here the log was there before."""

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        """As the others."""
        self._old = max(self._old, end, reached)
        return await self._inner.begin(end, reached=reached)

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        """As the others."""
        began_ms = self._clock.now_ms()
        stored = await self._inner.apply(batch, urgent=urgent)
        if stored == batch.watermark and stored > self._old:
            events = [judged.event for judged in batch.judged if judged.seq is not None]
            self._tracer.projected(events, began_ms)
        return stored

    async def watermark(self) -> Position:
        """As the others."""
        return await self._inner.watermark()

    async def wait(self, position: Position) -> None:
        """As the others."""
        await self._inner.wait(position)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        """As the others."""
        return await self._inner.row(tenant, thread)

    async def open_threads(self) -> OpenThreads:
        """As the others."""
        return await self._inner.open_threads()
