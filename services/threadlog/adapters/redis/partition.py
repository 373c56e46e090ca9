"""The views of one partition in Redis: what its projection writes and its workers wait for."""

import asyncio
from collections.abc import Sequence

from threadlog.adapters.redis import meta, rows
from threadlog.adapters.redis.batches import calls_of
from threadlog.adapters.redis.channels import Channels
from threadlog.adapters.redis.connect import RedisClient
from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.scripts import APPLY, BEGIN
from threadlog.adapters.redis.waiting import Watermark
from threadlog.ids import Partition, Position, TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.views import ThreadRow, ViewBatch


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

    async def begin(self, end: Position) -> Position:
        first = meta.first_of(self._identity, end)
        answer = await self._client.script(BEGIN, [self._keys.meta], first)
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
        return meta.watermark_of(values)

    async def wait(self, position: Position) -> None:
        await self._moves.reaches(position)

    async def open_threads(self) -> Sequence[tuple[TenantId, ThreadId]]:
        asked = ("HMGET", self._keys.meta, *meta.FIELDS)
        before, members, behind = await self._client.batch(
            [asked, ("SMEMBERS", self._keys.open), asked]
        )
        for values in (before, behind):
            meta.readable(values, self._identity)
        names = sorted(member.decode().split(":", 1) for member in members)
        return [(TenantId(tenant), ThreadId(thread)) for tenant, thread in names]

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
