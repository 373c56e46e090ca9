"""A Kafka broker and a Redis server as plain processes of this machine, for tests and for a laptop.

Guarantees: a server that `start` returned from accepts connections on 127.0.0.1 and on no other
address; its data lie in its own folder and survive `stop`, `kill` and another `start`; the broker's
jars are those of `kafka/jars.sha256`, fetched once for a clone, whoever asks at the same time.
It does not choose ports and remembers nothing between two runs: see `cluster.py` for that.
"""

import fcntl
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "deploy" / "kafka"
CACHE = ROOT / ".kafka"
HOST = "127.0.0.1"
# The broker has a core of its own for 2 s until it listens; the rest is for a crowded machine, and
# for the 9 s after a kill in which it waits for its old registration to expire.
START_S = 90.0
STOP_S = 30.0
JAVA_MIN = 17
INSTALL = "`make setup-dev` as root installs it"


class ServerError(Exception):
    """A server is missing, or did not come up; the text is one line for a person."""


# -- what is on this machine


def kafka_is_missing() -> str | None:
    """One line that says what a broker needs here, None when nothing is missing."""
    java = shutil.which("java")
    said = _run([java, "-version"]).stderr if java else ""
    found = re.search(r'version "(\d+)', said)
    if not found or int(found[1]) < JAVA_MIN:
        return f"no java of version {JAVA_MIN} or newer: {INSTALL} (openjdk-17-jre-headless)"
    if not _jars_folder().is_dir() and not shutil.which("mvn"):
        return f"no mvn to fetch the broker with: {INSTALL} (maven)"
    return None


def redis_is_missing() -> str | None:
    """One line that says what a Redis server needs here, None when nothing is missing."""
    return None if _redis_program() else f"no redis-server: {INSTALL} (redis-tools)"


def _redis_program() -> str | None:
    # Debian's redis-tools has the server, under the name of a checker that looks at its first
    # argument. Unlike the package redis-server it starts nothing on this machine.
    return shutil.which("redis-server") or shutil.which("redis-check-rdb")


def _run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def _environment() -> dict[str, str]:
    # Names of files that are not ASCII break Java in the plain C locale.
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def accepts(port: int) -> bool:
    """Whether someone listens on that port of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


# -- the broker's jars


def fetch_jars() -> Path:
    """The folder with every jar of `jars.sha256`, and no other, is there."""
    folder = _jars_folder()
    if folder.is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "fetching").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Someone else may have fetched them while this process waited.
        if folder.is_dir():
            return folder
        print(
            f"kafka: fetching the broker's jars into {CACHE.name}/ (43 MB, once)", file=sys.stderr
        )
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            fresh = Path(scratch) / "jars"
            _copy_dependencies(fresh)
            _verify(fresh)
            # The name appears with everything in it; no reader sees a half.
            fresh.rename(folder)
    return folder


def _jars_folder() -> Path:
    # Another set of jars gets another folder, so a broker that runs keeps its own.
    wanted = (RECIPE / "pom.xml").read_bytes() + (RECIPE / "jars.sha256").read_bytes()
    return CACHE / f"jars-{hashlib.sha256(wanted).hexdigest()[:12]}"


def _copy_dependencies(into: Path) -> None:
    goal = "dependency:copy-dependencies"
    command = ["mvn", "-q", "-B", "-C", "-f", str(RECIPE / "pom.xml"), goal]
    command += [f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
    try:
        done = _run(command)
    except FileNotFoundError:
        raise ServerError(f"no mvn to fetch the broker with: {INSTALL} (maven)") from None
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise ServerError(f"mvn could not fetch the broker: {''.join(errors[:1])[:400]}")


def _verify(folder: Path) -> None:
    lines = (RECIPE / "jars.sha256").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines)}
    found = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
    if found != expected:
        wrong = sorted(dict(found.items() ^ expected.items()))
        raise ServerError(f"jars are not those of deploy/kafka/jars.sha256: {', '.join(wrong)}")


# -- one process


class Server:
    """One server process that works in `folder`; a subclass says how to start it."""

    name = "server"

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None

    def ports(self) -> list[int]:
        """Every port that it listens on."""
        return [self.port]

    def refuse_taken_ports(self) -> None:
        """Raises ServerError when somebody listens on a port of this server."""
        for port in self.ports():
            if accepts(port):
                raise ServerError(f"{self.name}: port {port} is taken by something else")

    def prepare(self) -> None:
        """The folder is ready for a start."""

    def command(self) -> list[str]:
        """What to run in the folder."""
        raise NotImplementedError

    def program(self) -> str | None:
        """The file to run, None for the first word of the command."""
        return None

    @property
    def log(self) -> Path:
        """What the server said, over all of its starts."""
        return self.folder / "log"

    def start(self) -> None:
        """The server accepts connections. Raises ServerError, with nothing left running."""
        assert self.process is None, f"{self.name} runs already"
        self.refuse_taken_ports()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                executable=self.program(),
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for whoever started it, who then stops it in order.
                start_new_session=True,
            )
        try:
            self._wait_until_it_accepts(self.process)
        except BaseException:
            self.kill()
            raise

    def _wait_until_it_accepts(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_S
        while not accepts(self.port):
            if process.poll() is not None:
                raise ServerError(f"{self.name} ended with {process.returncode}: {self._last()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} not up after {START_S:.0f} s: {self._last()}")
            time.sleep(0.02)

    def _last(self) -> str:
        lines = self.log.read_text(errors="replace").split("\n")
        return " | ".join([line for line in lines if line.strip()][-3:])[-600:]

    def kill(self) -> None:
        """The process has gone without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """The process has gone, in order if it manages that in `STOP_S`."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(number)
        # A stopped process hears nothing but a kill.
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Kafka(Server):
    """One broker that is its own controller, on `port` and `controller_port`."""

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        port: int,
        controller_port: int,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.controller_port = controller_port
        self._settings = dict(settings or {})

    def ports(self) -> list[int]:
        """The clients' and the controller's."""
        return [self.port, self.controller_port]

    def prepare(self) -> None:
        """The jars are there, the settings are written, the data folder is formatted."""
        self._jars = fetch_jars()
        mine = {
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            **self._settings,
        }
        base = (RECIPE / "server.properties").read_text()
        lines = [f"{name}={value}\n" for name, value in mine.items()]
        (self.folder / "server.properties").write_text(f"{base}\n{''.join(lines)}")
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        # Any 16 bytes in the shape that the broker wants.
        cluster_id = hashlib.sha256(os.urandom(16)).hexdigest()[:22]
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c")
        done = _run([*command, "server.properties"], folder=self.folder)
        if done.returncode:
            raise ServerError(f"kafka: cannot format {self.folder}: {done.stderr.strip()[-400:]}")

    def command(self) -> list[str]:
        """Listens 2 s later; the second compiler would only slow the first minute down."""
        return self._java("kafka.Kafka", "server.properties")

    def _java(self, *arguments: str) -> list[str]:
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        # Native parts that a killed broker has unpacked go with its folder.
        flags.append(f"-Djava.io.tmpdir={self.folder}")
        log4j = (RECIPE / "log4j2.yaml").as_uri()
        classes = f"{self._jars}/*"
        return ["java", *flags, f"-Dlog4j2.configurationFile={log4j}", "-cp", classes, *arguments]


class Redis(Server):
    """One Redis server that forgets at most the last second, and evicts nothing."""

    name = "redis"

    def __init__(
        self, folder: Path, port: int, *, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(folder, port)
        self._settings = dict(settings or {})

    def program(self) -> str | None:
        """The server, whatever its file is called."""
        return _redis_program()

    def prepare(self) -> None:
        """The data folder is there."""
        if line := redis_is_missing():
            raise ServerError(f"redis: {line}")
        (self.folder / "data").mkdir(exist_ok=True)

    def command(self) -> list[str]:
        """The append-only file is the data; an evicted key would be a hole in a projection."""
        options = {
            "bind": HOST,
            "port": str(self.port),
            "dir": "data",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            **self._settings,
        }
        return ["redis-server", *(word for k, v in options.items() for word in (f"--{k}", v))]
