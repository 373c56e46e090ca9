"""Processes by number, without mistaking one for another that got the same number later.

A process is known by its pid and its start time; what is signalled or waited for is known by a
descriptor (pidfd), opened first and compared afterwards.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat behind the command's name, counted from 0.
_STATE, _START_TIME = 0, 19


def boot_id() -> str:
    """The id of this boot of the machine: pids of another boot mean nothing."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """When the process started, in ticks since boot; None when it is gone or only a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] in "ZX" else int(fields[_START_TIME])


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def opened(pid: int) -> int | None:
    """A descriptor of a process, or None when there is none of that number."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def opened_init(pid: int) -> int | None:
    """A descriptor of number 1 of a pid namespace, which takes all in it along; None for others."""
    descriptor = opened(pid)
    if descriptor is None:
        return None
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        status = ""
    numbers = next((line.split()[1:] for line in status.splitlines() if line[:6] == "NSpid:"), [])
    if len(numbers) > 1 and numbers[-1] == "1":
        return descriptor
    os.close(descriptor)
    return None


def kill(descriptor: int) -> None:
    """SIGKILL by descriptor; nothing happens when it is gone already."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)


def reap(descriptor: int) -> None:
    """Take the end of a process that became ours because its parent died: we may be number 1."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)


def reap_group(group: int) -> None:
    """The same for all of a process group; its own parent has reaped the leader already."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass


def kill_group(group: int) -> None:
    """SIGKILL to a process group that this process leads or whose leader it has not reaped yet."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def ended(descriptor: int) -> "asyncio.Future[None]":
    """Done when the process has ended. Cancelling it gives the wait up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        loop.remove_reader(descriptor)
        if not future.done():
            future.set_result(None)

    loop.add_reader(descriptor, tell)
    future.add_done_callback(lambda _: loop.remove_reader(descriptor))
    return future


def marked(name: bytes, value: bytes) -> Iterator[int]:
    """Descriptors of the processes with this variable; the caller closes them.

    Shapes:  it stands in the environment, or as `--setenv NAME VALUE` among bubblewrap's arguments.
    """
    for entry in _PROC.iterdir():
        descriptor = opened(int(entry.name)) if entry.name.isdigit() else None
        if descriptor is None:
            continue
        is_told = b"\0--setenv\0%s\0%s\0" % (name, value) in _bytes(entry / "cmdline")
        is_set = b"\0%s=%s\0" % (name, value) in b"\0" + _bytes(entry / "environ")
        if (is_told or is_set) and start_time(int(entry.name)) is not None:
            yield descriptor
        else:
            os.close(descriptor)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def tree_bytes(root: int, bytes_max: int) -> int:
    """Memory of a process and all below it; exact only when it may be above `bytes_max`.

    Units:  bytes. Resident pages are summed first, which is cheap and counts shared ones for every
            process; only a sum above `bytes_max` is counted again with shares (PSS).
    """
    pids = list(_tree(root))
    resident = sum(_resident(pid) for pid in pids)
    return resident if resident <= bytes_max else sum(_proportional(pid) for pid in pids)


def _tree(root: int) -> Iterator[int]:
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        with contextlib.suppress(OSError):
            for task in (_PROC / str(pid) / "task").iterdir():
                waiting.extend(int(child) for child in (task / "children").read_text().split())


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        text = (_PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return _resident(pid)
    found = next((line for line in text.splitlines() if line.startswith("Pss:")), None)
    return int(found.split()[1]) * 1024 if found else 0
