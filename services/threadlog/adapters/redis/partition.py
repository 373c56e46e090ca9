"""The views of one partition in Redis: what its projection writes and its workers wait for."""

import asyncio

from threadlog.adapters.redis import meta, rows
from threadlog.adapters.redis.batches import calls_of
from threadlog.adapters.redis.channels import Channels
from threadlog.adapters.redis.connect import RedisClient
from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.scripts import APPLY, BEGIN, OPEN
from threadlog.adapters.redis.waiting import Watermark
from threadlog.ids import NO_POSITION, Partition, Position, TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.views import (
    OpenThreads,
    ThreadRow,
    ViewBatch,
)


class RedisPartitionViews:
    """Implements `ports.views.PartitionViews`."""

    def __init__(
        self,
        client: RedisClient,
        channels: Channels,
        identity: LogIdentity,
        partition: Partition,
    ) -> None:
        self._client = client
        self._identity = identity
        self._keys = keys_of(identity, partition)
        self._order = asyncio.Lock()
        self._moves = Watermark(channels, self._keys.moved, self.watermark)

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        first = meta.first_of(self._identity, max(end, reached))
        answer = await self._client.script(BEGIN, [self._keys.meta], [reached, *first])
        stored = dict(zip(answer[::2], answer[1::2], strict=True))
        values = [stored.get(name.encode()) for name in meta.FIELDS]
        return meta.belonging(values, self._identity)

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        calls = calls_of(self._keys, batch)
        stored = batch.expected
        # Connections overtake each other; batches, each of which expects the one before, may not.
        async with self._order:
            for n, call in enumerate(calls, 1):
                arguments = call.arguments(batch, self._keys.moved, is_last=n == len(calls))
                stored = Position(int(await self._client.script(APPLY, call.keys, arguments)))
                if n < len(calls) and stored != batch.expected:
                    break
        self._moves.tell()
        return stored

    async def watermark(self) -> Position:
        [values] = await self._client.batch([("HMGET", self._keys.meta, *meta.FIELDS)])
        is_stored = values[0] is not None
        return meta.belonging(values, self._identity) if is_stored else NO_POSITION

    async def wait(self, position: Position) -> None:
        await self._moves.reaches(position)

    async def open_threads(self) -> OpenThreads:
        names = [self._keys.meta, self._keys.open]
        # A script, so that nothing comes between watermark and threads.
        values, members = await self._client.script(OPEN, names, meta.FIELDS)
        watermark = meta.readable(values, self._identity)
        found = sorted(member.decode().split(":", 1) for member in members)
        threads = [(TenantId(tenant), ThreadId(thread)) for tenant, thread in found]
        return OpenThreads(watermark, threads)

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        """The row as it is stored, while readers are refused, too: for the projection itself."""
        key = self._keys.of(tenant, thread).of_thread("row")
        [data] = await self._client.batch([("HGET", key, "row")])
        return None if data is None else rows.decode_row(data, tenant, thread)

    async def dead_letters(self) -> int:
        """How many records no reader could use, of those applied."""
        [count] = await self._client.batch([("HGET", self._keys.meta, "dead_letters")])
        return int(count or 0)

    async def aclose(self) -> None:
        """Whoever waits is told that nobody follows any more."""
        await self._moves.aclose()
