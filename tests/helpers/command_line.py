"""`threadlog` as a person types it: real processes on a home of their own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 25


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command printed and ended with."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        """The one document on stdout."""
        assert self.out.count("\n") == 1, self.out
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


class CommandLine:
    """Commands that share a log, workspaces and a folder, all below `home`."""

    def __init__(self, home: Path, source: Path = ROOT / "services") -> None:
        self.home = home
        self.folder = home / "project"
        self.folder.mkdir(exist_ok=True)
        self._environment = {
            # COV…: what a child must know so that its lines count as covered.
            **{n: v for n, v in os.environ.items() if n in ("PATH", "LANG") or n[:3] == "COV"},
            "HOME": str(home),
            "PYTHONPATH": str(source),
            "PYTHONWARNINGS": "error",
            "THREADLOG_DATA_DIR": str(home / "data"),
        }

    def script(self, name: str, *replies: Mapping[str, object]) -> Path:
        """A script of the scripted model, in a file outside the project."""
        path = self.home / f"{name}.json"
        path.write_text(json.dumps(replies))
        return path

    def run(self, *arguments: str | Path, stdin: str = "", **environment: str) -> Ended:
        """The command ran to its end, in the project's folder."""
        done = subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment | environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def started(
        self, *arguments: str | Path, **environment: str
    ) -> Iterator[subprocess.Popen[str]]:
        """The command runs; it is killed in the end if it still does."""
        process = subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def shell(self, line: str) -> Ended:
        """The line ran in bash, where `threadlog` is this program."""
        program = f'threadlog() {{ "{sys.executable}" -m threadlog "$@"; }}\n'
        done = subprocess.run(
            ["bash", "-c", program + line],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def _command(self, arguments: tuple[str | Path, ...]) -> list[str]:
        return [sys.executable, "-m", "threadlog", *map(str, arguments)]


def wait_for(stream: object, text: str) -> str:
    """The first line that holds `text`; the process's own deadline bounds the wait."""
    assert hasattr(stream, "readline")
    while line := str(stream.readline()):
        if text in line:
            return line
    raise AssertionError(f"it ended without saying {text!r}")


def end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGINT) -> Ended:
    """The process ended after this signal."""
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert "Traceback" not in err, err
    return Ended(process.returncode, out, err)
