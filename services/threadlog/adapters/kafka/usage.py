"""Usage facts are in their topic before the views that sum them move on.

While a batch is tried again its facts are not appended again. When the process dies between the
two, or the views go back, they are: whoever counts tells a repeat by its offset, as
`ports.usage_log` says.
"""

from threadlog.adapters.kafka.log import KafkaLog
from threadlog.ids import NO_POSITION, Partition, Position, TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.usage_log import encode_usage
from threadlog.ports.views import (
    OpenThreads,
    PartitionViews,
    ThreadRow,
    ViewBatch,
)


class UsageViews:
    """Implements `ports.views.PartitionViews` around the views of one partition."""

    def __init__(
        self, inner: PartitionViews, log: KafkaLog, identity: LogIdentity, partition: Partition
    ) -> None:
        self._inner = inner
        self._log = log
        self._identity = identity
        self._partition = partition
        self._acknowledged: tuple[Position, Position] | None = None
        """Between which positions every fact is in the topic, of the last batch that had any."""

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        return await self._inner.begin(end, reached=reached)

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        span = batch.expected, batch.watermark
        if batch.usage and span != self._acknowledged:
            for records in encode_usage(batch.usage, self._identity.topic_id, self._partition):
                await self._log.append_usage(records)
            self._acknowledged = span
        return await self._inner.apply(batch, urgent=urgent)

    async def watermark(self) -> Position:
        return await self._inner.watermark()

    async def wait(self, position: Position) -> None:
        await self._inner.wait(position)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self._inner.row(tenant, thread)

    async def open_threads(self) -> OpenThreads:
        return await self._inner.open_threads()
