"""Pointers to bad records go into a topic of their own before the view that counts them moves on.

A pointer says where the record lies and why nobody can use it, never what is in it. While a batch
is tried again its pointers are not appended again. When the process dies between the two, or the
views go back, they are: a pointer's key is the place, so that a reader counts it once.
"""

import orjson

from threadlog.adapters.kafka.log import KafkaLog
from threadlog.ids import NO_POSITION, Partition, Position, TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.views import (
    DeadLetter,
    OpenThreads,
    PartitionViews,
    ThreadRow,
    ViewBatch,
)


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
        self._expected = NO_POSITION
        self._acknowledged: set[Position] = set()
        """Whose pointers are in the topic, of the batch that expects `_expected`."""

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        return await self._inner.begin(end, reached=reached)

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        if batch.expected != self._expected:
            self._expected = batch.expected
            self._acknowledged.clear()
        new = [d for d in batch.dead_letters if d.position not in self._acknowledged]
        if new:
            await self._log.append_pointers([self._pointer(letter) for letter in new])
            self._acknowledged.update(letter.position for letter in new)
        return await self._inner.apply(batch, urgent=urgent)

    async def watermark(self) -> Position:
        return await self._inner.watermark()

    async def wait(self, position: Position) -> None:
        await self._inner.wait(position)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self._inner.row(tenant, thread)

    async def open_threads(self) -> OpenThreads:
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
