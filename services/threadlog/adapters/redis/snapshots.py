"""The snapshots port on Redis: the last one stored of each thread, complete views or not."""

from threadlog.adapters.redis import meta, rows
from threadlog.adapters.redis.connect import Command, RedisClient
from threadlog.adapters.redis.layout import home_of, keys_of
from threadlog.errors import CorruptError, RefusedError, ViewsRebuildingError
from threadlog.ids import TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.snapshots import Snapshot


class RedisSnapshots:
    """Implements `ports.snapshots.Snapshots`.

    While views are rebuilt it serves what is there: whoever loads a state reads on from the
    snapshot's position, and that waits for the views. Of views that are gone, or another log's or
    fold's, it serves nothing.
    """

    def __init__(self, client: RedisClient, identity: LogIdentity) -> None:
        self._client = client
        self._identity = identity

    async def newest(self, tenant: TenantId, thread: ThreadId) -> Snapshot | None:
        home = home_of(self._identity, tenant, thread)
        keys = keys_of(self._identity, home).of(tenant, thread)
        asked: Command = ("HMGET", keys.meta, *meta.FIELDS)
        before, data, behind = await self._client.batch(
            [asked, ("GET", keys.of_thread("snap")), asked]
        )
        try:
            for values in (before, behind):
                meta.belonging(values, self._identity)
        except (ViewsRebuildingError, CorruptError, RefusedError):
            # A snapshot is disposable; those who need the views hear of it from them.
            return None
        return None if data is None else rows.decode_snapshot(data, tenant, thread)
