"""Connections to the file, and the checks that must pass before one is used.

A reader opens with `mode=ro`: it never changes an event, a view or the file's own header. After a
kill -9 the log's tail lies in `-wal`; to read it SQLite writes `-shm`, an index of the tail that
holds no facts. So a reader needs a folder in which that index exists or may be made; where it may
not, the file is refused instead of being read without its tail.

Nothing but SQLite opens the file: closing any other descriptor of it would drop the POSIX locks of
this whole process, and another process could then take the WAL away from under its connections.
"""

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from threadlog.adapters.sqlite.failures import mapped
from threadlog.adapters.sqlite.mounts import network_file_system
from threadlog.adapters.sqlite.schema import (
    APPLICATION_ID,
    OLD_TABLES,
    SCHEMA,
    UPGRADE,
    USER_VERSION,
)
from threadlog.errors import LogFileError, NotFoundError, RefusedError

_BUSY_MS = 5_000
"""How long a statement waits for a person with `sqlite3`, or for another reader's recovery."""
_CACHE_KIB = 16_384
_WAL_PAGES = 4_000
"""Pages (4 KiB) in the WAL before its content moves to the file: bounds it at about 16 MiB."""
_STATEMENTS = 256


def open_reader(file: Path, *, is_still: bool = False) -> sqlite3.Connection:
    """A connection that can read a log of ours and nothing else.

    Shapes:  `is_still`: nobody writes meanwhile and there is no WAL; nothing is made beside it.
    Raises:  NotFoundError, RefusedError, LogFileError: as `_check_before` and `_check_header`.
    """
    _check_before(file)
    with _connected(file, "ro&immutable=1" if is_still else "ro") as connection:
        version = _check_header(connection, file)
        if version is None:
            raise LogFileError(f"{file} holds no log yet; start the runtime on it once")
        if version < USER_VERSION:
            connection.executescript(OLD_TABLES)
        connection.execute("PRAGMA query_only = ON")
    return connection


def open_writer(file: Path) -> sqlite3.Connection:
    """The one connection that writes: the file is there and ours, in WAL mode, synchronous FULL.

    Effects: creates file (0600) and folders (0700) that are missing; a file of an older version
             becomes one of this version.
    Raises:  RefusedError: network file system, foreign owner, or not writable.
             LogFileError: foreign, newer or damaged file.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"cannot make the folder {file.parent}: {error.strerror}") from error
    if kind := network_file_system(file.parent):
        raise RefusedError(
            f"{file} lies on a network file system ({kind}), which cannot keep a log safe; "
            "choose a path on a local disk"
        )
    try:
        # Made by us and not by SQLite, whose own would follow the umask.
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise RefusedError(f"cannot write {file}: {error.strerror}; check its owner") from error
    _check_before(file)
    with _connected(file, "rw") as connection:
        version = _check_header(connection, file)
        if version is None:
            _create(connection)
        _set_durable(connection)
        if version is not None and version < USER_VERSION:
            connection.executescript(
                f"BEGIN IMMEDIATE; {UPGRADE} PRAGMA user_version = {USER_VERSION}; COMMIT;"
            )
    return connection


@contextlib.contextmanager
def _connected(file: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A connection that stays open unless the block fails; SQLite's errors become ours."""
    with contextlib.ExitStack() as undo:
        try:
            connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=_STATEMENTS,
                timeout=_BUSY_MS / 1_000,
            )
            undo.callback(connection.close)
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            yield connection
        except sqlite3.Error as error:
            raise mapped(error, file) from error
        undo.pop_all()


def _check_before(file: Path) -> None:
    """What can be said without opening it: it exists, and is a file of ours."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(f"{file} is not a regular file")
        if os.geteuid() not in (0, status.st_uid):
            raise RefusedError(f"{file} belongs to another user (uid {status.st_uid})")
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no log at {file}") from error
    except OSError as error:
        raise RefusedError(f"cannot read {file}: {error.strerror}; check its owner") from error


def _check_header(connection: sqlite3.Connection, file: Path) -> int | None:
    """The file's version; None: it is empty. Asked of SQLite, for the header may be in the WAL."""
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not application and not version and not tables:
        return None
    if application != APPLICATION_ID:
        raise LogFileError(f"{file} is not a Threadlog log; choose another path")
    if version > USER_VERSION:
        raise LogFileError(
            f"{file} was written by a newer Threadlog (file version {version}, this one knows "
            f"{USER_VERSION}); upgrade threadlog to open it"
        )
    # A file cut short, or without its first pages, fails here and not in the middle of a turn.
    connection.execute("SELECT max(sequence) FROM events").fetchone()
    connection.execute("SELECT position FROM watermark").fetchone()
    return int(version)


def _create(connection: sqlite3.Connection) -> None:
    """The schema, in one step: a crash leaves an empty file, which the next start fills."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(
        f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID};"
        f"PRAGMA user_version = {USER_VERSION}; {SCHEMA} COMMIT;"
    )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _set_durable(connection: sqlite3.Connection) -> None:
    [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    assert mode == "wal"
    connection.execute("PRAGMA synchronous = FULL")
    # Where fsync alone does not reach the platter (macOS); elsewhere without effect.
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
