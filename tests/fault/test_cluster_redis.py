"""Redis holds nothing that the log does not: emptied, killed, restored from an older dump.

Every test ends with views that equal the fold of the log, byte for byte.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import redis

from tests.helpers.cluster import NAMES
from tests.helpers.cluster_world import World, fault_seconds, for_seconds, talk, world
from tests.helpers.nursery import Nursery
from tests.helpers.servers import RedisServer

ROUNDS = max(1, fault_seconds(20) // 20)
BETWEEN_S = 1.0
READ_AGAIN = "reading again"
"""What a projection says that found its views elsewhere than it left them."""

Disturb = Callable[[World, RedisServer], Awaitable[None]]


async def flush(_: World, server: RedisServer) -> None:
    """Everything is gone, in an instant."""

    def empty() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.flushall()

    await asyncio.to_thread(empty)


async def kill(one: World, server: RedisServer) -> None:
    """It dies, and is back with what it had written."""
    await asyncio.to_thread(server.kill)
    await for_seconds(1.0, one.load)
    await asyncio.to_thread(server.start)


async def restore(one: World, server: RedisServer) -> None:
    """It comes back as it was some time ago."""
    copy = await asyncio.to_thread(server.copy_data)
    await one.load.turns(16)
    await asyncio.to_thread(server.start_from, copy)


DISTURBANCES: tuple[tuple[Disturb, bool], ...] = ((flush, True), (kill, False), (restore, True))
"""Each with whether views must have lost something by it."""


@pytest.mark.timeout(120 + 60 * ROUNDS)
async def test_R1_R4_law_1_views_equal_the_log_after_all_that_befalls_redis(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, own_redis: RedisServer
) -> None:
    async with world(children, short_dir, (kafka_bootstrap, own_redis.url)) as one:
        one.load.start(24)
        await one.load.turns(24)
        [projection] = one.cluster.living("projection")
        for _ in range(ROUNDS):
            for disturb, is_lossy in DISTURBANCES:
                before = projection.child.stderr.count(READ_AGAIN)
                await disturb(one, own_redis)
                await for_seconds(BETWEEN_S, one.load)
                await one.load.turns(24)
                found = projection.child.stderr.count(READ_AGAIN) > before
                assert found or not is_lossy, f"nothing was lost by {disturb.__name__}"
        told, _ = await one.check(f"a Redis emptied, killed and set back, {ROUNDS} times")
    assert set(told.verdicts) == {"completed"}
    assert not told.settled, "a Redis that is away kills nobody"


@pytest.mark.timeout(120)
async def test_R1_law_1_redis_empty_and_every_process_killed_at_once(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, own_redis: RedisServer
) -> None:
    """The same state comes back from the log alone, and open turns end."""
    servers, replies = (kafka_bootstrap, own_redis.url), talk(short_dir, "sleep 0.3")
    async with world(children, short_dir, servers, replies=replies) as one:
        one.load.start(24, pause_s=0)
        await one.load.turns(24)
        for process in one.cluster.living():
            await one.cluster.kill(process)
        await flush(one, own_redis)
        await one.cluster.start(*NAMES)
        await one.load.turns(12)
        told, _ = await one.check("everything but the log is gone")
    assert set(told.verdicts) == {"completed"}


@pytest.mark.timeout(120 + 40 * ROUNDS)
async def test_R4_two_projections_of_which_one_is_killed_and_one_wakes_up_late(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """A stale projection's batch is refused: the watermark that it expects is not there."""
    async with world(children, short_dir, servers, services=(*NAMES, "projection")) as one:
        one.load.start(24)
        await one.load.turns(12)
        for _ in range(ROUNDS):
            sleeper, victim = one.cluster.living("projection")[:2]
            one.cluster.freeze(sleeper)
            await for_seconds(4.0, one.load)
            one.cluster.thaw(sleeper)
            await one.load.turns(12)
            await one.cluster.kill(victim)
            await one.cluster.start("projection")
            await one.load.turns(12)
        told, _ = await one.check(f"projections, {ROUNDS} times")
    assert set(told.verdicts) == {"completed"}
    assert not told.settled
