"""A cluster for tests: real service processes on a real broker and Redis, one machine, one prefix.

Guarantees: topics are made by `threadlog topics apply`, services run as `threadlog serve`; each
process is known by its pid, whatever is started is stopped, and what every one of them said is
kept. Commands run without a sandbox, so that they can leave a line outside for each time that they
start.
"""

import asyncio
import contextlib
import os
import re
import signal
import struct
import urllib.error
import urllib.request
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from confluent_kafka.admin import AdminClient

from tests.helpers.nursery import Child, Nursery
from threadlog.bootstrap.cluster import Cluster as Connections
from threadlog.bootstrap.cluster import open_cluster
from threadlog.errors import ThreadlogError
from threadlog.ids import WorkerId, draw
from threadlog.settings import BlobsSettings, KafkaSettings, RedisSettings, Settings

Name = Literal["planner", "tool-runner", "projection", "metering"]
NAMES: tuple[Name, ...] = ("planner", "tool-runner", "projection")
READY_S = 20.0
END_S = 20.0
ASK_S = 10
SAID_MAX = 2_500
"""Characters of each process's words that a failure shows."""
_LOOK_S = 0.02
_SAID = re.compile(r"(planner|tool-runner|projection|metering) ([0-9a-f-]{36}) is in group")
_METRICS = re.compile(r"metrics on ([0-9.]+:[0-9]+)")

_HEAD = struct.Struct(">hih")
"""Of an assignment in the consumers' protocol: version, topics, length of the first one's name."""


@dataclass(slots=True, eq=False)
class Process:
    """One service process. `fate`: how it ended or was treated; None: nothing was done to it."""

    name: Name
    child: Child
    fate: Literal["killed", "frozen", "told to end"] | None = None

    @property
    def worker(self) -> WorkerId | None:
        """As its claims name it; None while it has not said so."""
        found = _SAID.search(self.child.stderr)
        return None if found is None else WorkerId(f"{found[1]}-{found[2]}")

    @property
    def address(self) -> str | None:
        """Where its metrics are; None while it has not said so."""
        found = _METRICS.search(self.child.stderr)
        return None if found is None else found[1]

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, or only its remains are there."""
        try:
            stat = Path(f"/proc/{self.child.pid}/stat").read_text()
        except OSError:
            return True
        return stat.rpartition(")")[2].split()[0] in "ZX"

    def __str__(self) -> str:
        return f"{self.name} {self.child.pid} ({self.child.out.stem})"


@dataclass(slots=True)
class Cluster:
    """Everything of one cluster below `home`. `model`: the address of a model server."""

    nursery: Nursery
    home: Path
    bootstrap: str
    redis_url: str
    partitions: int = 4
    model: str | None = None
    drain_ms: int = 20_000
    prefix: str = field(default_factory=lambda: f"t-{draw()[:13]}")
    processes: list[Process] = field(default_factory=list)
    number: int = 0

    # -- settings

    @property
    def topic(self) -> str:
        """The topic of events."""
        return f"{self.prefix}.events"

    @property
    def marker(self) -> Path:
        """Where `note` leaves its lines: outside of every workspace."""
        return marker_in(self.home)

    def effects(self) -> list[str]:
        """The lines that commands have left."""
        return self.marker.read_text().splitlines() if self.marker.exists() else []

    def environment(self, **more: str | None) -> dict[str, str]:
        """The environment of a process of this cluster; None: without that variable."""
        variables: dict[str, str | None] = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "THREADLOG_DATA_DIR": str(self.home / "data"),
            "THREADLOG_TOOL_RUNNER__WORKSPACES": str(self.home / "workspaces"),
            "THREADLOG_BLOBS__URL": f"file://{self.home / 'blobs'}",
            "THREADLOG_KAFKA__BOOTSTRAP": self.bootstrap,
            "THREADLOG_KAFKA__PREFIX": self.prefix,
            "THREADLOG_KAFKA__PARTITIONS": str(self.partitions),
            "THREADLOG_KAFKA__REPLICATION": "1",
            "THREADLOG_KAFKA__MEMBER_TIMEOUT_MS": "2000",
            "THREADLOG_KAFKA__HEARTBEAT_MS": "500",
            "THREADLOG_REDIS__URL": self.redis_url,
            "THREADLOG_WORKER__DRAIN_TIMEOUT_MS": str(self.drain_ms),
            "THREADLOG_SANDBOX": "off",
            "OPENAI_BASE_URL": self.model,
            **more,
        }
        return {name: value for name, value in variables.items() if value is not None}

    def settings(self) -> Settings:
        """The same for a client in this process."""
        return Settings(
            data_dir=self.home / "data",
            kafka=KafkaSettings(
                bootstrap=self.bootstrap,
                prefix=self.prefix,
                partitions=self.partitions,
                replication=1,
                member_timeout_ms=2_000,
                heartbeat_ms=500,
            ),
            redis=RedisSettings(url=self.redis_url),
            blobs=BlobsSettings(url=f"file://{self.home / 'blobs'}"),
            sandbox="off",
        )

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Connections]:
        """A client's connections; a fatal error of one of them fails the test."""
        fatal: list[ThreadlogError] = []
        async with open_cluster(self.settings(), "cli", draw(), on_fatal=fatal.append) as opened:
            yield opened
        assert not fatal, fatal

    # -- processes

    async def run(self, *argv: str, **env: str | None) -> Child:
        """`threadlog ARGV` ran to its end."""
        child = self._born(*argv, **env)
        await until(lambda: self._reaped(child), f"threadlog {' '.join(argv)} ends")
        return child

    async def apply_topics(self) -> None:
        """The topics are there."""
        child = await self.run("topics", "apply")
        assert child.status == 0, child.stderr

    def begin(self, name: Name, **env: str | None) -> Process:
        """`threadlog serve NAME` was started."""
        process = Process(name, self._born("serve", name, "--metrics-port", "0", **env))
        self.processes.append(process)
        return process

    async def start(self, *names: Name, **env: str | None) -> list[Process]:
        """These services run and serve whatever share of the partitions they were given."""
        begun = [self.begin(name, **env) for name in names]
        for process in begun:
            await self.ready(process)
        return begun

    async def ready(self, process: Process) -> None:
        """It has joined, and every partition that it owns is served."""
        await until(
            lambda: process.address is not None or process.has_ended, "it joins", [process], READY_S
        )
        assert not process.has_ended, f"{process} ended: {process.child.stderr}"
        await until_true(lambda: self._is_ready(process), "it is ready", [process], READY_S)

    async def _is_ready(self, process: Process) -> bool:
        status, _ = await self.get(process, "/readyz")
        return status == 200

    async def get(self, process: Process, path: str) -> tuple[int, str]:
        """A page of its metrics server; status 0: no answer."""

        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://{process.address}{path}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()
            except OSError:
                return 0, ""

        return await asyncio.to_thread(ask)

    async def shares(self, name: Name) -> dict[WorkerId, list[int]]:
        """The partitions of each member of this service's group, as the broker has them."""

        def ask() -> dict[WorkerId, list[int]]:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                groups: Any = admin.list_groups(f"{self.prefix}.{name}", timeout=ASK_S)
            return {
                WorkerId(member.client_id): _partitions_in(member.assignment or b"")
                for group in groups
                for member in group.members
            }

        return await asyncio.to_thread(ask)

    async def has_a_share(self, process: Process) -> None:
        """The broker has given partitions to this process."""

        async def is_so() -> bool:
            shares = await self.shares(process.name)
            return process.worker is not None and bool(shares.get(process.worker))

        await until_true(is_so, "it has a share of the partitions", [process])

    def living(self, name: Name | None = None) -> list[Process]:
        """Processes that run and were not told to end."""
        return [
            p
            for p in self.processes
            if p.fate in (None, "frozen") and name in (None, p.name) and not p.has_ended
        ]

    async def kill(self, process: Process) -> None:
        """It is gone, as by `kill -9`."""
        process.fate = "killed"
        process.child.send(signal.SIGKILL)
        await self.ended(process)

    async def ended(self, process: Process, deadline_s: float = END_S) -> int:
        """How it ended."""
        child = process.child
        await until(lambda: self._reaped(child), "it ends", [process], deadline_s)
        assert child.status is not None
        return child.status

    def tell_to_end(self, process: Process) -> None:
        """It was sent SIGTERM."""
        process.fate = "told to end"
        process.child.send(signal.SIGTERM)

    async def terminate(self, process: Process, deadline_s: float = END_S) -> None:
        """It has ended in order."""
        self.tell_to_end(process)
        status = await self.ended(process, deadline_s)
        assert status == 0, f"{process} ended with {status}: {process.child.stderr}"

    def freeze(self, process: Process) -> None:
        """It stands still, until `thaw`."""
        process.fate = "frozen"
        process.child.send(signal.SIGSTOP)

    def thaw(self, process: Process) -> None:
        """It goes on."""
        process.child.send(signal.SIGCONT)

    def innocent(self) -> frozenset[WorkerId]:
        """Workers whose claims nobody but themselves may close."""
        fates = (None, "told to end")
        return frozenset(p.worker for p in self.processes if p.fate in fates and p.worker)

    def check_nobody_died(self) -> None:
        """No process ended but those that were killed, or told to end and did so in order."""
        for process in self.processes:
            if process.fate == "killed" or not process.has_ended:
                continue
            status = self.nursery.wait(process.child)
            assert process.fate == "told to end", f"{process} died: {process.child.stderr}"
            assert status == 0, f"{process} ended with {status}: {process.child.stderr}"

    def story(self) -> str:
        """What became of every process, and the last that it said."""
        return "\n".join(
            f"--- {p}: {p.fate or 'left alone'}, {'ended' if p.has_ended else 'runs'}\n"
            f"{p.child.stderr[-SAID_MAX:]}"
            for p in self.processes
        )

    async def stop(self) -> None:
        """No process of this cluster runs."""
        for process in self.processes:
            process.child.send(signal.SIGKILL)
        for process in self.processes:
            await self.ended(process)

    def _born(self, *argv: str, **env: str | None) -> Child:
        self.number += 1
        (self.home / "work").mkdir(exist_ok=True)
        return self.nursery.start(
            *argv,
            env=self.environment(**env),
            cwd=self.home / "work",
            out=self.home / f"{self.number:03}-{argv[1] if len(argv) > 1 else argv[0]}.txt",
        )

    def _reaped(self, child: Child) -> bool:
        """Whether it has ended; its status is known then. Waits only for what has ended."""
        if child.status is None and Process("planner", child).has_ended:
            self.nursery.wait(child)
        return child.status is not None


def _partitions_in(assignment: bytes) -> list[int]:
    """The partitions of a member's assignment, of which each names one topic."""
    if len(assignment) < _HEAD.size:
        return []
    _, topics, letters = _HEAD.unpack_from(assignment)
    if not topics:
        return []
    count, *_ = struct.unpack_from(">i", assignment, _HEAD.size + letters)
    return list(struct.unpack_from(f">{count}i", assignment, _HEAD.size + letters + 4))


def marker_in(home: Path) -> Path:
    """The file of the lines that commands leave."""
    return home / "effects"


def note_in(home: Path) -> str:
    """A command that leaves one line, for each time that it starts, before all else."""
    return f'echo "$THREADLOG_CALL_ID $THREADLOG_ATTEMPT $$" >> {marker_in(home)}'


@contextlib.asynccontextmanager
async def cluster(
    nursery: Nursery,
    home: Path,
    servers: tuple[str, str],
    *,
    partitions: int = 4,
    model: str | None = None,
) -> AsyncIterator[Cluster]:
    """A cluster with topics and without services; `servers`: broker and Redis."""
    home.chmod(0o755)
    bootstrap, redis_url = servers
    made = Cluster(nursery, home, bootstrap, redis_url, partitions, model)
    await made.apply_topics()
    try:
        yield made
    except BaseException as error:
        error.add_note(made.story())
        raise
    finally:
        await made.stop()


async def until(
    is_so: Callable[[], object],
    what: str,
    processes: Iterable[Process] = (),
    deadline_s: float = READY_S,
) -> None:
    """`is_so` holds, within the deadline; else what the processes said is told."""

    async def ask() -> bool:
        return bool(is_so())

    await until_true(ask, what, processes, deadline_s)


async def until_true(
    ask: Callable[[], Awaitable[bool]],
    what: str,
    processes: Iterable[Process] = (),
    deadline_s: float = READY_S,
) -> None:
    """As `until`, for a question that takes time to answer."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while not await ask():
        if loop.time() > deadline:
            said = "\n".join(f"{p}: {p.child.stderr[-SAID_MAX:]}" for p in processes)
            raise AssertionError(f"{what}: still not so after {deadline_s} s\n{said}")
        await asyncio.sleep(_LOOK_S)


def metric(page: str, name: str, labels: Mapping[str, str] | None = None) -> float:
    """The sum of a metric's samples that carry these labels."""
    total = 0.0
    for line in page.splitlines():
        if not line.startswith((f"{name}{{", f"{name} ")):
            continue
        if all(f'{key}="{value}"' in line for key, value in (labels or {}).items()):
            total += float(line.rpartition(" ")[2])
    return total
