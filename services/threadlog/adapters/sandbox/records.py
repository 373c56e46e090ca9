"""Which processes of ours may be alive: a file for each attempt, from before its command can start.

A later life of the runtime reads what an earlier one left, and ends it. A process is recorded with
its start time; without a sandbox the attempt's mark in the environment finds what left its group.
The folder belongs to one living runtime: settling ends all that is recorded in it.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from threadlog import limits
from threadlog.adapters.sandbox import processes
from threadlog.errors import RefusedError

_NAME = re.compile(r"[0-9A-Za-z_-]{1,80}")


@dataclass(frozen=True, slots=True)
class Record:
    """One attempt that is running. `pids` may be alive only as long as their start times agree."""

    call_id: str
    attempt: int
    pids: tuple[int, ...]


def mark_of(call_id: str) -> bytes:
    """What the environment of every process of a call holds."""
    return f"THREADLOG_CALL_ID={call_id}".encode()


class RunRecords:
    """The files in one folder. Blocking, and small enough for the loop's thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Make the folder; nobody else may write what this runtime will kill."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, call_id: str, attempt: int) -> Path:
        """Where the record lies. Raises RefusedError for an id that is no file name."""
        if not _NAME.fullmatch(call_id):
            raise RefusedError("the call's id cannot name a run record")
        return self._folder / f"{call_id}.{attempt}.json"

    def add(self, record: Record) -> Path:
        """The attempt's processes are on record when this returns."""
        path = self.path(record.call_id, record.attempt)
        started = {pid: processes.start_time(pid) for pid in record.pids}
        body = {
            "boot": processes.boot_id(),
            "call_id": record.call_id,
            "processes": [[pid, start] for pid, start in started.items() if start is not None],
        }
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(body))
        temporary.replace(path)
        return path

    async def settle(self) -> None:
        """End whatever is still alive of the recorded attempts, then forget them.

        Raises:  RefusedError: a process would not end in `limits.ORPHAN_WAIT_MS`.
        """
        for path in sorted(self._folder.glob("*.json")):
            pids, mark = self._read(path)
            await end_all(pids, mark)
            path.unlink(missing_ok=True)

    def _read(self, path: Path) -> tuple[list[tuple[int, int]], bytes | None]:
        """(pid, start time) of an attempt, and its mark; nothing of another boot or if damaged."""
        try:
            body = json.loads(path.read_text())
            if body["boot"] != processes.boot_id():
                return [], None
            return [(int(pid), int(start)) for pid, start in body["processes"]], mark_of(
                str(body["call_id"])
            )
        except (ValueError, KeyError, TypeError, OSError):
            return [], None


async def end_all(pids: Iterable[tuple[int, int]], mark: bytes | None) -> None:
    """Kill these processes and all that carry the mark, until there are none.

    Raises:  RefusedError: a process would not end in `limits.ORPHAN_WAIT_MS`.
    """
    try:
        async with asyncio.timeout(limits.ORPHAN_WAIT_MS / 1000):
            same = _same(pids)
            for pid in same:
                processes.kill_group(pid)
            await _end([*same.values()])
            while mark and (found := await asyncio.to_thread(lambda: [*processes.marked(mark)])):
                await _end(found)
    except TimeoutError:
        raise RefusedError(
            "a process of an earlier call does not end; restart the machine"
        ) from None


def _same(pids: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Pid and descriptor of those that are still the processes they were."""
    found = {}
    for pid, start in pids:
        descriptor = processes.opened(pid)
        if descriptor is not None and processes.start_time(pid) == start:
            found[pid] = descriptor
        elif descriptor is not None:
            os.close(descriptor)
    return found


async def _end(descriptors: list[int]) -> None:
    with ExitStack() as stack:
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
            processes.kill(descriptor)
        for descriptor in descriptors:
            await processes.ended(descriptor)
