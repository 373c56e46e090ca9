"""One look at an embedded file, for `doctor`; it leaves nothing that was not there."""

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from threadlog.adapters.sqlite.connect import open_reader
from threadlog.adapters.sqlite.failures import mapped
from threadlog.ids import Position


@dataclass(frozen=True, slots=True)
class FileSeen:
    """A log of ours. `problem`: what SQLite's own quick check finds, None: nothing.

    Shapes:  `is_read`: it was looked for; a large file is not read through.
    """

    watermark: Position
    size_bytes: int
    is_read: bool
    problem: str | None


def inspected(file: Path, *, bytes_max: int) -> FileSeen:
    """What the file is. Blocks while it is read, if it has at most `bytes_max`.

    Raises:  NotFoundError, RefusedError, LogFileError: as `connect.open_reader`.
    """
    seen = _inspected(file, bytes_max, is_still=not _has_tail(file))
    if seen.problem is not None and _has_tail(file):
        # A runtime has begun meanwhile: what was read may be of two moments.
        return _inspected(file, bytes_max, is_still=False)
    return seen


def _has_tail(file: Path) -> bool:
    real = file.resolve()
    return real.with_name(f"{real.name}-wal").exists()


def _inspected(file: Path, bytes_max: int, *, is_still: bool) -> FileSeen:
    with contextlib.closing(open_reader(file, is_still=is_still)) as connection:
        try:
            [watermark] = connection.execute("SELECT position FROM watermark").fetchone()
            size = file.stat().st_size
            found = "ok"
            if size <= bytes_max:
                found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.Error as error:
            raise mapped(error, file) from error
    return FileSeen(watermark, size, size <= bytes_max, None if found == "ok" else found)
