"""Starting and reading the processes of tests; whoever uses one ends it."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m tests.helpers.sqlite_child ARGUMENTS`, killed in the end if it still lives."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.sqlite_child", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints, empty when it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def tell(process: subprocess.Popen[str], line: str) -> None:
    """The process can read `line`."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
