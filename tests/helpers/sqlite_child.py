"""Processes that use an embedded file and may be killed: `python -m tests.helpers.sqlite_child`.

`nursery`  reads `append PATH SEED` lines and forks a worker for each, which has everything
           imported already; prints `born PID`, and `dead PID` when it has ended.
`hold`     takes the lock of PATH, prints `held`, and stays until its stdin closes.
`orphan`   the same, but ends at once and leaves a child that inherits whatever can be.
`read`     reads PATH as any reader does, as user UID if one is given: prints `rows N`, or
           `ErrorClass: message`.
`plain`    reads PATH as a person with `sqlite3` does, with a connection that may write.
"""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.helpers.events import message, thread_id
from threadlog.adapters.sqlite.file import open_file, open_read_only
from threadlog.adapters.sqlite.lock import FileLock, Holder
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.clock import SystemClock
from threadlog.errors import ThreadlogError

APPENDERS = 8


def say(line: str) -> None:
    """One whole line, at once: nothing is lost in a buffer when the process is killed."""
    os.write(1, f"{line}\n".encode())


async def append_for_ever(path: Path, seed: int) -> None:
    """`ACK position event_id` for each event once it is durable, from several tasks."""
    lock = FileLock(path)
    lock.acquire(Holder(os.getpid(), f"seed-{seed}", "now"))
    file = await open_file(path, clock=SystemClock(), on_fatal=lambda _: os._exit(70))
    log = SqliteLog(file)

    async def one(appender: int) -> None:
        n = 0
        while True:
            text = "x" * (37 * n % 5_000)
            events = [
                message(f"{seed} {appender} {n} {k} {text}", thread_id(appender)) for k in range(2)
            ]
            for receipt in await log.append(events):
                say(f"ack {receipt.position} {receipt.event_id}")
            n += 1

    await asyncio.gather(*(one(appender) for appender in range(APPENDERS)))


def nursery() -> None:
    """One worker at a time, until stdin closes."""
    for line in sys.stdin:
        _, path, seed = line.split(" ", 2)
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(append_for_ever(Path(path), int(seed)))
            finally:
                os._exit(1)
        say(f"born {pid}")
        os.waitpid(pid, 0)
        say(f"dead {pid}")


def hold(path: Path) -> None:
    """The lock is held until stdin closes or the process is killed."""
    FileLock(path).acquire(Holder(os.getpid(), "holder-1", "2026-11-30T18:00:00Z", "/run/x.sock"))
    say("held")
    sys.stdin.read()


def orphan(path: Path) -> None:
    """A child outlives the holder; it was started as carelessly as a tool might be."""
    FileLock(path).acquire(Holder(os.getpid(), "holder-2", "2026-11-30T18:00:00Z"))
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    say(f"child {child.pid}")
    os._exit(0)


async def read(path: Path) -> None:
    """What a reader sees: the number of rows, or the error it is told."""
    try:
        file = await open_read_only(path)
        say(f"rows {await SqliteLog(file).end()}")
        await file.close()
    except ThreadlogError as error:
        say(f"{type(error).__name__}: {error}")


def plain(path: Path) -> None:
    """The last connection to close a file moves its WAL away: this one must see it is not alone."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [count] = connection.execute("SELECT count(*) FROM events").fetchone()
    say(f"rows {count}")


def become(user: int) -> None:
    """This process has the rights of `user` and no others; before, it could import everything."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main(verb: str, path: Path | None, user: int | None) -> None:
    """Runs `verb`."""
    if user is not None:
        become(user)
    if path is None:
        nursery()
    elif verb == "hold":
        hold(path)
    elif verb == "orphan":
        orphan(path)
    elif verb == "plain":
        plain(path)
    else:
        asyncio.run(read(path))


if __name__ == "__main__":
    _, verb, *rest = sys.argv
    main(verb, Path(rest[0]) if rest else None, int(rest[1]) if len(rest) > 1 else None)
