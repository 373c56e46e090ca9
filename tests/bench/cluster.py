"""`turn` on a real broker and a real Redis: a process of each service, and this one as client.

`python -m tests.bench.cluster FOLDER [trace|profile]` prints one round as JSON. The servers are
named by `THREADLOG_…` and, for their CPU time, by `BENCH_PIDS`: broker, Redis.
"""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from tests.bench.parts import SCRIPT, turn_of
from tests.bench.watching import Mode, Watch
from tests.bench.workload import (
    ONE_CLIENT_TURNS,
    WARM_UP_TURNS,
    Counts,
    Turn,
    in_flight,
    measure,
    one_client,
)
from threadlog.bootstrap.cluster import Cluster, open_cluster
from threadlog.bootstrap.topics import applied
from threadlog.errors import ThreadlogError, TransientError
from threadlog.ids import Partition, draw
from threadlog.settings import load_settings

SERVICES = ("planner", "tool-runner", "projection")
_READY_S = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")
_APPENDS = "threadlog_event_append_duration_seconds_count"
_LINE_BYTES_MAX = 256 * 1024 * 1024


def cpu_ms(pid: int | str) -> float:
    """The CPU time of a process so far, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS * 1e3


class Service:
    """One service process, of which `address` tells the metrics."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name, self.process = name, process
        self.address = ""

    async def heard(self, kind: str) -> Any:
        """The next thing of this kind that it says."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            said = json.loads(line)
            if kind in said:
                return said[kind]
        raise AssertionError(f"{self.name} has ended")

    async def ask(self, line: str, kind: str) -> Any:
        """What it answers to that line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        return await self.heard(kind)

    def appends(self) -> float:
        """How many appends it has made."""
        with urllib.request.urlopen(f"http://{self.address}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(_APPENDS))


@asynccontextmanager
async def started(name: str, mode: Mode) -> AsyncIterator[Service]:
    """The service runs, and has ended in the end."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "tests.bench.service", name, mode]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES_MAX
    )
    service = Service(name, process)
    try:
        while "metrics on " not in (notice := await service.heard("notice")):
            pass
        service.address = notice.rpartition(" ")[2]
        yield service
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


def _fail(error: ThreadlogError) -> None:
    raise error


@asynccontextmanager
async def running(folder: Path, mode: Mode) -> AsyncIterator[tuple[Cluster, list[Service]]]:
    """Topics of a name of their own, all services, and the client's connections."""
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    os.environ |= {
        "THREADLOG_KAFKA__PREFIX": f"bench-{draw()[:8]}",
        "THREADLOG_BLOBS__URL": (folder / "blobs").as_uri(),
        "THREADLOG_SCRIPTED__SCRIPT": str(folder / "script.json"),
        "THREADLOG_DATA_DIR": str(folder / "data"),
        "THREADLOG_METRICS__PORT": "0",
    }
    settings = load_settings()
    await applied(settings)
    async with (
        started("projection", mode) as projection,
        started("planner", mode) as planner,
        started("tool-runner", mode) as runner,
        open_cluster(settings, "gateway", draw(), on_fatal=_fail) as cluster,
    ):
        yield cluster, [planner, runner, projection]


async def served(turn: Turn) -> Turn:
    """The turn, once the services have their partitions: until then views do not exist."""
    async with asyncio.timeout(_READY_S):
        while True:
            try:
                await turn()
            except TransientError:
                await asyncio.sleep(0.05)
            else:
                return turn


async def run(folder: Path) -> dict[str, float]:
    """One round on new topics."""
    async with running(folder, "plain") as (cluster, services):
        broker, redis = os.environ["BENCH_PIDS"].split()
        partitions = [Partition(n) for n in range(cluster.config.partitions)]

        async def count() -> Counts:
            used = {f"cpu_{s.name}_ms": cpu_ms(s.process.pid) for s in services}
            used["cpu_client_ms"] = cpu_ms("self")
            return {
                "cpu_ms": sum(used.values()),
                **used,
                "cpu_broker_ms": cpu_ms(broker),
                "cpu_redis_ms": cpu_ms(redis),
                "events": sum([await cluster.log.partition(p).end() for p in partitions]),
                "service_appends": sum(service.appends() for service in services),
            }

        turn = turn_of(cluster.commands("user:bench"), cluster.reader())
        return await measure(await served(turn), count)


async def watched(folder: Path, mode: Mode) -> dict[str, Any]:
    """What every process of the cluster saw, with one client and under load."""
    watch = Watch(mode)
    async with running(folder, mode) as (cluster, services):
        turn = turn_of(
            cluster.commands("user:bench"),
            cluster.reader(),
            lambda place, key: watch.at(place, [key]),
        )
        await one_client(await served(turn), WARM_UP_TURNS)

        async def begin() -> None:
            for service in services:
                await service.ask("begin", "begun")
            watch.begin()

        async def end() -> dict[str, Any]:
            reports = {"client": watch.end()}
            return reports | {s.name: await s.ask("end", "report") for s in services}

        await begin()
        await one_client(turn, ONE_CLIENT_TURNS)
        alone = await end()
        await begin()
        turns_per_s = await in_flight(turn)
        return {"one_client": alone, "in_flight": await end(), "turns_per_s": turns_per_s}


if __name__ == "__main__":
    where = Path(sys.argv[1])
    work = watched(where, cast(Mode, sys.argv[2])) if len(sys.argv) > 2 else run(where)
    print(json.dumps(asyncio.run(work)))
