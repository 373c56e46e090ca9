"""`make cluster` and `make cluster-down`: a broker and a Redis of this clone, under `.cluster/`.

Guarantees: `up` may be repeated; it starts what does not run, and never takes a port from anybody.
`down` ends only processes that `up` started, known by their pid and the folder that they work in.
Data stay. It is one broker with one copy of everything: a lost disk is a lost log.

    usage: python -m deploy.cluster up|down|jars     environment: KAFKA_PORT, REDIS_PORT
"""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.servers import (
    HOST,
    ROOT,
    STOP_S,
    Kafka,
    Redis,
    Server,
    ServerError,
    fetch_jars,
    kafka_is_missing,
    redis_is_missing,
)

CLUSTER = ROOT / ".cluster"
PARTITIONS = 4


def say(line: str) -> None:
    """A line for a person; standard output is for the exports."""
    print(f"cluster: {line}", file=sys.stderr)


def up() -> None:
    """Both servers accept connections, the topics exist, `.cluster/env` says how to use them."""
    for line in (kafka_is_missing(), redis_is_missing()):
        if line:
            raise ServerError(line)
    kafka_port, redis_port = _port("KAFKA_PORT", 9092), _port("REDIS_PORT", 6379)
    CLUSTER.mkdir(exist_ok=True)
    with _alone():
        servers = [
            Kafka(CLUSTER / "kafka", kafka_port, kafka_port + 1),
            Redis(CLUSTER / "redis", redis_port),
        ]
        absent = [server for server in servers if not _runs(server)]
        # Nothing is started when something cannot be.
        for server in absent:
            server.refuse_taken_ports()
        for server in absent:
            _start(server)
        settings = {
            "THREADLOG_KAFKA__BOOTSTRAP": f"{HOST}:{kafka_port}",
            "THREADLOG_KAFKA__REPLICATION": "1",
            "THREADLOG_KAFKA__PARTITIONS": str(PARTITIONS),
            "THREADLOG_REDIS__URL": f"redis://{HOST}:{redis_port}/0",
            "THREADLOG_BLOBS__URL": (CLUSTER / "blobs").as_uri(),
            "THREADLOG_GATEWAY__KEYS_FILE": str(CLUSTER / "keys.json"),
        }
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
        (CLUSTER / "env").write_text("".join(lines))
        say("one node, one copy: not durable, a lost disk is a lost log")
        _apply_topics(settings)
    print("".join(lines), end="")


def _port(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    # The broker's controller takes the port after its own.
    if not text.isdecimal() or int(text) not in range(1, 65535):
        raise ServerError(f"{name} is no port: {text}")
    return int(text)


def _runs(server: Server) -> bool:
    running = _running(CLUSTER / f"{server.name}.pid", server.folder)
    if not running:
        return False
    pid, port = running
    if port != server.port:
        raise ServerError(
            f"{server.name} runs already on port {port}, not {server.port}: "
            "`make cluster-down` first"
        )
    say(f"{server.name} runs already on {HOST}:{port} (pid {pid})")
    return True


def _start(server: Server) -> None:
    server.start()
    assert server.process is not None
    pid = server.process.pid
    (CLUSTER / f"{server.name}.pid").write_text(f"{pid} {server.port}\n")
    say(f"{server.name} listens on {HOST}:{server.port} (pid {pid})")


def _running(pid_file: Path, folder: Path) -> tuple[int, int] | None:
    """(pid, port) when the process of that file lives and is ours, not a later owner of its pid."""
    try:
        pid, port = map(int, pid_file.read_text().split())
        # A server never leaves the folder that it was started in.
        is_ours = Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder.resolve())
    except (OSError, ValueError):
        return None
    return (pid, port) if is_ours else None


def _apply_topics(settings: dict[str, str]) -> None:
    command = [sys.executable, "-m", "threadlog", "topics", "apply"]
    # Their own standard output would mix with the exports.
    env = {**os.environ, **settings}
    done = subprocess.run(command, check=False, env=env, stdout=sys.stderr)
    if done.returncode:
        raise ServerError(
            "both servers run, but `threadlog topics apply` failed; "
            "`source .cluster/env` has what it was told"
        )


def down() -> None:
    """Neither server runs. Data stay, under `.cluster/`."""
    if not CLUSTER.is_dir():
        say("nothing was started here")
        return
    with _alone():
        for name in ("kafka", "redis"):
            folder, pid_file = CLUSTER / name, CLUSTER / f"{name}.pid"
            if running := _running(pid_file, folder):
                _end(running[0], pid_file, folder)
                say(f"{name} stopped; its data stay in .cluster/{name}")
            else:
                say(f"{name} does not run")
            pid_file.unlink(missing_ok=True)


def _end(pid: int, pid_file: Path, folder: Path) -> None:
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while _running(pid_file, folder):
        if time.monotonic() > deadline:
            say(f"pid {pid} did not stop in {STOP_S:.0f} s and is killed")
            os.kill(pid, signal.SIGKILL)
            deadline += STOP_S
        time.sleep(0.05)


@contextmanager
def _alone() -> Iterator[None]:
    """Nobody else starts or stops servers of this clone."""
    with (CLUSTER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    """The exit code."""
    commands = {"up": up, "down": down, "jars": fetch_jars}
    if len(arguments) != 1 or arguments[0] not in commands:
        say("usage: python -m deploy.cluster up|down|jars")
        return 2
    try:
        commands[arguments[0]]()
    except ServerError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
