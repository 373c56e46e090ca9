"""One command from its first process to the death of its last.

1 record that there is such an attempt: a later life looks for what is left of it.
2 spawn, on the loop's thread: a sandbox dies with the *thread* that started it, and this one stays.
3 learn the sandbox's first process, number 1 of its pid namespace: what ends it ends all.
4 record both on disk.
5 ask whether the command may still start, then open the gate: only now can it start.
6 wait for its end, the deadline, the memory limit, or a cancel.
7 kill what is left and wait until it is gone, also while being cancelled again. 3 is awaited here
  too, for a moment: the end of a process that is not known cannot be waited for.
8 take the rest of the output, reap, forget the record.
A runner that dies before 5 never starts the command; one that dies later leaves a record, and the
sandbox dies with it.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from threadlog import limits
from threadlog.adapters.sandbox import processes
from threadlog.adapters.sandbox.pipes import Feed, Output, Status
from threadlog.adapters.sandbox.records import Record, RunRecords, end_all
from threadlog.errors import LateError, RefusedError

_MEMORY_TICK_S = 0.1
_SIGNAL_BASE = 128

Why = Literal["exit", "timeout", "memory"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `status`: the sandbox's own report, None without a sandbox.

    Shapes:  `descriptors` are open in the child under the same numbers and closed here afterwards.
             `request` is what opens the gate.
    """

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    descriptors: tuple[int, ...]
    request: bytes
    status: Status | None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Units: `timeout_ms` from the opening of the gate; `memory_bytes` of the whole tree."""

    timeout_ms: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Ending:
    """How it ended. `is_started` False: the gate was never passed, nothing of the command ran.

    Shapes:  `code` and `signal` None: the command's own end is not known. `is_gone` False: a
             process of it could not be ended.
    """

    is_started: bool
    is_gone: bool
    why: Why
    code: int | None
    signal: int | None
    output: bytes
    output_bytes: int


async def supervise(
    launch: Launch,
    call: tuple[str, int],
    records: RunRecords,
    bounds: Bounds,
    *,
    may_start: Callable[[], bool],
) -> Ending:
    """The command ran, or was refused a start, and nothing of it is alive.

    Effects: a CancelledError goes on only after the tree is dead and reaped.
    Raises:  RefusedError: the first process could not be made.
             LateError: `may_start` said no.
    """
    attempt = _Attempt(launch, call, records, bounds)
    try:
        why = await attempt.watch(may_start)
    finally:
        was_cancelled = await attempt.end()
    if was_cancelled:
        raise asyncio.CancelledError
    return attempt.ending(why)


class _Attempt:
    def __init__(
        self, launch: Launch, call: tuple[str, int], records: RunRecords, bounds: Bounds
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._launch, self._call, self._records, self._bounds = launch, call, records, bounds
        self._record: Path | None = None
        self._init: int | None = None
        self._is_started = self._is_gone = False
        self._was_cancelled = False
        with ExitStack() as given, ExitStack() as kept:
            for descriptor in launch.descriptors:
                given.callback(os.close, descriptor)
            if launch.status is not None:
                kept.callback(launch.status.close)
            try:
                self._put_on_record()  # 1
                self._feed = Feed()
                kept.callback(self._feed.close)
                self._output = Output(limits.OUTPUT_BYTES_MAX)
                kept.callback(self._output.close)
                given.callback(os.close, self._output.writer)
                self._child, self._main = self._spawn()
            except (OSError, ValueError) as error:
                self._forget()
                raise RefusedError(f"the command could not be started: {error}") from error
            self._pipes = kept.pop_all()
        self._deadline = self._loop.time() + limits.SANDBOX_START_MS / 1000
        self._exited = processes.ended(self._main)
        self._output.start()

    def _spawn(self) -> tuple[subprocess.Popen[bytes], int]:  # 2
        child = subprocess.Popen(
            self._launch.argv,
            stdin=self._feed.reader,
            stdout=self._output.writer,
            stderr=subprocess.STDOUT,
            cwd=self._launch.folder if self._launch.status is None else None,
            env=self._launch.environment,
            pass_fds=self._launch.descriptors,
            start_new_session=True,
        )
        try:
            return child, os.pidfd_open(child.pid)
        except OSError:  # no descriptor is left; it waits at its gate
            child.kill()
            child.wait()
            raise

    async def watch(self, may_start: Callable[[], bool]) -> Why:
        """Until the command is over, by itself or by a bound."""
        if self._launch.status is not None:  # 3
            self._launch.status.start()
            await self._first(self._launch.status.child)
            if not self._launch.status.child.done():
                return "exit" if self._exited.done() else "timeout"
        pids = [self._child.pid, *self._learnt()]
        try:
            self._put_on_record(*pids)  # 4
        except OSError as error:
            raise RefusedError(f"no run record can be written: {error}") from error
        if not may_start():  # 5; nothing may come between this and the gate
            raise LateError("the claim's time to start had passed: nothing was started")
        self._feed.open(self._launch.request)
        self._deadline = self._loop.time() + self._bounds.timeout_ms / 1000
        too_much = self._loop.create_task(self._memory_exceeded(pids[-1]))
        try:
            await self._first(too_much)  # 6
        finally:
            too_much.cancel()
        if self._exited.done():
            return "exit"
        if not too_much.done():
            return "timeout"
        too_much.result()
        return "memory"

    def _learnt(self) -> list[int]:
        """The pid of the sandbox's first process, once it was told; it is held by descriptor."""
        status = self._launch.status
        if status is None or not status.child.done():
            return []
        if self._init is None:
            self._init = processes.opened_init(status.child.result())
        return [status.child.result()]

    async def _first(self, other: "asyncio.Future[int] | asyncio.Task[None]") -> None:
        """Until the process ended, `other` is done, or the deadline has come."""
        left = max(self._deadline - self._loop.time(), 0)
        await asyncio.wait({self._exited, other}, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _memory_exceeded(self, root: int) -> None:
        """Returns when the tree is above its bound."""
        used = 0
        while used <= self._bounds.memory_bytes:
            await asyncio.sleep(_MEMORY_TICK_S)
            used = await asyncio.to_thread(processes.tree_bytes, root, self._bounds.memory_bytes)

    async def end(self) -> bool:
        """Nothing of it is alive; whether a cancel came meanwhile."""
        self._is_started = self._feed.is_taken()
        status = self._launch.status
        if status is not None:  # 7
            await self._until(limits.KILL_WAIT_MS, status.child, self._exited)
            self._learnt()
        if self._init is not None:
            processes.kill(self._init)
            await self._until(limits.KILL_WAIT_MS, self._exited)
        processes.kill_group(self._child.pid)
        self._is_gone = await self._until(limits.ORPHAN_WAIT_MS, self._exited)
        if self._init is not None:
            init_gone = processes.ended(self._init)
            self._is_gone &= await self._until(limits.ORPHAN_WAIT_MS, init_gone)
            init_gone.cancel()
            processes.reap(self._init)
        if status is None:
            sweep = self._loop.create_task(end_all(self._call[0]))
            is_swept = await self._until(2 * limits.ORPHAN_WAIT_MS, sweep)
            self._is_gone &= is_swept and sweep.exception() is None
            sweep.cancel()
        self._close()  # 8
        return self._was_cancelled

    async def _until(
        self, wait_ms: int, *futures: "asyncio.Future[int] | asyncio.Future[None]"
    ) -> bool:
        """Wait although cancelled; whether one of them is done."""
        deadline = self._loop.time() + wait_ms / 1000
        while not any(future.done() for future in futures):
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            try:
                await asyncio.wait(futures, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._was_cancelled = True
        return True

    def _close(self) -> None:
        self._exited.cancel()
        self._pipes.close()
        if self._child.poll() is not None:
            processes.reap_group(self._child.pid)
        os.close(self._main)
        if self._init is not None:
            os.close(self._init)
        if self._is_gone:
            self._forget()

    def _put_on_record(self, *pids: int) -> None:
        self._record = self._records.add(Record(*self._call, pids))

    def _forget(self) -> None:
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    def ending(self, why: Why) -> Ending:
        """The end as it was found."""
        code, killer = self._status()
        return Ending(
            is_started=self._is_started,
            is_gone=self._is_gone,
            why=why,
            code=code,
            signal=killer,
            output=bytes(self._output.data),
            output_bytes=self._output.total,
        )

    def _status(self) -> tuple[int | None, int | None]:
        """(exit code, signal). bubblewrap says 128 + n for a signal n, as a shell does."""
        if self._launch.status is None:
            code = self._child.returncode
            return (None, -code) if code is not None and code < 0 else (code, None)
        code = self._launch.status.value("exit-code")
        if code is not None and code - _SIGNAL_BASE in signal.valid_signals():
            return None, code - _SIGNAL_BASE
        return code, None
