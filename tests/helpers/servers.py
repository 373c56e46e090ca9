"""A real broker and a real Redis for tests: one of each for everybody, own ones to be killed.

Registered as a plugin by tests/conftest.py. Guarantees: a server starts when the first test asks
for it, on ports that no other run of the tests takes, and does not outlive this process, however
that ends. `TEST_KAFKA_BOOTSTRAP` and `TEST_REDIS_URL` name servers of this machine to use instead.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from deploy.servers import (
    HOST,
    Kafka,
    Redis,
    Server,
    ServerError,
    accepts,
    fetch_jars,
    kafka_is_missing,
    redis_is_missing,
)

# Below the ports that the system hands out by itself: a client that tries again and again to reach
# a killed server there could be given the server's own port, and meet itself.
PORTS = range(20_000, 30_000)
# Short groups, and a killed broker is back after 3 s and not after 13.
FAST_BROKER = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "group.min.session.timeout.ms": "1000",
}
KAFKA_FIXTURES = {"kafka_bootstrap", "own_broker"}
_not_run: dict[str, str] = {}


# -- servers of one test


class _Owned:
    """A server in a folder of its own, with ports that stay reserved while it is down."""

    server: Server

    def __init__(self) -> None:
        self._undo = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="threadlog-server-"))
        self._undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._undo.callback(self.kill)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _port(self) -> int:
        return self._undo.enter_context(reserved_port())

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self.server.process is not None, f"{self.server.name} does not run"
        return self.server.process.pid

    def start(self) -> None:
        """It accepts connections, on the same port and with the same data as before."""
        self.server.start()
        self._reaper = _reaper_of(self.pid, self.folder)

    def kill(self) -> None:
        """It has gone, without a chance to tidy up."""
        self._disarm()
        self.server.kill()

    def stop(self) -> None:
        """An orderly end."""
        self._disarm()
        self.server.stop()

    def restart(self) -> None:
        """An orderly end and a new start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """It stands still and keeps its connections, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def _disarm(self) -> None:
        # Before the server ends, or it might meet the next owner of the pid.
        if self.server.process is not None and self._reaper.poll() is None:
            self._reaper.kill()
            self._reaper.communicate()

    _reaper: subprocess.Popen[bytes]


def _reaper_of(pid: int, folder: Path) -> subprocess.Popen[bytes]:
    """A process that kills `pid` and removes `folder` once this one has gone, in whatever way."""
    script = 'read -r _; kill -9 "$1"; rm -rf "$2"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "reaper", str(pid), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Broker(_Owned):
    """`with Broker() as broker:` one Kafka broker, reached at `broker.bootstrap`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        port, controller_port = self._port(), self._port()
        self.bootstrap = f"{HOST}:{port}"
        self.server = Kafka(
            self.folder, port, controller_port, settings={**FAST_BROKER, **(settings or {})}
        )


class RedisServer(_Owned):
    """`with RedisServer() as server:` one Redis server, reached at `server.url`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        port = self._port()
        self.url = f"redis://{HOST}:{port}/0"
        # A rewrite would replace the files below a copy in progress.
        steady = {"auto-aof-rewrite-percentage": "0"}
        self.server = Redis(self.folder, port, settings={**steady, **(settings or {})})

    def copy_data(self) -> Path:
        """A copy of everything acknowledged so far, to `start_from` later."""
        if self.server.process is not None:
            with redis.Redis.from_url(self.url) as client:
                # Answered writes may still wait in memory while the disk is busy.
                while int(client.info("persistence")["aof_buffer_length"]):
                    pass
        copy = Path(tempfile.mkdtemp(prefix="copy-", dir=self.folder))
        shutil.copytree(self.folder / "data", copy, dirs_exist_ok=True)
        return copy

    def start_from(self, copy: Path) -> None:
        """It was killed, lost what came after that copy, and is up again."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        shutil.copytree(copy, self.folder / "data")
        self.start()


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port that nobody listens on, and that no other run of the tests is given meanwhile."""
    folder = Path(tempfile.gettempdir()) / f"threadlog-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Runs start at different places, so that they seldom meet.
    first = os.getpid() * 7 % len(PORTS)
    for step in range(len(PORTS)):
        port = PORTS[(first + step) % len(PORTS)]
        with (folder / str(port)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if accepts(port):
                continue
            yield port
            return
    raise AssertionError("no free port")


# -- fixtures


@pytest.fixture(scope="session")
def kafka_bootstrap() -> Iterator[str]:
    """The broker of this run, for tests that bring their own topics and groups."""
    if given := os.environ.get("TEST_KAFKA_BOOTSTRAP"):
        yield given
        return
    need("kafka", kafka_is_missing())
    with Broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The Redis server of this run, for tests that bring their own prefix of keys."""
    if given := os.environ.get("TEST_REDIS_URL"):
        yield given
        return
    need("redis", redis_is_missing())
    with RedisServer() as server:
        yield server.url


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """A running broker that only this test uses, and may kill."""
    need("kafka", kafka_is_missing())
    with Broker() as broker:
        yield broker


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A running Redis server that only this test uses, and may kill."""
    need("redis", redis_is_missing())
    with RedisServer() as server:
        yield server


def need(name: str, missing: str | None) -> None:
    """Skips the test on a laptop and fails it in CI, when something is missing."""
    missing = _not_run.get(name) or missing
    if missing is None:
        return
    _not_run[name] = missing
    if os.environ.get("CI"):
        pytest.fail(f"{name}: {missing}", pytrace=False)
    pytest.skip(f"{name}: {missing}")


# -- hooks


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The jars are there before the clock of the first test runs."""
    asked = {name for item in items for name in getattr(item, "fixturenames", ())}
    if asked & KAFKA_FIXTURES and not config.option.collectonly and kafka_is_missing() is None:
        try:
            fetch_jars()
        except ServerError as error:
            _not_run["kafka"] = str(error)


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each server that was missing, so that nobody takes a skip for a pass."""
    for name, missing in sorted(_not_run.items()):
        terminalreporter.write_line(f"lane not run: {name} ({missing})")
