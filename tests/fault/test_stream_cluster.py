"""The conformance test of the live stream on Kafka and Redis, two gateways; and what F03 promises.

One cluster for all of them. What has counts prints them. Events of a rewind or a fork (j) are not
there yet: nothing makes one.
"""

import asyncio
import itertools
import json
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
import redis

from tests.helpers.cluster import NAMES, Cluster, Process, metric
from tests.helpers.conformance import SCRIPT, check_all
from tests.helpers.nursery import Child, Nursery
from tests.helpers.servers import Broker, RedisServer, reserved_port
from tests.helpers.stream_disturbances import (
    READERS,
    VANISHING,
    check_ended_key,
    check_never_read,
    check_through,
    check_vanished,
    resident_kib,
    until,
    until_accepted,
)
from tests.helpers.stream_target import Target
from threadlog.clock import SystemClock, rfc3339
from threadlog.ids import TenantId, draw, new_thread_id

MODEL = {"provider": "scripted", "name": "script"}
STOP_S = 4.0
"""Well inside the grace of 5 s."""
UNKNOWN = {"provider": "openai", "name": "none"}
"""A model that no planner has: the turn is over at once."""
CLIENTS, EACH = 64, 4
FLAT_KIB = 32 * 1_024


@dataclass(slots=True)
class World:
    """Services and two gateways on a broker and a Redis of their own."""

    cluster: Cluster
    broker: Broker
    redis: RedisServer
    ports: tuple[int, ...]
    gateways: list[Child] = field(default_factory=list)

    def target(self, token: str) -> Target:
        """Both gateways, for who has this key."""
        return Target([f"http://127.0.0.1:{port}" for port in self.ports], token, MODEL)

    async def start(self, number: int) -> None:
        """Gateway `number` serves, on the port that it always has."""
        one = self.cluster
        one.number += 1
        env = one.environment(
            THREADLOG_GATEWAY__PORT=str(self.ports[number]), THREADLOG_METRICS__PORT="0"
        )
        out = one.home / f"{one.number:03}-gateway.txt"
        child = one.nursery.start("serve", "gateway", env=env, cwd=one.home, out=out)
        self.gateways[number : number + 1] = [child]
        await until(lambda: "gateway on http://" in child.stderr, 20, f"it serves: {child.stderr}")

    async def end(self, number: int, how: signal.Signals) -> float:
        """Gateway `number` has ended by this signal; how many seconds that took."""
        child, began_s = self.gateways[number], asyncio.get_running_loop().time()
        child.send(how)
        status = await asyncio.to_thread(self.cluster.nursery.wait, child)
        assert status == (0 if how is signal.SIGTERM else -how), child.stderr
        return asyncio.get_running_loop().time() - began_s

    def kill(self) -> None:
        """No gateway runs."""
        for child in self.gateways:
            child.send(signal.SIGKILL)

    async def streams(self, number: int) -> tuple[float, str]:
        """How many streams the gateway counts as open, and its page of metrics."""
        process = Process("projection", self.gateways[number])
        status, text = await self.cluster.get(process, "/metrics")
        assert status == 200, text
        return metric(text, "threadlog_stream_connections"), text

    async def key(self, *argv: str) -> str:
        """A key that both gateways know."""
        name = f"n-{draw()[:8]}"
        child = await self.cluster.run("keys", "create", "--name", name, *argv)
        assert child.status == 0, child.stderr
        await until_accepted(self.target(key := child.stdout.strip()), key)
        return key


@pytest.fixture(scope="module")
def world(children: Nursery, kafka_bootstrap: str, redis_url: str) -> Iterator[World]:
    """The servers of everybody are asked for so that it is skipped or fails as all such tests."""
    assert kafka_bootstrap
    assert redis_url
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp")))
        home.chmod(0o755)
        broker, server = stack.enter_context(Broker()), stack.enter_context(RedisServer())
        ports = stack.enter_context(reserved_port()), stack.enter_context(reserved_port())
        one = Cluster(children, home, broker.bootstrap, server.url)
        script = home / "script.json"
        script.write_text(json.dumps(SCRIPT))
        made = World(one, broker, server, ports)

        async def begin() -> None:
            await one.apply_topics()
            await one.start(*NAMES, THREADLOG_SCRIPTED__SCRIPT=str(script))
            for number in range(2):
                await made.start(number)

        stack.callback(lambda: asyncio.run(one.stop()))
        stack.callback(made.kill)
        asyncio.run(begin())
        yield made


@pytest.fixture
async def target(world: World) -> Target:
    """Both gateways, with a key of a tenant of this test alone."""
    return world.target(await world.key("--tenant", f"t-{draw()[:8]}"))


def say(name: str, figures: object) -> None:
    print(f"\ncluster, {name}: {figures}")  # noqa: T201  # the figures of the run, for a report


@pytest.mark.timeout(150)
async def test_F81_F82_two_gateways_every_check_while_500_never_read(
    world: World, target: Target
) -> None:
    """(a) to (f), `until=turn`, slow readers: see `tests.helpers.conformance`."""
    say("(f)", await check_vanished(target))
    async with asyncio.TaskGroup() as at_once:
        deaf = at_once.create_task(check_never_read(target, world.gateways[0].pid))
        at_once.create_task(check_all(target, say))
    say("(f)", deaf.result())
    streams, page = await world.streams(0)
    assert streams == 0, "a stream stays counted"
    closed = metric(page, "threadlog_stream_closed_total", {"reason": "client"})
    assert closed >= VANISHING + READERS


@pytest.mark.timeout(120)
async def test_F82_a_gateway_stopped_and_one_killed_in_mid_stream_lose_nothing(
    world: World, target: Target
) -> None:
    """(g) A stop says so to every stream, and ends in time; the other gateway goes on."""
    took: list[float] = []

    async def stop() -> None:
        took.append(await world.end(0, signal.SIGTERM))

    async def kill() -> None:
        await world.end(1, signal.SIGKILL)

    through = await check_through(target, stop, first=0, then=1)
    assert through.told == ["reconnect shutdown"] * 6, through
    assert took[0] < STOP_S
    say("(g) SIGTERM", f"{through}, ended in {took[0]:.2f} s")
    await world.start(0)
    through = await check_through(target, kill, first=1, then=0)
    assert through.told == [], through
    say("(g) kill -9", through)
    await world.start(1)


@pytest.mark.timeout(120)
async def test_F82_redis_emptied_and_the_projection_killed_in_mid_stream(
    world: World, target: Target
) -> None:
    """(h) Whoever stays connected, and whoever has to come back, has everything in the end."""

    async def disturb() -> None:
        await asyncio.to_thread(flush, world.redis)
        [projection] = world.cluster.living("projection")
        await world.cluster.kill(projection)
        await asyncio.to_thread(flush, world.redis)
        await world.cluster.start("projection")

    through = await check_through(target, disturb, first=0, then=1)
    say("(h)", through)


def flush(server: RedisServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.flushall()


@pytest.mark.timeout(120)
async def test_F82_redis_and_the_broker_away_and_back_in_mid_stream(
    world: World, target: Target
) -> None:
    """Streams go on, turns end, memory is flat; whoever asks meanwhile is told to come again."""
    thread, pid = await target.create(), world.gateways[0].pid
    before_kib = resident_kib(pid)

    async def redis_away() -> None:
        await asyncio.to_thread(world.redis.kill)
        for number in range(2):
            async with target.stream(thread, number, since=-1) as stream:
                assert (stream.status, stream.headers["retry-after"]) == (503, "1"), stream.body
        await asyncio.to_thread(world.redis.start)

    async def broker_away() -> None:
        await asyncio.to_thread(world.broker.kill)
        async with target.stream(thread, 0, since=-1) as stream:
            assert stream.status == 200, "what was read needs no broker"
        await asyncio.to_thread(world.broker.start)

    say("Redis away", await check_through(target, redis_away, is_lossy=True))
    say("broker away", await check_through(target, broker_away))
    growth_kib = resident_kib(pid) - before_kib
    say("both away", f"memory of the gateway {growth_kib:+} KiB")
    assert growth_kib < FLAT_KIB


@pytest.mark.timeout(90)
async def test_F82_F94_a_stream_ends_with_its_key_at_every_gateway(
    world: World, target: Target
) -> None:
    """(i) Revoked, and expired."""
    clock, tenant = SystemClock(), await _tenant(target)
    key = await world.key("--tenant", tenant)
    ends_ms = clock.now_ms() + 6_000
    brief = await world.key("--tenant", tenant, "--expires", rfc3339(ends_ms))

    async def revoke() -> None:
        child = await world.cluster.run("keys", "revoke", key.split("_")[2], "--yes")
        assert child.status == 0, child.stderr

    async def expire() -> None:
        await until(lambda: clock.now_ms() > ends_ms, 10, "it expires")

    revoked = check_ended_key(target, key, revoke)
    expired = check_ended_key(target, brief, expire)
    say("(i) seconds, revoked and expired", await asyncio.gather(revoked, expired))


async def _tenant(target: Target) -> str:
    """Whose threads the target's are."""
    async with target.asking() as client:
        return str((await client.get("/v1/info")).json()["tenant_id"])


# -- F03


@pytest.mark.timeout(150)
async def test_F03_every_202_has_its_event_whatever_dies(world: World, target: Target) -> None:
    """A gateway and the broker are killed while 64 clients post, each with its key."""
    posts = Posts(target)
    async with asyncio.TaskGroup() as posting:
        for number in range(CLIENTS):
            posting.create_task(posts.send(number))
        await until(lambda: len(posts.accepted) >= CLIENTS, 20, "some are accepted", 0.002)
        at_kill = len(posts.accepted)
        world.gateways[0].send(signal.SIGKILL)
        await asyncio.to_thread(world.broker.kill)
        away = [f"away-{number}" for number in range(4)]
        refused = await asyncio.gather(*(posts.once(key, 1) for key in away))
        assert [answer.status_code for answer in refused] == [503] * 4
        assert {answer.json()["code"] for answer in refused} == {"log_unavailable"}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        await asyncio.to_thread(world.broker.start)
    assert posts.refusals, "nobody was in the middle"
    await world.end(0, signal.SIGKILL)
    await world.start(0)
    say("F03", f"{at_kill} of {len(posts.accepted)} before, then {dict(posts.refusals)}")
    # Nothing was kept aside: what was refused without a broker is not there when it is back.
    tenant = TenantId(await _tenant(target))
    for key in away:
        async with target.asking(1) as client:
            answer = await client.get(f"/v1/threads/{new_thread_id(tenant, key)}")
            assert answer.status_code == 404, answer.text
    assert len(posts.accepted) == CLIENTS * EACH
    async with asyncio.TaskGroup() as repeating:
        for number, key in enumerate([*posts.accepted, *away]):
            repeating.create_task(posts.repeat(key, number % 2))


@dataclass(slots=True)
class Posts:
    """Clients that make a thread each. `accepted`: the event of each key that has its 202."""

    target: Target
    accepted: dict[str, str] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    few: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))

    async def once(self, key: str, gateway: int) -> httpx2.Response:
        """One answer."""
        body = {"settings": {"model": UNKNOWN}, "message": {"content": key}}
        return await self.target.post("/v1/threads", body, gateway, key=key)

    async def send(self, number: int) -> None:
        """Each sent until it is accepted, at one gateway and at the other."""
        for each in range(EACH):
            await self._sent(f"key-{number}-{each}", itertools.count(number + each))

    async def _sent(self, key: str, gateways: Iterator[int]) -> None:
        while key not in self.accepted:
            try:
                answer = await self.once(key, next(gateways))
            except httpx2.TransportError as error:
                self.refusals[type(error).__name__] += 1
                await asyncio.sleep(0.1)
                continue
            if answer.status_code == 202:  # HTTP's own number
                self.accepted[key] = answer.json()["event_id"]
                return
            assert answer.status_code in (409, 503), answer.text
            self.refusals[answer.json()["code"]] += 1
            await asyncio.sleep(int(answer.headers.get("retry-after", "0")) or 0.1)

    async def repeat(self, key: str, gateway: int) -> None:
        """The same key again: the same event, of which there is one."""
        async with self.few:
            await self._repeat(key, gateway)

    async def _repeat(self, key: str, gateway: int) -> None:
        answer = await self.once(key, gateway)
        assert answer.status_code == 202, answer.text
        sent = answer.json()
        assert self.accepted.get(key, sent["event_id"]) == sent["event_id"]
        await self.target.row(sent["thread_id"], gateway, sent["receipt"])
        log = [json.loads(line) for line in await self.target.log(sent["thread_id"], gateway)]
        messages = [e["event_id"] for e in log if e["type"] == "message.received"]
        assert messages == [sent["event_id"]]
        assert [event["type"] for event in log].count("thread.created") == 1
