"""RELIABILITY Q1, Q2, Q4: kills inside commits, full disks, damaged files; real processes."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.events import LOCAL, created, message, thread_id
from tests.helpers.logs import collect, events_of
from tests.helpers.processes import child, next_line, tell
from threadlog import ids
from threadlog.adapters.sqlite.file import SqliteFile, open_file, open_read_only
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.clock import SystemClock
from threadlog.errors import (
    CorruptError,
    LogFileError,
    LogUnavailableError,
    ThreadlogError,
    TransientError,
)
from threadlog.events.envelope import Event
from threadlog.ids import Position, Seq
from threadlog.ports.views import (
    Judged,
    ViewBatch,
)

KILLS = 60
PAGE = 4_096
NAMED = r"threadlog\.db"
TABLE_LEAF, INDEX_LEAF = 0x0D, 0x0A


def plain(path: Path) -> contextlib.closing[sqlite3.Connection]:
    return contextlib.closing(sqlite3.connect(path))


async def writable(path: Path, fatal: list[ThreadlogError] | None = None) -> SqliteFile:
    found = fatal if fatal is not None else []
    return await open_file(path, clock=SystemClock(), on_fatal=found.append)


# -- Q1


def read_acks(process: subprocess.Popen[str], count: int) -> dict[int, str]:
    """The next `count` acknowledgements: position to event id."""
    acks: dict[int, str] = {}
    while len(acks) < count:
        word, position, event_id = next_line(process).split()
        assert word == "ack"
        acks[int(position)] = event_id
    return acks


def kill(process: subprocess.Popen[str], worker: int) -> dict[int, str]:
    """The worker is killed; what it had acknowledged and nobody had read yet."""
    os.kill(worker, signal.SIGKILL)
    acks: dict[int, str] = {}
    while not (line := next_line(process)).startswith("dead"):
        word, position, event_id = line.split()
        assert word == "ack"
        acks[int(position)] = event_id
    return acks


@pytest.mark.timeout(120)
def test_Q1_an_acknowledged_event_survives_kill_9_in_a_commit(tmp_path: Path) -> None:
    """Sixty lives of one file, each killed at another point; nothing acknowledged is ever lost."""
    path = tmp_path / "threadlog.db"
    acknowledged: dict[int, str] = {}
    with child("nursery") as nursery:
        for life in range(KILLS):
            tell(nursery, f"append {path} {life}")
            word, worker = next_line(nursery).split()
            assert word == "born"
            acknowledged |= read_acks(nursery, 1 + 7 * life % 40)
            acknowledged |= kill(nursery, int(worker))
            if life % 10 == 0:
                check_after_kill(path, acknowledged)
    check_after_kill(path, acknowledged)
    assert len(acknowledged) > KILLS


def check_after_kill(path: Path, acknowledged: dict[int, str]) -> None:
    """A reader that comes right after the kill sees a sound file and all that was acknowledged."""
    assert path.with_name("threadlog.db-wal").exists(), "the kill left the tail in the WAL"
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        stored = dict(connection.execute("SELECT sequence, event_id FROM events"))
        assert acknowledged.items() <= stored.items()
        assert sorted(stored) == list(range(1, len(stored) + 1)), "no hole, no position twice"


async def test_Q1_read_only_commands_work_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "threadlog.db"
    with child("nursery") as nursery:
        tell(nursery, f"append {path} 1")
        worker = int(next_line(nursery).split()[1])
        acknowledged = read_acks(nursery, 20)
        acknowledged |= kill(nursery, worker)
    file = await open_read_only(path)
    records = await collect(SqliteLog(file), Position(0), len(acknowledged))
    await file.close()
    stored = {r.position: r.event.event_id for r in records if r.event is not None}
    assert acknowledged.items() <= {int(k): str(v) for k, v in stored.items()}.items()


async def test_Q1_a_reader_works_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "threadlog.db"
    with child("nursery") as nursery:
        tell(nursery, f"append {path} 1")
        worker = int(next_line(nursery).split()[1])
        acknowledged = read_acks(nursery, 10)
        file = await open_read_only(path)
        records = await collect(SqliteLog(file), Position(0), 100)
        await file.close()
        acknowledged |= kill(nursery, worker)
    assert [record.position for record in records] == list(range(1, 101))


# -- Q2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("may not mount a small disk here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def fill(log: SqliteLog, kept: list[Event]) -> None:
    """Appends until that fails; `kept` grows by what was acknowledged."""
    for n in range(1_000):
        pair = [message(f"{n} first {'x' * 9_000}"), message(f"{n} second")]
        await log.append(pair)
        kept += pair


async def test_Q2_a_full_disk_loses_nothing_and_serves_again(small_disk: Path) -> None:
    fatal: list[ThreadlogError] = []
    file = await writable(small_disk / "threadlog.db", fatal)
    log = SqliteLog(file)
    following = asyncio.create_task(collect(log, Position(0), 1))
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * (2 * 2**20))
    kept = [created()]
    await log.append(kept)
    with pytest.raises(TransientError, match="no space"):
        await fill(log, kept)
    # Full stays full, and reads go on.
    with pytest.raises(TransientError):
        await log.append([message("y" * 60_000)])
    assert events_of(await following) == kept[:1]
    assert await log.end() == len(kept)
    ballast.unlink()
    again = [message("space is back " + "z" * 9_000)]
    [receipt] = await log.append(again)
    assert receipt.position == len(kept) + 1
    assert events_of(await collect(log, Position(0), receipt.position)) == [*kept, *again]
    assert not fatal
    await file.close()
    with plain(small_disk / "threadlog.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# -- Q4


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    """A closed file with 300 judged events over many pages."""
    path = tmp_path / "threadlog.db"
    file = await writable(path)
    log, views = SqliteLog(file), SqliteViews(file)
    for n in range(0, 300, 50):
        events = [message(f"{n + k} {'x' * 900}") for k in range(50)]
        receipts = await log.append(events)
        judged = [
            Judged(r.position, event, Seq(r.position - 1))
            for r, event in zip(receipts, events, strict=True)
        ]
        batch = ViewBatch(Position(n), receipts[-1].position, judged=judged)
        await views.apply(batch, urgent=True)
    await file.close()
    return path


def pages(path: Path, kind: int, holding: bytes) -> list[int]:
    """Numbers of the pages of this kind that hold these bytes."""
    data = path.read_bytes()
    found = range(1, len(data) // PAGE)
    return [n for n in found if data[n * PAGE] == kind and holding in data[n * PAGE :][:PAGE]]


def damage(path: Path, page: int) -> None:
    with path.open("r+b") as opened:
        opened.seek(page * PAGE)
        opened.write(b"\xde\xad\xbe\xef" * (PAGE // 4))


async def test_Q4_a_damaged_page_is_corrupt_and_names_the_file(filled: Path) -> None:
    damage(filled, pages(filled, TABLE_LEAF, b"x" * 800)[20])
    file = await open_read_only(filled)
    log, views = SqliteLog(file), SqliteViews(file)
    with pytest.raises(CorruptError, match=NAMED):
        await collect(log, Position(0), 300)
    with pytest.raises(CorruptError, match=NAMED):
        await views.events(LOCAL, thread_id(), first=Seq(0), last=Seq(299), limit=300)
    # What lies on sound pages is still served.
    assert await views.watermark() == 300
    [first] = await views.events(LOCAL, thread_id(), first=Seq(0), last=Seq(0), limit=1)
    assert first.position == 1
    await file.close()


async def test_Q4_a_writer_that_meets_damage_ends(filled: Path) -> None:
    """In the index of ids, where every event must be entered."""
    fatal: list[ThreadlogError] = []
    file = await writable(filled, fatal)
    for page in pages(filled, INDEX_LEAF, b"-"):
        damage(filled, page)
    with pytest.raises(LogUnavailableError):
        await SqliteLog(file).append([message("next")])
    assert [type(error) for error in fatal] == [LogFileError]
    assert "threadlog.db" in str(fatal[0])
    await file.close()


@pytest.mark.parametrize("keep", [7, 100, PAGE, 5 * PAGE + 17, -PAGE])
@pytest.mark.parametrize("writes", [True, False])
async def test_Q4_a_truncated_file_is_refused_at_the_start(
    filled: Path, keep: int, writes: bool
) -> None:
    size = filled.stat().st_size
    os.truncate(filled, keep if keep > 0 else size + keep)
    left = filled.read_bytes()
    with pytest.raises(LogFileError, match=NAMED):
        await (writable(filled) if writes else open_read_only(filled))
    assert filled.read_bytes() == left, "evidence is not touched"


@pytest.mark.parametrize("at", [0, 16, 18, 100])
async def test_Q4_a_damaged_header_is_refused_at_the_start(filled: Path, at: int) -> None:
    with filled.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"\xff\xee\xdd\xcc")
    for opening in (writable, open_read_only):
        with pytest.raises(LogFileError, match=NAMED):
            await opening(filled)


async def test_Q4_a_read_only_file_is_read_and_not_written(filled: Path) -> None:
    filled.chmod(0o400)
    file = await open_read_only(filled)
    assert len(await collect(SqliteLog(file), Position(0), 300)) == 300
    await file.close()


async def test_Q4_rows_written_by_hand_stop_nobody(filled: Path) -> None:
    """Values of every odd type, in a table that lost its constraints: each is one bad record."""
    odd: list[object] = [None, 1.5, b"\xff\xfe", "\ud7ff", "x" * 100_000, -1, 2**62]
    with plain(filled) as connection, connection:
        connection.execute("DROP TRIGGER events_never_change")
        connection.executescript(
            "PRAGMA writable_schema = ON;"
            "UPDATE sqlite_schema SET sql = replace(replace(sql, ' NOT NULL', ''), ') STRICT', ')')"
            " WHERE name = 'events'; PRAGMA writable_schema = RESET;"
        )
    columns = ["event_id", "type", "version", "payload_json", "caused_by", "turn_id", "thread_id"]
    columns += ["tenant_id", "workspace_id", "actor", "worker", "idempotency_key", "occurred_at"]
    columns += ["source", "critical"]
    with plain(filled) as connection, connection:
        at = 0
        for column in columns:
            for value in odd:
                at += 1
                connection.execute(
                    f"UPDATE events SET {column} = ? WHERE sequence = ?", (value, at)
                )
    file = await writable(filled)
    log = SqliteLog(file)
    records = await collect(log, Position(0), 300)
    assert [record.position for record in records] == list(range(1, 301))
    assert all((record.event is None) == (record.problem is not None) for record in records)
    assert all(record.event is not None for record in records[at:])
    assert sum(record.event is None for record in records) > at // 2
    views = SqliteViews(file)
    await views.voids(LOCAL, thread_id(), limit=1_000)
    await views.events(LOCAL, thread_id(), first=Seq(0), last=Seq(999), limit=1_000)
    await views.records(LOCAL, thread_id(), after=Position(0), before=Position(999))
    [receipt] = await log.append([message("and on it goes", ids.ThreadId(ids.draw()))])
    assert receipt.position == 301
    await file.close()
