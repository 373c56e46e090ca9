"""Which processes of ours may be alive: a file for each attempt, from before its command can start.

A later life of the runtime reads what an earlier one left, and ends it. A process is recorded with
its start time; what was not recorded in time, or left its group, is found by the call's id, which
every process of the call has in its environment and bubblewrap among its arguments.
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


def of_call(call_id: str) -> list[int]:
    """Descriptors of the processes of a call, found by its id; the caller closes them."""
    return [*processes.marked(b"THREADLOG_CALL_ID", call_id.encode())]


class RunRecords:
    """The files in one folder. Blocking, and small enough for the loop's thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self) -> None:
        """Make the folder; nobody else may write what this runtime will kill.

        Raises:  RefusedError: it cannot be made.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RefusedError(f"{self._folder} cannot be made: {error.strerror}") from error

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
            call_id, pids = self._read(path)
            await end_all(call_id, pids)
            path.unlink(missing_ok=True)
        for path in self._folder.glob("*.tmp"):  # cut short before it counted
            path.unlink(missing_ok=True)

    def _read(self, path: Path) -> tuple[str, list[tuple[int, int]]]:
        """The call, and (pid, start time) of its processes: none of another boot or if damaged."""
        call_id = path.name.partition(".")[0]
        try:
            body = json.loads(path.read_text())
            if body["boot"] != processes.boot_id():
                return call_id, []
            return call_id, [(int(pid), int(start)) for pid, start in body["processes"]]
        except (ValueError, KeyError, TypeError, OSError):
            return call_id, []


async def end_all(call_id: str, pids: Iterable[tuple[int, int]] = ()) -> None:
    """Kill these processes and all that are the call's, until there are none.

    Raises:  RefusedError: a process would not end in `limits.ORPHAN_WAIT_MS`.
    """
    try:
        async with asyncio.timeout(limits.ORPHAN_WAIT_MS / 1000):
            same = _same(pids)
            for pid in same:
                processes.kill_group(pid)
            await _end([*same.values()])
            while found := await asyncio.to_thread(of_call, call_id):
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
            processes.reap(descriptor)
