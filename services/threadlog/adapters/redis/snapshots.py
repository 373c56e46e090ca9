"""The snapshots port on Redis: the last one stored of each thread, complete views or not."""

from threadlog.adapters.redis import rows
from threadlog.adapters.redis.connect import RedisClient
from threadlog.adapters.redis.layout import home_of, keys_of
from threadlog.ids import TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.snapshots import Snapshot


class RedisSnapshots:
    """Implements `ports.snapshots.Snapshots`.

    While views are rebuilt it serves what is there: whoever loads a state reads on from the
    snapshot's position, and that waits for the views.
    """

    def __init__(self, client: RedisClient, identity: LogIdentity) -> None:
        self._client = client
        self._identity = identity

    async def newest(self, tenant: TenantId, thread: ThreadId) -> Snapshot | None:
        home = home_of(self._identity, tenant, thread)
        key = keys_of(self._identity, home).of(tenant, thread).of_thread("snap")
        [data] = await self._client.batch([("GET", key)])
        return None if data is None else rows.decode_snapshot(data, tenant, thread)
