"""Every error of SQLite lands in one family of ours, by its result code and never by its text."""

import sqlite3
from pathlib import Path

from threadlog.errors import (
    LogFileError,
    LogUnavailableError,
    RefusedError,
    RejectedError,
    ThreadlogError,
)

_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another program holds the file",
    sqlite3.SQLITE_LOCKED: "a table is locked",
    sqlite3.SQLITE_FULL: "no space is left on the device",
    sqlite3.SQLITE_IOERR: "the device reported an error",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_INTERRUPT: "interrupted",
    sqlite3.SQLITE_ABORT: "aborted",
    sqlite3.SQLITE_PROTOCOL: "the file's locks do not work",
}
_REFUSED = {
    sqlite3.SQLITE_CANTOPEN: "cannot be opened here",
    sqlite3.SQLITE_READONLY: "is read-only here",
    sqlite3.SQLITE_PERM: "may not be opened",
    sqlite3.SQLITE_AUTH: "may not be read",
    sqlite3.SQLITE_NOLFS: "is too large for this file system",
}
_REJECTED = {
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_RANGE,
}
_SHORT_READ = sqlite3.SQLITE_IOERR_SHORT_READ


def result_code(error: BaseException) -> int:
    """The extended result code, 0 when the error did not come from SQLite itself."""
    return getattr(error, "sqlite_errorcode", None) or 0


def mapped(error: Exception, file: Path) -> ThreadlogError:
    """The error of ours that says the same; it names the file and what to do."""
    code = result_code(error)
    primary = code & 0xFF
    if code == _SHORT_READ:
        return LogFileError(f"{file} is damaged: it is shorter than it says; {_RESTORE}")
    if primary in _UNAVAILABLE:
        return LogUnavailableError(f"{file}: {_UNAVAILABLE[primary]} ({error})")
    if primary in _REFUSED:
        return RefusedError(f"{file} {_REFUSED[primary]} ({error}); check its owner and folder")
    if primary in _REJECTED or not primary:
        return RejectedError(f"{file} does not take this: {error}")
    if primary == sqlite3.SQLITE_NOTADB:
        return LogFileError(f"{file} is not a Threadlog log, or is damaged; choose another path")
    return LogFileError(f"{file} is damaged ({error}); {_RESTORE}")


_RESTORE = "keep a copy of it, then restore an export"
