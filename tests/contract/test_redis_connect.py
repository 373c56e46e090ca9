"""The way to Redis: checked at the start, bounded, and safe to cancel; its errors are ours."""

import asyncio
import random
import socket
from pathlib import Path

import pytest
from redis import exceptions

from tests.helpers.servers import RedisServer
from threadlog import ids
from threadlog.adapters.redis import connect
from threadlog.adapters.redis.connect import RedisClient, connected
from threadlog.adapters.redis.failures import FOREIGN, mapped
from threadlog.errors import (
    CorruptError,
    RefusedError,
    ThreadlogError,
    TransientError,
    UsageError,
)


async def test_R5_a_cancelled_call_never_gives_its_reply_to_another(redis_url: str) -> None:
    """redis/redis-py#2665: 1,000 calls are cancelled at any point, among as many that are not."""
    client = RedisClient(redis_url, pool_max=4)
    chance = random.Random(2665)
    prefix = ids.draw()
    tags = [f"tenant-{n}" for n in range(20)]

    async def ask(tag: str) -> None:
        replies = await client.batch([("GET", f"{prefix}:{tag}"), ("ECHO", tag)])
        assert replies == [tag.encode() * 2_000, tag.encode()]

    async def ask_and_leave(tag: str) -> bool:
        task = asyncio.create_task(ask(tag))
        for _ in range(chance.randrange(0, 30)):
            await asyncio.sleep(0)
        await asyncio.sleep(chance.choice((0, 0, 0.0005, 0.002)))
        task.cancel()
        [result] = await asyncio.gather(task, return_exceptions=True)
        assert result is None or isinstance(result, asyncio.CancelledError)
        return result is not None

    for tag in tags:
        await client.batch([("SET", f"{prefix}:{tag}", tag * 2_000)])
    left = 0
    while left < 1_000:
        some = chance.choices(tags, k=20)
        leaving = [ask_and_leave(tag) for tag in some[:15]]
        answers = await asyncio.gather(*leaving, *(ask(tag) for tag in some[15:]))
        left += sum(answer is True for answer in answers)
    # And the pool is whole: as many calls as it has connections run at the same time.
    async with asyncio.timeout(5):
        await asyncio.gather(*(ask(tag) for tag in tags))
    await client.batch([("UNLINK", *(f"{prefix}:{tag}" for tag in tags))])
    await client.aclose()


async def test_more_calls_than_connections_wait_their_turn(redis_url: str) -> None:
    client = RedisClient(redis_url, pool_max=2)
    answers = await asyncio.gather(*(client.batch([("ECHO", str(n))]) for n in range(200)))
    assert answers == [[str(n).encode()] for n in range(200)]
    await client.aclose()


async def test_a_server_that_stands_still_is_a_transient_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connect, "SOCKET_MS", 200)
    with RedisServer() as server:
        client = RedisClient(server.url)
        await client.batch([("PING",)])
        server.pause()
        with pytest.raises(TransientError, match="THREADLOG_REDIS__URL"):
            await client.batch([("PING",)])
        server.resume()
        assert await client.batch([("ECHO", "again")]) == [b"again"]
        await client.aclose()


async def test_an_address_where_nobody_is_says_which_setting() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"redis://user:secret-word@127.0.0.1:{free.getsockname()[1]}/0"
        with pytest.raises(TransientError, match="THREADLOG_REDIS__URL") as caught:
            async with connected(url):
                pass
    assert "secret-word" not in str(caught.value)
    with pytest.raises(UsageError, match="THREADLOG_REDIS__URL"):
        RedisClient("http://somewhere")


async def test_a_server_that_drops_keys_is_refused() -> None:
    with RedisServer({"maxmemory-policy": "allkeys-lru"}) as server:
        with pytest.raises(RefusedError, match="CONFIG SET maxmemory-policy noeviction"):
            async with connected(server.url):
                pass
        client = RedisClient(server.url)
        await client.batch([("CONFIG", "SET", "maxmemory-policy", "noeviction")])
        await client.aclose()
        async with connected(server.url) as checked:
            assert await checked.batch([("ECHO", "there")]) == [b"there"]


async def test_an_old_server_is_refused(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "VERSION_MIN", (99, 0))
    with pytest.raises(RefusedError, match=r"99\.0"):
        async with connected(redis_url):
            pass


async def test_a_wrong_password_is_refused_and_not_shown() -> None:
    with RedisServer({"requirepass": "right-word"}) as server:
        url = server.url.replace("://", "://:wrong-word@")
        with pytest.raises(RefusedError, match="password") as caught:
            async with connected(url):
                pass
        assert "wrong-word" not in str(caught.value)
        async with connected(server.url.replace("://", "://:right-word@")):
            pass


async def test_a_socket_in_a_folder_will_do(short_dir: Path) -> None:
    path = short_dir / "redis"
    with RedisServer({"unixsocket": str(path)}):
        async with connected(f"unix://{path}") as client:
            assert await client.batch([("ECHO", "there")]) == [b"there"]
            assert client.address == f"unix://{path}"


async def test_a_connection_that_the_server_closed_is_replaced(redis_url: str) -> None:
    client = RedisClient(redis_url, pool_max=1)
    other = RedisClient(redis_url, pool_max=1)
    [name] = await client.batch([("CLIENT", "ID")])
    await other.batch([("CLIENT", "KILL", "ID", name)])
    assert await client.batch([("ECHO", "there")]) == [b"there"]
    await client.aclose()
    await other.aclose()


FAMILIES = (TransientError, RefusedError, CorruptError)
EXPECTED: dict[str, type[ThreadlogError]] = {
    "AuthenticationError": RefusedError,
    "AuthenticationWrongNumberOfArgsError": RefusedError,
    "AuthorizationError": RefusedError,
    "ExternalAuthProviderError": RefusedError,
    "NoPermissionError": RefusedError,
    "DataError": CorruptError,
    "ExecAbortError": CorruptError,
    "InvalidResponse": CorruptError,
    "InvalidPipelineStack": TransientError,
    "ModuleError": CorruptError,
    "NoSuchFieldsetError": CorruptError,
    "RedisError": CorruptError,
    "ResponseError": CorruptError,
    "ClusterCrossSlotError": CorruptError,
}


def errors() -> list[type[Exception]]:
    return [
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]


@pytest.mark.parametrize("foreign", errors(), ids=lambda each: each.__name__)
def test_every_error_of_the_client_lands_in_a_family(foreign: type[Exception]) -> None:
    assert issubclass(foreign, FOREIGN)
    found = mapped(foreign("1234 127.0.0.1:6379"), "redis://somewhere:6379")
    assert type(found) is EXPECTED.get(foreign.__name__, TransientError)
    assert "THREADLOG_REDIS__URL" in str(found)


@pytest.mark.parametrize(
    ("reply", "family"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", TransientError),
        ("ERR Error running script: @user_script: -OOM command not allowed", TransientError),
        ("BUSY Redis is busy running a script.", TransientError),
        ("MISCONF Errors writing to the AOF file", TransientError),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", CorruptError),
        ("ERR threadlog: malformed row", CorruptError),
    ],
)
def test_replies_without_a_class_are_told_by_their_word(
    reply: str, family: type[ThreadlogError]
) -> None:
    assert type(mapped(exceptions.ResponseError(reply), "redis://somewhere")) is family
