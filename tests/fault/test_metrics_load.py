"""Every service scraped under a load of many threads and tenants: all is there, nothing grows.

`TEST_METRICS_THREADS` says how many threads; a few in CI, a thousand where somebody has the time.
"""

import asyncio
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.helpers.cluster import NAMES, Cluster, Process, cluster, until
from tests.helpers.cluster_load import Client
from tests.helpers.nursery import Nursery, nursery
from tests.helpers.scrape import bound, missing, series, strange
from threadlog.bootstrap.cluster import Cluster as Connections
from threadlog.commands.service import Commands
from threadlog.events.content import ModelRef
from threadlog.ids import TenantId
from threadlog.queries.reading import Reader
from threadlog.telemetry.owners import owners
from threadlog.telemetry.table import ROWS, Service

THREADS = int(os.environ.get("TEST_METRICS_THREADS", "100"))
TENANTS, AT_ONCE, PARTITIONS = 50, 24, 4
MODEL = ModelRef(provider="scripted", name="script")
CALL = {"calls": ["echo done"], "usage": {"input": 3, "output": 2}}
SCRIPT = [CALL, {"text": "answered", "usage": {"input": 5, "output": 1}}]
SERVICES: dict[str, Service] = {
    "planner": "planner",
    "tool-runner": "tool_runner",
    "projection": "projection",
    "gateway": "gateway",
    "metering": "metering",
}


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as started:
        yield started


def tenant(number: int) -> TenantId:
    return TenantId(f"tenant-{number % TENANTS:03}")


def client(connections: Connections, number: int) -> Client:
    log, views, blobs = connections.log, connections.views, connections.blobs
    who, clock = tenant(number), connections.clock
    return Client(
        Commands(log, views, blobs, clock, tenant=who, actor="user:test"),
        Reader(views, blobs, connections.notify, who, look_s=1.0),
        MODEL,
    )


async def turns(connections: Connections, numbers: range) -> list[str]:
    """A thread of one turn for each number; their ids."""
    room = asyncio.Semaphore(AT_ONCE)

    async def turn(number: int) -> str:
        async with room:
            result = await client(connections, number).turn("hello")
            assert result.verdict == "completed"
            return result.thread_id

    return await asyncio.gather(*map(turn, numbers))


async def begin_gateway(one: Cluster) -> Process:
    """A gateway that has taken one message over HTTP."""
    made = await one.run("keys", "create", "--name", "load")
    env = one.environment(THREADLOG_GATEWAY__PORT="0", THREADLOG_METRICS__PORT="0")
    out = one.home / "gateway.txt"
    child = one.nursery.start("serve", "gateway", env=env, cwd=one.home, out=out)
    process = Process("projection", child)
    one.processes.append(process)
    await until(lambda: process.address is not None, "the gateway serves", [process])
    address = child.stderr.partition("gateway on ")[2].partition(";")[0]
    model = {"provider": MODEL.provider, "name": MODEL.name}
    body = {"settings": {"model": model}, "message": {"content": "hello"}}
    request = urllib.request.Request(
        f"{address}/v1/threads",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {made.stdout.strip()}"},
    )

    def ask() -> int:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)

    assert await asyncio.to_thread(ask) in (200, 201, 202)
    return process


async def begin_metering(one: Cluster) -> Process:
    """Metering counts what the projection tells."""
    env, out = one.environment(THREADLOG_METRICS__PORT="0"), one.home / "metering.txt"
    child = one.nursery.start("serve", "metering", env=env, cwd=one.home, out=out)
    process = Process("projection", child)
    one.processes.append(process)
    await until(lambda: process.address is not None, "metering serves", [process])
    return process


def nameless(page: str) -> str:
    """The page without the tenants that metering names, a bounded number of them."""
    lines = page.splitlines()
    return "\n".join(line for line in lines if not line.startswith("threadlog_tenant_"))


async def scraped(one: Cluster, processes: dict[str, Process]) -> dict[str, str]:
    """The page of every service, once it shows all that it owns."""
    pages: dict[str, str] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 15
    for name, process in processes.items():
        while True:
            status, pages[name] = await one.get(process, "/metrics")
            assert status == 200
            lacking = missing(pages[name], SERVICES[name])
            if not lacking:
                break
            assert loop.time() < deadline, f"{name} does not show {lacking}"
            await asyncio.sleep(0.2)
    return pages


@pytest.mark.timeout(30 if THREADS <= 100 else 300)
async def test_F103_a_scrape_of_all_services_shows_everything_and_grows_with_nothing(
    children: Nursery, tmp_path: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    servers = (kafka_bootstrap, redis_url)
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    async with cluster(children, tmp_path, servers, partitions=PARTITIONS) as one:
        begun = await one.start(*NAMES, THREADLOG_SCRIPTED__SCRIPT=str(script))
        processes = dict(zip(NAMES, begun, strict=True)) | {
            "gateway": await begin_gateway(one),
            "metering": await begin_metering(one),
        }
        async with one.connected() as connections:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            threads = await turns(connections, range(THREADS // 10))
            few_s = loop.time() - began_s
            few = await scraped(one, processes)
            threads += await turns(connections, range(THREADS // 10, THREADS))
            took_s = loop.time() - began_s
            many = await scraped(one, processes)
    ids = [*threads, *map(tenant, range(TENANTS))]
    for name, page in many.items():
        service = SERVICES[name]
        assert not strange(page, service)
        assert not [each for each in ids if each in nameless(page)], f"{name} shows an id"
        before, after = series(few[name]), series(page)
        for row in ROWS:
            most = bound(row, PARTITIONS, models=1)
            assert after[row] <= most, f"{name}: {row} has {after[row]} series, bound {most}"
        # Tenants show as they come, up to a bound, which was tried above.
        steady = [row for row in ROWS if "tenant" not in ROWS[row].labels]
        grown = {key: (before[key], after[key]) for key in steady if after[key] > before[key]}
        # What first happened later shows later; a number of threads is never the reason.
        assert sum(now - then for then, now in grown.values()) < THREADS // 10, grown
        total = sum(bound(row, PARTITIONS, models=1) for row in ROWS if service in owners(row))
        print(  # noqa: T201  # the figures of the run, for a report
            f"\n{name}: {sum(before.values())} series with {THREADS // 10} threads, "
            f"{sum(after.values())} with {THREADS}, bound {total}; grown: {grown}"
        )
    finished = series(many["planner"])["threadlog_turn_duration_seconds"]
    assert finished
    print(  # noqa: T201  # as above
        f"{THREADS} threads of {TENANTS} tenants in {took_s:.1f} s, a tenth in {few_s:.1f} s"
    )
    assert set(SERVICES.values()) <= set(get_args(Service))
