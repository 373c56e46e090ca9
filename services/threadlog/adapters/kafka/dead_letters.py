"""Pointers to bad records go into a topic of their own before the view that counts them moves on.

A pointer says where the record lies and why nobody can use it, never what is in it. When the view
then refuses the batch, or the process dies between the two, the pointer is appended again: its key
is the place, so that a reader counts it once.
"""

from collections.abc import Sequence

import orjson

from threadlog.adapters.kafka.log import KafkaLog
from threadlog.ids import Partition, Position, TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.views import DeadLetter, PartitionViews, ThreadRow, ViewBatch


class DeadLetterViews:
    """Implements `ports.views.PartitionViews` around the views of one partition."""

    def __init__(
        self,
        inner: PartitionViews,
        log: KafkaLog,
        *,
        identity: LogIdentity,
        partition: Partition,
        code_version: str,
    ) -> None:
        self._inner = inner
        self._log = log
        self._identity = identity
        self._partition = partition
        self._code_version = code_version

    async def begin(self, end: Position) -> Position:
        return await self._inner.begin(end)

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        if batch.dead_letters:
            await self._log.append_pointers([self._pointer(d) for d in batch.dead_letters])
        return await self._inner.apply(batch, urgent=urgent)

    async def watermark(self) -> Position:
        return await self._inner.watermark()

    async def wait(self, position: Position) -> None:
        await self._inner.wait(position)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self._inner.row(tenant, thread)

    async def open_threads(self) -> Sequence[tuple[TenantId, ThreadId]]:
        return await self._inner.open_threads()

    def _pointer(self, letter: DeadLetter) -> tuple[bytes, bytes]:
        topic, offset = self._identity.topic, letter.position - 1
        body = {
            "topic": topic,
            "topic_id": self._identity.topic_id,
            "partition": self._partition,
            "offset": offset,
            "reason": letter.reason,
            "code_version": self._code_version,
        }
        return f"{topic}:{self._partition}:{offset}".encode(), orjson.dumps(body)
