"""The embedded file: read by plain `sqlite3`, opened only when ours, private, followed live."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.contract.views_suite import row
from tests.helpers.events import LOCAL, TRACE, created, event_id, make_event, message, thread_id
from tests.helpers.logs import DEADLINE_S, collect, events_of
from tests.helpers.processes import child, next_line
from threadlog import ids
from threadlog.adapters.sqlite import mounts
from threadlog.adapters.sqlite.file import open_read_only
from threadlog.adapters.sqlite.lock import FileLock, Holder
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.schema import APPLICATION_ID, COLUMNS, TRACE_COLUMNS, USER_VERSION
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.errors import (
    LockedError,
    LogFileError,
    NotFoundError,
    RefusedError,
    ThreadlogError,
)
from threadlog.events.thread import ThreadCreated
from threadlog.ids import NO_POSITION, Position, Seq, WorkerId, WorkspaceId
from threadlog.ports.views import (
    Judged,
    ViewBatch,
)

NOBODY = 65_534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "threadlog.db"


@contextlib.contextmanager
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    """What a person with `sqlite3` has."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        yield connection


FULL = make_event(
    ThreadCreated(title="é and 'quotes'"),
    event_id=event_id("full"),
    thread=thread_id(7),
    turn_id=ids.turn_id(thread_id(7), 1),
    caused_by=event_id("cause"),
    actor="user:ann",
    source="gateway",
    worker=WorkerId("worker-1"),
    workspace_id=WorkspaceId("workspace-1"),
    idempotency_key="key-1",
    occurred_at="2026-12-01T00:00:00.000Z",
).model_copy(update=TRACE)
EXPECTED: dict[str, object] = {
    "sequence": 2,
    "payload_json": FULL.data.decode(),
    "critical": 1,
    **{
        name: getattr(FULL, name)
        for name in COLUMNS
        if name not in ("sequence", "payload_json", "critical")
    },
}


@pytest.fixture
async def filled(path: Path) -> Path:
    """A file with three events, of which the second has a value in every column."""
    async with opened(path) as file:
        log = SqliteLog(file)
        for event in (created(), FULL, message("later")):
            await log.append([event])
    return path


@pytest.mark.parametrize("column", COLUMNS)
async def test_F02_each_column_filters(filled: Path, column: str) -> None:
    with plain(filled) as connection:
        found = connection.execute(
            f"SELECT sequence, {column} FROM events WHERE {column} = ?", [EXPECTED[column]]
        ).fetchall()
    shared = {"type": [1, 2], "version": [1, 2, 3], "tenant_id": [1, 2, 3], "source": [1, 2, 3]}
    shared["critical"] = [1, 2, 3]
    assert sorted(sequence for sequence, _ in found) == shared.get(column, [2])
    assert (2, EXPECTED[column]) in found


async def test_F02_the_table_has_these_columns_and_readable_payloads(filled: Path) -> None:
    with plain(filled) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(events)")]
        [(kind, title)] = connection.execute(
            "SELECT typeof(payload_json), payload_json ->> 'title' FROM events WHERE sequence = 2"
        ).fetchall()
    assert columns == list(COLUMNS)
    assert (kind, title) == ("text", "é and 'quotes'")


async def test_F02_the_view_of_accepted_events_adds_seq(path: Path) -> None:
    async with opened(path) as file:
        events = [created(), message("void"), message("kept")]
        receipts = await SqliteLog(file).append(events)
        judged = [
            Judged(receipts[0].position, events[0], Seq(0)),
            Judged(receipts[1].position, events[1], None, "stale"),
            Judged(receipts[2].position, events[2], Seq(1)),
        ]
        await SqliteViews(file).apply(
            ViewBatch(Position(0), receipts[2].position, judged=judged), urgent=True
        )
        with plain(path) as connection:
            accepted = connection.execute("SELECT seq, sequence, event_id FROM accepted").fetchall()
            voids = connection.execute("SELECT position, void FROM judgements WHERE seq IS NULL")
            assert voids.fetchall() == [(2, "stale")]
    assert accepted == [(0, 1, events[0].event_id), (1, 3, events[2].event_id)]


@pytest.mark.parametrize("statement", ["DELETE FROM events", "UPDATE events SET actor = 'me'"])
async def test_an_event_is_never_changed_not_even_by_hand(filled: Path, statement: str) -> None:
    with plain(filled) as connection, pytest.raises(sqlite3.IntegrityError, match="a fact"):
        connection.execute(statement)


async def test_everything_made_is_private(path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(path) as file:
            await SqliteLog(file).append([created()])
            modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {f"threadlog.db{end}": 0o600 for end in ("", "-wal", "-shm")}
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=rw#%41 é" / "log;'.db"
    async with opened(path) as file:
        await SqliteLog(file).append([created()])
    assert path.exists()
    assert [p.name for p in tmp_path.iterdir()] == [path.parent.name]


# -- what is not opened


async def opening(path: Path, *, writes: bool) -> ThreadlogError:
    """The error that opening the file raises."""
    with pytest.raises(ThreadlogError) as raised:
        await (opened(path).__aenter__() if writes else open_read_only(path))
    assert str(path) in str(raised.value)
    return raised.value


def make_old(path: Path) -> None:
    """The file is as version 1 wrote it."""
    with plain(path) as connection:
        connection.execute("DROP VIEW accepted")
        for name in TRACE_COLUMNS:
            connection.execute(f"ALTER TABLE events DROP COLUMN {name}")
        connection.execute("ALTER TABLE usage_facts DROP COLUMN tool_ms")
        connection.execute(
            "CREATE VIEW accepted AS SELECT j.seq, e.* FROM events e "
            "JOIN judgements j ON j.position = e.sequence WHERE j.seq IS NOT NULL"
        )
        connection.execute("PRAGMA user_version = 1")


async def test_F103_a_file_of_before_traces_is_read_as_it_is(filled: Path) -> None:
    make_old(filled)
    before = filled.read_bytes()
    file = await open_read_only(filled)
    records = await collect(SqliteLog(file), NO_POSITION, 3)
    assert await SqliteViews(file).usage(LOCAL, ()) == []
    await file.close()
    untraced = FULL.model_copy(update=dict.fromkeys(TRACE))
    assert [r.event for r in records] == [created(), untraced, message("later")]
    assert filled.read_bytes() == before


async def test_F103_a_file_of_before_traces_becomes_one_that_keeps_them(filled: Path) -> None:
    make_old(filled)
    again = FULL.model_copy(update={"event_id": event_id("again")})
    async with opened(filled) as file:
        await SqliteLog(file).append([again])
    file = await open_read_only(filled)
    records = await collect(SqliteLog(file), NO_POSITION, 4)
    assert await SqliteViews(file).usage(LOCAL, ()) == []
    await file.close()
    assert [r.event and r.event.tracestate for r in records] == [None, None, None, "vendor=1"]
    assert records[-1].event == again
    with plain(filled) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (USER_VERSION,)
        assert "traceparent" in [
            row[1] for row in connection.execute("PRAGMA table_info(accepted)")
        ]


@pytest.mark.parametrize("writes", [True, False])
async def test_a_newer_file_is_refused_by_name(filled: Path, writes: bool) -> None:
    with plain(filled) as connection:
        connection.execute(f"PRAGMA user_version = {USER_VERSION + 1}")
    error = await opening(filled, writes=writes)
    assert isinstance(error, LogFileError)
    assert "upgrade threadlog" in str(error)


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("kind", ["text", "database", "short", "folder"])
async def test_a_foreign_file_is_refused_and_left_alone(
    tmp_path: Path, kind: str, writes: bool
) -> None:
    path = tmp_path / "foreign.db"
    if kind == "folder":
        path.mkdir()
    elif kind == "database":
        with plain(path) as connection:
            connection.execute("CREATE TABLE theirs (x)")
    else:
        path.write_bytes(b"SQLite form" if kind == "short" else b"some notes\n" * 1_000)
    before = None if kind == "folder" else path.read_bytes()
    error = await opening(path, writes=writes)
    assert isinstance(error, RefusedError if kind == "folder" else LogFileError)
    assert before is None or path.read_bytes() == before


async def test_a_missing_or_empty_file_is_no_log_to_a_reader(tmp_path: Path) -> None:
    assert isinstance(await opening(tmp_path / "none.db", writes=False), NotFoundError)
    (tmp_path / "empty.db").touch()
    assert isinstance(await opening(tmp_path / "empty.db", writes=False), LogFileError)
    async with opened(tmp_path / "empty.db") as file:
        await SqliteLog(file).append([created()])


async def test_the_file_says_what_it_is(filled: Path) -> None:
    assert filled.read_bytes()[68:72] == APPLICATION_ID.to_bytes(4) == b"TLOG"


TABLE = """\
1 1 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:5 / /proc rw shared:1 - proc proc rw
3 1 0:6 / /mnt/a\\040b rw shared:2 master:1 - nfs4 server:/x rw
4 3 8:2 / /mnt/a\\040b/local rw - xfs /dev/sdb rw
5 1 0:7 / /home rw - fuse.sshfs me@there: rw
6 1 8:3 / /home rw - ext4 /dev/sdc rw
broken line
"""


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/mnt/a b", "nfs4"),
        ("/mnt/a b/deep/log.db", "nfs4"),
        ("/mnt/a b/local/log.db", "xfs"),
        ("/mnt/a", "ext4"),
        ("/home/me", "ext4"),
    ],
)
def test_the_innermost_and_latest_mount_counts(where: str, kind: str) -> None:
    assert mounts.mounted_type(Path(where), TABLE) == kind


@pytest.mark.parametrize(
    ("kind", "is_network"),
    [(kind, True) for kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs")]
    + [(kind, False) for kind in ("ext4", "overlay", "tmpfs", "nfsd")],
)
async def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_network: bool
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"1 1 8:1 / / rw - {kind} source rw\n")
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    path = tmp_path / "threadlog.db"
    if is_network:
        error = await opening(path, writes=True)
        assert isinstance(error, RefusedError)
        assert kind in str(error)
        assert not path.exists()
    else:
        async with opened(path):
            pass


# -- reading beside a writer


@pytest.fixture
async def beside(
    path: Path,
) -> AsyncIterator[tuple[SqliteLog, SqliteViews, SqliteLog, SqliteViews]]:
    """A writer's log and views, and a reader's of the same file."""
    async with opened(path) as file:
        reading = await open_read_only(path)
        yield SqliteLog(file), SqliteViews(file), SqliteLog(reading), SqliteViews(reading)
        await reading.close()


async def test_a_reader_follows_the_writer(
    beside: tuple[SqliteLog, SqliteViews, SqliteLog, SqliteViews],
) -> None:
    log, views, reading, reading_views = beside
    following = asyncio.create_task(collect(reading, Position(0), 20))
    waiting = asyncio.create_task(reading_views.wait(Position(20)))
    events = [created(), *(message(f"m{n}") for n in range(19))]
    for event in events:
        await log.append([event])
    assert events_of(await following) == events
    assert not waiting.done()
    stored = row(thread_id(), 20)
    await views.apply(ViewBatch(Position(0), Position(20), threads=[stored]), urgent=False)
    async with asyncio.timeout(DEADLINE_S):
        await waiting
    assert await reading_views.thread(LOCAL, thread_id()) == stored
    assert await reading.end() == 20


async def test_nothing_here_drops_the_locks_that_keep_others_off_the_wal(path: Path) -> None:
    """POSIX drops all locks of a process on a file when it closes any descriptor of that file."""
    async with opened(path) as file:
        log = SqliteLog(file)
        await log.append([created()])
        # Whatever this process does with the file besides, it must not open and close it itself.
        reading = await open_read_only(path)
        await reading.close()
        with pytest.raises(LockedError):
            await second_runtime(path)
        with child("plain", str(path)) as process:
            assert next_line(process) == "rows 1"
            process.wait()
        assert path.with_name("threadlog.db-wal").exists(), "another process took the WAL away"
        await log.append([message("still in the same WAL")])
        with child("plain", str(path)) as process:
            assert next_line(process) == "rows 2"


async def second_runtime(path: Path) -> None:
    """What a second runtime in this process would do: ask for the lock, and be refused."""
    first, second = FileLock(path), FileLock(path)
    first.acquire(Holder(1, "one", "now"))
    try:
        second.acquire(Holder(2, "two", "now"))
    finally:
        first.release()


async def test_a_reader_cannot_append(
    beside: tuple[SqliteLog, SqliteViews, SqliteLog, SqliteViews],
) -> None:
    _, _, reading, reading_views = beside
    with pytest.raises(RefusedError, match="read-only"):
        await reading.append([created()])
    with pytest.raises(RefusedError, match="read-only"):
        await reading_views.apply(ViewBatch(Position(0), Position(1)), urgent=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(path: Path) -> str:
    with child("read", str(path), str(NOBODY)) as process:
        return next_line(process)


@needs_root
async def test_a_file_of_another_user_is_refused(short_dir: Path) -> None:
    path = short_dir / "threadlog.db"
    async with opened(path) as file:
        await SqliteLog(file).append([created()])
    for mode in (0o600, 0o644):
        path.chmod(mode)
        answer = as_nobody(path)
        assert answer.startswith("RefusedError:")
        assert "belongs to another user (uid 0)" in answer


@needs_root
async def test_a_folder_in_which_the_tail_cannot_be_read_is_refused(short_dir: Path) -> None:
    """Without `-shm` the newest events could only be left out; they are not left out in silence."""
    path = short_dir / "threadlog.db"
    async with opened(path) as file:
        await SqliteLog(file).append([created()])
    os.chown(path, NOBODY, NOBODY)
    answer = as_nobody(path)
    assert answer.startswith("RefusedError:")
    assert "folder" in answer
    os.chown(short_dir, NOBODY, NOBODY)
    assert as_nobody(path) == "rows 1"
