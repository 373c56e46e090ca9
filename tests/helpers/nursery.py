"""Real processes of `threadlog` that start fast: forked by one that has imported everything.

`python -m tests.helpers.nursery` reads a line of JSON for each process, {argv, env, cwd, out}, and
prints `born PID`, later `dead PID STATUS`. A process can be killed, stopped and waited for like any
other one; only the second of imports is saved.
"""

import contextlib
import importlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 25.0
_IMPORTS = (
    "threadlog.__main__",
    "threadlog.adapters.model_api.openai_model",
    "threadlog.adapters.model_api.scripted_server",
    "threadlog.bootstrap.script_server",
    "threadlog.bootstrap.metering_service",
    "threadlog.bootstrap.serving",
    "threadlog.cli.main",
    "threadlog.cli.running",
    "threadlog.cli.serving",
    "threadlog.cli.topics",
    "threadlog.gateway.server",
)


# -- the test's side


@dataclass(slots=True)
class Child:
    """One process. `status`: 0 or more an exit code, less a signal, None while it runs."""

    pid: int
    out: Path
    status: int | None = None

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self.out.read_text()

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self.out.with_suffix(".err").read_text()

    def send(self, number: signal.Signals) -> None:
        """The signal is delivered, if the process still lives."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Nursery:
    """Starts processes and knows how they ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[list[str]] = queue.Queue()
        self._children: dict[int, Child] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, *argv: str | Path, env: Mapping[str, str], cwd: Path, out: Path) -> Child:
        """`threadlog ARGV` runs in `cwd`; it prints to `out`, and says to the `.err` beside it."""
        order = {
            "argv": [str(word) for word in argv],
            "env": dict(env),
            "cwd": str(cwd),
            "out": str(out),
        }
        assert self._process.stdin is not None
        out.touch()
        out.with_suffix(".err").touch()
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        before = set(self._children)
        while not (born := set(self._children) - before):
            self._hear()
        child = self._children[born.pop()]
        child.out = out
        return child

    def wait(self, child: Child) -> int:
        """How the process ended."""
        while child.status is None:
            self._hear()
        return child.status

    def kill(self, child: Child) -> None:
        """The process was killed as by `kill -9`."""
        child.send(signal.SIGKILL)
        self.wait(child)

    def _hear(self) -> None:
        try:
            word, pid, *rest = self._lines.get(timeout=DEADLINE_S)
        except queue.Empty:
            said = [f"{c.pid}: {c.stdout} {c.stderr}" for c in self._children.values()]
            raise AssertionError(f"nothing in {DEADLINE_S} s: {said[-2:]}") from None
        if word == "born":
            self._children[int(pid)] = Child(int(pid), Path())
        else:
            self._children[int(pid)].status = int(rest[0])

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.split())


@contextlib.contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery; all its processes are killed in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.nursery"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "services"), "PYTHONWARNINGS": "error"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Nursery(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# -- the nursery itself


def main() -> None:
    """One process for each line, until stdin closes."""
    for name in _IMPORTS:
        importlib.import_module(name)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    buffer = b""
    while True:
        ready, _, _ = select.select([0, reader], [], [])
        if reader in ready:
            os.read(reader, 4_096)
            reap()
        if 0 in ready:
            data = os.read(0, 65_536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                bear(json.loads(line), writer)


def say(*words: object) -> None:
    """One whole line, at once."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def reap() -> None:
    """Everyone who has ended is told of."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            say("dead", pid, os.waitstatus_to_exitcode(status))


def bear(order: dict[str, object], wakeup: int) -> None:
    """The process runs; in it, this does not return."""
    pid = os.fork()
    if pid:
        say("born", pid)
        return
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(wakeup)
        code = run(order)
    except BaseException:  # noqa: BLE001  # the edge of the process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(order: dict[str, object]) -> int:
    """The program ran with this environment, folder and output; its exit code."""
    program = importlib.import_module("threadlog.__main__").main
    out, argv, env = str(order["out"]), order["argv"], order["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    for descriptor, path in ((1, out), (2, str(Path(out).with_suffix(".err")))):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.chdir(str(order["cwd"]))
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["threadlog", *map(str, argv)]
    code: int = program()
    return code


if __name__ == "__main__":
    main()
