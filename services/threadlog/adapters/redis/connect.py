"""A bounded, checked way to one Redis.

Guarantees: a call ends within `SOCKET_MS` of its turn, or fails transiently; at most `POOL_MAX`
calls are under way, the others wait for their turn; a cancelled call drops its connection, whose
next reply would be somebody else's (redis/redis-py#2665); no error shows a password.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from threadlog.adapters.redis.failures import FOREIGN, SETTING, mapped
from threadlog.adapters.redis.scripts import Script
from threadlog.errors import RefusedError, UsageError

T = TypeVar("T")
Argument = str | bytes | int
Command = tuple[Argument, ...]
ScriptCall = tuple[Sequence[str], Sequence[Argument]]
"""Keys and arguments of one call of a script."""
POOL_MAX = 32
SOCKET_MS = 5_000
CONNECT_MS = 2_000
HEALTH_S = 15
"""A connection that was idle for longer is tried before it is used."""
VERSION_MIN = (6, 2)


class RedisClient:
    """Calls to one Redis. To be used on one event loop."""

    def __init__(self, url: str, *, pool_max: int = POOL_MAX) -> None:
        """Connects with the first call.

        Raises:  UsageError: this is no address of a Redis.
        """
        try:
            parts = urlsplit(url)
            is_local = parts.scheme == "unix"
            place = parts.path if is_local else f"{parts.hostname or ''}:{parts.port or 6379}"
            self.address = f"{parts.scheme}://{place}"
            self._pool = ConnectionPool.from_url(
                url,
                # One call too many would be refused rather than wait: the gate lets none through.
                max_connections=pool_max,
                # The client's own time limit loses cancellations (`asyncio.wait_for` of Python
                # 3.11); ours is in `run`.
                socket_timeout=None,
                socket_connect_timeout=CONNECT_MS / 1_000,
                health_check_interval=HEALTH_S,
                # Once, on a connection that the other side closed: every call may be repeated.
                retry=Retry(NoBackoff(), 1, (RedisConnectionError,)),
                protocol=2,
                **({} if is_local else {"socket_keepalive": True}),
            )
        except ValueError as error:
            raise UsageError(f"{SETTING} is no address of a Redis") from error
        self._redis = Redis(connection_pool=self._pool)
        self._gate = asyncio.Semaphore(pool_max)

    async def check(self) -> None:
        """This Redis can be relied on.

        Raises:  TransientError: it cannot be reached.
                 RefusedError: it is too old, or would drop keys when it is full.
        """
        server: dict[str, Any] = await self.run(lambda redis: redis.info("server"))
        version = str(server.get("redis_version", "0"))
        if tuple(int(n) for n in version.split(".")[:2] if n.isdecimal()) < VERSION_MIN:
            wanted = ".".join(map(str, VERSION_MIN))
            raise RefusedError(
                f"Redis at {self.address} is version {version}; {wanted} is the oldest that works"
            )
        memory: dict[str, Any] = await self.run(lambda redis: redis.info("memory"))
        policy = memory.get("maxmemory_policy")
        if policy != "noeviction":
            raise RefusedError(
                f"Redis at {self.address} would drop keys of ours when it is full"
                f" (maxmemory-policy {policy}): run `CONFIG SET maxmemory-policy noeviction` and"
                " put `maxmemory-policy noeviction` into redis.conf"
            )

    async def run(self, call: Callable[["Redis"], Awaitable[T]]) -> T:
        """What the client answers, with errors of ours."""
        async with self._gate:
            try:
                async with asyncio.timeout(SOCKET_MS / 1_000):
                    return await call(self._redis)
            except FOREIGN as error:
                raise mapped(error, self.address) from error

    async def batch(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to all commands in one round trip.

        Others' commands may come between them. Not in MULTI: a full Redis refuses even reads there.
        """

        async def call(redis: "Redis") -> list[Any]:
            pipeline = redis.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute()

        return await self.run(call)

    async def scripts(self, script: Script, calls: Sequence[ScriptCall]) -> list[Any]:
        """The answers of a script to each pair of keys and arguments, in one round trip."""

        async def call(redis: "Redis") -> list[Any]:
            try:
                return await self._evaluate(redis, script, calls)
            except NoScriptError:
                # Redis has restarted, or never met it. Nothing ran, or it is run again: harmless.
                await redis.script_load(script.text)
                return await self._evaluate(redis, script, calls)

        return await self.run(call)

    async def script(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """The answer of one script."""
        [answer] = await self.scripts(script, [(keys, args)])
        return answer

    async def _evaluate(
        self,
        redis: "Redis",
        script: Script,
        calls: Sequence[ScriptCall],
    ) -> list[Any]:
        if len(calls) == 1:
            [(keys, args)] = calls
            execute: Callable[..., Awaitable[Any]] = redis.execute_command
            return [await execute("EVALSHA", script.sha, len(keys), *keys, *args)]
        pipeline = redis.pipeline(transaction=False)
        for keys, args in calls:
            pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
        return await pipeline.execute()

    def connection(self) -> AbstractConnection:
        """A connection of its own, outside the pool, for somebody who listens."""
        make: Callable[[], AbstractConnection] = self._pool.make_connection
        return make()

    async def aclose(self) -> None:
        """Every connection of the pool is closed."""
        await self._redis.aclose()
        await self._pool.disconnect()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RedisClient]:
    """A client of a Redis that was checked.

    Raises:  TransientError: it cannot be reached.
             RefusedError: it is too old, or would drop keys when it is full.
    """
    client = RedisClient(url)
    try:
        await client.check()
        yield client
    finally:
        await client.aclose()
