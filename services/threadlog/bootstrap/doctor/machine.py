"""What the machine must give: space, and an embedded log that can be read and is whole."""

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from threadlog.adapters.sqlite.inspection import inspected
from threadlog.adapters.sqlite.lock import is_open_in, read_holder
from threadlog.bootstrap.doctor.report import off_loop
from threadlog.errors import LogFileError, NotFoundError
from threadlog.limits import (
    DOCTOR_DISK_LOW,
    DOCTOR_DISK_MIN,
    DOCTOR_INODES_LOW,
    DOCTOR_INODES_MIN,
    DOCTOR_INTEGRITY_BYTES_MAX,
    MIB,
)
from threadlog.ports.tools import Finding
from threadlog.settings import Settings

_ANSWER_S = 2.0


async def disk(name: str, folder: Path, variable: str) -> Sequence[Finding]:
    """Whether this folder, or the one in which it will be made, can be written and has space."""
    return [await off_loop(lambda: _disk(name, folder, variable))]


def _disk(name: str, folder: Path, variable: str) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        fix = f"move that file away, or set {variable} to a folder"
        return Finding("fail", name, f"{existing} is no folder", fix)
    if not os.access(existing, os.W_OK | os.X_OK):
        fix = f"set {variable} to a folder of this user, or chown it"
        return Finding("fail", name, f"{existing} cannot be written by this user", fix)
    found = os.statvfs(existing)
    free = found.f_bavail * found.f_frsize
    # Some file systems count no files, and say zero of zero.
    files = found.f_favail if found.f_files else None
    is_full = free < DOCTOR_DISK_MIN or (files is not None and files < DOCTOR_INODES_MIN)
    is_low = free < DOCTOR_DISK_LOW or (files is not None and files < DOCTOR_INODES_LOW)
    more = "" if files is None else f", {files} more files"
    evidence = f"{folder}: {free // MIB} MiB free{more}"
    if is_full or is_low:
        what = "files" if free >= DOCTOR_DISK_LOW else "space"
        fix = f"free some {what}, or set {variable} to another disk: a full one stops every append"
        return Finding("fail" if is_full else "warn", name, evidence, fix)
    return Finding("ok", name, evidence)


async def log_file(settings: Settings) -> Sequence[Finding]:
    """Whether the embedded log is ours, of a version that this program knows, and whole."""
    path = settings.log_file()
    try:
        seen = await off_loop(lambda: inspected(path, bytes_max=DOCTOR_INTEGRITY_BYTES_MAX))
    except NotFoundError:
        return [Finding("ok", "file", f"{path} does not exist yet: the first run makes it")]
    except LogFileError as error:
        fix = "upgrade threadlog, or set THREADLOG_LOG__FILE to the right file; keep this one"
        return [Finding("fail", "file", str(error), fix)]
    if seen.problem is not None:
        fix = "keep the file as it is, stop what runs on it, and restore it from a copy"
        return [Finding("fail", "file", f"{path} is damaged: {seen.problem}", fix)]
    whole = "whole" if seen.is_read else f"{seen.size_bytes // MIB} MiB, too large to be read"
    return [Finding("ok", "file", f"{path}: {whole}, views at record {seen.watermark}")]


async def runtime(settings: Settings) -> Sequence[Finding]:
    """Which process runs on the embedded log."""
    path = settings.log_file()
    holder = read_holder(path)
    if holder is None or not is_open_in(holder, path):
        return [Finding("ok", "runtime", "none runs on this file")]
    evidence = f"process {holder.pid} runs on this file"
    if holder.socket is not None and not await _answers(Path(holder.socket)):
        fix = f"stop it (kill {holder.pid}): another one then takes over from the log"
        return [Finding("fail", "runtime", f"{evidence}, but does not answer at its socket", fix)]
    return [Finding("ok", "runtime", evidence)]


async def _answers(socket: Path) -> bool:
    """Whether somebody who is awake listens there: a frozen process's queue takes anybody."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(socket)
            with contextlib.closing(writer):
                writer.write(
                    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                return bool(await reader.read(1))
    except (OSError, TimeoutError):
        return False
