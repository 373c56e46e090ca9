"""What a Redis says about itself and about our views, for `doctor`. Nothing is changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from threadlog.adapters.redis import meta
from threadlog.adapters.redis.connect import VERSION_MIN, RedisClient
from threadlog.adapters.redis.layout import keys_of
from threadlog.errors import ThreadlogError, ViewsRebuildingError
from threadlog.ids import Partition, Position
from threadlog.ports.log import LogIdentity


@dataclass(frozen=True, slots=True)
class RedisSeen:
    """A server. `memory_max` None: no limit."""

    version: str
    policy: str
    memory_bytes: int
    memory_max: int | None
    is_replica: bool

    @property
    def is_too_old(self) -> bool:
        """Whether a service would refuse this version."""
        numbers = [int(part) for part in self.version.split(".")[:2] if part.isdecimal()]
        return tuple(numbers) < VERSION_MIN


async def seen(client: RedisClient) -> RedisSeen:
    """What the server says of itself.

    Raises:  TransientError: it cannot be reached. RefusedError: it does not let us in.
    """
    server: dict[str, Any] = await client.run(lambda redis: redis.info("server"))
    memory: dict[str, Any] = await client.run(lambda redis: redis.info("memory"))
    role: dict[str, Any] = await client.run(lambda redis: redis.info("replication"))
    return RedisSeen(
        version=str(server.get("redis_version", "0")),
        policy=str(memory.get("maxmemory_policy")),
        memory_bytes=int(memory.get("used_memory", 0)),
        memory_max=int(memory.get("maxmemory", 0)) or None,
        is_replica=role.get("role") == "slave",
    )


async def time_ms(client: RedisClient) -> int:
    """What its clock says, in milliseconds since the epoch."""
    [[seconds, micros]] = await client.batch([("TIME",)])
    return int(seconds) * 1_000 + int(micros) // 1_000


async def watermarks(
    client: RedisClient, identity: LogIdentity
) -> tuple[dict[Partition, Position], Sequence[ThreadlogError]]:
    """How far the views of each partition are, and why those of the others may not be read.

    Shapes:  a partition that has no views at all is in neither.
    """
    partitions = [Partition(n) for n in range(identity.partitions)]
    asked = [("HMGET", keys_of(identity, p).meta, *meta.FIELDS) for p in partitions]
    reached: dict[Partition, Position] = {}
    wrong: list[ThreadlogError] = []
    for partition, values in zip(partitions, await client.batch(asked), strict=True):
        if values[0] is None:
            continue
        try:
            reached[partition] = meta.belonging(values, identity)
            meta.readable(values, identity)
        except ViewsRebuildingError:
            continue  # it is behind, which its watermark says
        except ThreadlogError as error:
            wrong.append(error)
    return reached, wrong
