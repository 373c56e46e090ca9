"""Views on a real Redis over logs in memory, one a partition, under a topic of their own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from tests.contract.views_suite import Parts, row
from tests.helpers.events import LOCAL
from threadlog import ids
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.redis.channels import Channels
from threadlog.adapters.redis.connect import RedisClient
from threadlog.adapters.redis.layout import Keys, keys_of
from threadlog.adapters.redis.partition import RedisPartitionViews
from threadlog.adapters.redis.snapshots import RedisSnapshots
from threadlog.adapters.redis.views import RedisViews
from threadlog.events.envelope import Event
from threadlog.ids import Partition, Position, Seq, ThreadId
from threadlog.ports.log import LogIdentity, Receipt, Record
from threadlog.ports.views import (
    Judged,
    ViewBatch,
)


class MemoryRecords:
    """Implements `ports.log.Records` over one memory log a partition, and counts what is read."""

    def __init__(self, partitions: int) -> None:
        self.logs = [MemoryLog() for _ in range(partitions)]
        self.read_count = 0

    async def read(self, partition: Partition, positions: Sequence[Position]) -> Sequence[Record]:
        self.read_count += len(positions)
        assert list(positions) == sorted(positions)
        return [self.logs[partition].entries[position - 1] for position in positions]


@dataclass(frozen=True, slots=True)
class RedisParts:
    """Everything of one topic."""

    client: RedisClient
    channels: Channels
    identity: LogIdentity
    records: MemoryRecords
    views: RedisViews
    snapshots: RedisSnapshots

    def partition(self, n: int = 0) -> RedisPartitionViews:
        return self.views.partition(Partition(n))

    def parts(self, n: int = 0) -> Parts:
        """One partition as the suites see it."""
        return Parts(self.records.logs[n], self.partition(n), self.views, self.snapshots)

    def home(self, thread: ThreadId, tenant: str = ids.LOCAL_TENANT) -> int:
        return ids.partition_of(f"{tenant}/{thread}", self.identity.partitions)

    def thread_in(self, partition: int) -> ThreadId:
        """A new thread of this partition."""
        while self.home(thread := ThreadId(ids.draw())) != partition:
            pass
        return thread

    async def append(self, event: Event) -> Receipt:
        [receipt] = await self.records.logs[self.home(event.thread_id)].append([event])
        return receipt


def identity_of(partitions: int = 1, topic: str | None = None) -> LogIdentity:
    """A log that nobody else has."""
    return LogIdentity("cluster", topic or f"test.{ids.draw()}", ids.draw(), partitions)


@asynccontextmanager
async def redis_parts(
    url: str, identity: LogIdentity | None = None, *, has_begun: bool = True
) -> AsyncIterator[RedisParts]:
    """The views of a log, begun in every partition unless told otherwise."""
    identity = identity or identity_of()
    client = RedisClient(url)
    channels = Channels(client)
    records = MemoryRecords(identity.partitions)
    views = RedisViews(client, channels, identity, records)
    snapshots = RedisSnapshots(client, identity)
    parts = RedisParts(client, channels, identity, records, views, snapshots)
    try:
        if has_begun:
            for n in range(identity.partitions):
                await parts.partition(n).begin(Position(0))
        yield parts
    finally:
        await views.aclose()
        await channels.aclose()
        await client.aclose()


async def judged(parts: RedisParts, events: list[Event], first: int = 0) -> list[Judged]:
    """The events are in the log, and accepted in this order from seq `first` on, by thread."""
    heads: dict[ThreadId, int] = {}
    found = []
    for event in events:
        receipt = await parts.append(event)
        seq = heads[event.thread_id] = heads.get(event.thread_id, first - 1) + 1
        found.append(Judged(receipt.position, event, Seq(seq)))
    return found


async def accept(parts: RedisParts, events: list[Event], first: int = 0) -> list[Judged]:
    """And they are in the views, each in its partition, with rows."""
    found = await judged(parts, events, first)
    for n in range(parts.identity.partitions):
        mine = [each for each in found if parts.home(each.event.thread_id) == n]
        if mine:
            last = {each.event.thread_id: each.position for each in mine}
            await apply(
                parts,
                ViewBatch(
                    expected=Position(0),
                    watermark=mine[-1].position,
                    judged=mine,
                    threads=[row(thread, position) for thread, position in last.items()],
                ),
                n,
            )
    return found


async def apply(parts: RedisParts, batch: ViewBatch, n: int = 0) -> None:
    batch = replace(batch, expected=await parts.partition(n).watermark())
    assert await parts.partition(n).apply(batch, urgent=True) == batch.watermark


async def everything(parts: RedisParts, n: int = 0) -> dict[bytes, bytes]:
    """Every key of the partition with its value, as Redis would dump it."""
    prefix = keys_of(parts.identity, Partition(n)).prefix.encode()
    keys = [key async for key in _keys(parts) if key.startswith(prefix)]
    values = await parts.client.batch([("DUMP", key) for key in keys])
    return dict(zip(keys, values, strict=True))


async def _keys(parts: RedisParts) -> AsyncIterator[bytes]:
    [found] = await parts.client.batch([("KEYS", f"{{{parts.identity.topic}:*")])
    for key in found:
        yield key


async def flush(parts: RedisParts) -> None:
    keys = [key async for key in _keys(parts)]
    await parts.client.batch([("UNLINK", *keys)])


def thread_keys(parts: RedisParts, thread: ThreadId) -> Keys:
    home = Partition(parts.home(thread))
    return keys_of(parts.identity, home).of(LOCAL, thread)
