"""The readers' side of the views in Redis, of all partitions of the log."""

from collections.abc import Sequence

from threadlog.adapters.redis import causes, meta, usage
from threadlog.adapters.redis.channels import Channels
from threadlog.adapters.redis.connect import RedisClient
from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.listing import newest_threads
from threadlog.adapters.redis.partition import RedisPartitionViews
from threadlog.adapters.redis.reading import Reading
from threadlog.adapters.redis.rows import decode_row
from threadlog.errors import ViewsRebuildingError
from threadlog.ids import EventId, Partition, Position, Seq, TenantId, ThreadId, is_uuid
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.log import LogIdentity, Record, Records
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
)
from threadlog.ports.views import (
    Direction,
    StoredEvent,
    ThreadPlace,
    ThreadRow,
)


class RedisViews:
    """Implements `ports.views.Views`; `partition` gives the projection's side of each."""

    def __init__(
        self, client: RedisClient, channels: Channels, identity: LogIdentity, log: Records
    ) -> None:
        """`log`: where events are read that are not among the recent ones."""
        self._client = client
        self._channels = channels
        self._identity = identity
        self._reading = Reading(client, identity, log)
        self._partitions: dict[Partition, RedisPartitionViews] = {}

    def partition(self, partition: Partition) -> RedisPartitionViews:
        """The views of this partition."""
        found = self._partitions.get(partition)
        if found is None:
            found = RedisPartitionViews(self._client, self._channels, self._identity, partition)
            self._partitions[partition] = found
        return found

    async def check(self) -> None:
        """What is stored belongs to this log and this version; nothing stored is fine, too.

        Raises:  CorruptError: it was made from another log. RefusedError: by a newer version.
        """
        partitions = [Partition(n) for n in range(self._identity.partitions)]
        asked = [("HMGET", keys_of(self._identity, p).meta, *meta.FIELDS) for p in partitions]
        for values in await self._client.batch(asked):
            if values[0] is not None:
                meta.belonging(values, self._identity)

    async def reached(self, tenant: TenantId, thread: ThreadId, position: Position) -> None:
        await self.partition(self._reading.home(tenant, thread).partition).wait(position)

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        keys = self._reading.home(tenant, thread).keys
        _, [data] = await self._reading.guarded(keys, [("HGET", keys.of_thread("row"), "row")])
        return None if data is None else decode_row(data, tenant, thread)

    async def threads(
        self, tenant: TenantId, *, limit: int, before: ThreadPlace | None = None
    ) -> Sequence[ThreadRow]:
        return await newest_threads(self._reading, tenant, limit, before)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        home = self._reading.home(tenant, thread)
        found: list[StoredEvent] = []
        first = Seq(max(first, 0))
        while len(found) < limit and first <= last:
            count = min(limit - len(found), READ_EVENTS_MAX, last - first + 1)
            page = await self._reading.events(home, first, Seq(first + count - 1))
            found += page
            if len(page) < count:
                break
            first = Seq(first + count)
        return found

    async def voids(
        self, tenant: TenantId, thread: ThreadId, *, limit: int
    ) -> Sequence[StoredEvent]:
        home = self._reading.home(tenant, thread)
        voids = home.keys.of_thread("voids")
        page = ("ZRANGEBYSCORE", voids, "-inf", "+inf", "LIMIT", 0, limit)
        watermark, [members] = await self._reading.guarded(home.keys, [page])
        return await self._reading.voids(home, members, watermark)

    async def find(
        self, tenant: TenantId, thread: ThreadId, event_id: EventId
    ) -> StoredEvent | None:
        home = self._reading.home(tenant, thread)
        found = await self._reading.find(home, event_id) if is_uuid(event_id) else None
        if found is None:
            return None
        if found.entry is not None:
            return next(iter(await self._reading.at(home, [found.entry.seq])), None)
        assert found.void is not None
        position, reason = found.void
        [event] = await self._reading.logged(home, [(position, event_id)])
        return StoredEvent(position, None, event, reason)

    async def causes(
        self,
        tenant: TenantId,
        thread: ThreadId,
        event_id: EventId,
        direction: Direction,
        *,
        limit: int,
    ) -> Sequence[StoredEvent]:
        if not is_uuid(event_id):
            return []
        home = self._reading.home(tenant, thread)
        follow = causes.ancestors if direction == "ancestors" else causes.descendants
        return await follow(self._reading, home, event_id, limit)

    async def records(
        self, tenant: TenantId, thread: ThreadId, *, after: Position, before: Position
    ) -> Sequence[Record]:
        home = self._reading.home(tenant, thread)
        while True:
            try:
                # Asked first: the views are seldom behind, and one answer says both.
                return await self._reading.records(home, after, before)
            except ViewsRebuildingError:
                await self.partition(home.partition).wait(Position(before - 1))

    async def usage(
        self, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None = None
    ) -> Sequence[UsageRow]:
        return await usage.usage(self._reading, tenant, group, thread)

    async def aclose(self) -> None:
        """Whoever waits is told that nobody follows any more."""
        for partition in self._partitions.values():
            await partition.aclose()
