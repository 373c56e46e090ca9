"""The writer of the embedded file: who shares a commit, who hears of it when, and how it ends."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.contract.views_suite import row
from tests.helpers.events import LOCAL, created, message, thread_id
from tests.helpers.logs import DEADLINE_S, append_each, collect, events_of
from threadlog.adapters.sqlite import failures
from threadlog.adapters.sqlite.file import SqliteFile, open_file
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.adapters.sqlite.writer import Writer
from threadlog.clock import SystemClock
from threadlog.errors import (
    CorruptError,
    LogFileError,
    LogUnavailableError,
    RejectedError,
    ThreadlogError,
    TransientError,
)
from threadlog.ids import EventId, Position, Seq
from threadlog.ports.log import Record
from threadlog.ports.views import (
    Judged,
    ViewBatch,
)


class Tampered:
    """A writer's connection, watched. `before` is called on its thread with every statement."""

    def __init__(self, connection: sqlite3.Connection, before: Callable[[str], None]) -> None:
        self._connection = connection
        self._before = before

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._before(sql)
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@dataclass
class Opened:
    """An open file whose writer can be watched, held before its commit, and made to fail."""

    file: SqliteFile
    fatal: list[ThreadlogError] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)
    may_commit: threading.Event = field(default_factory=threading.Event)
    at_commit: threading.Event = field(default_factory=threading.Event)

    @property
    def writer(self) -> Writer:
        assert self.file._writer is not None
        return self.file._writer

    def tamper(self) -> None:
        watched = Tampered(self.writer._connection, self._before)
        self.writer._connection = cast(sqlite3.Connection, watched)
        self.may_commit.set()

    def _before(self, sql: str) -> None:
        self.statements.append(sql)
        if sql == "COMMIT":
            self.at_commit.set()
            assert self.may_commit.wait(DEADLINE_S)
        for start, error in self.failing.items():
            if sql.startswith(start):
                raise error

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Commits begin and wait until the block ends."""
        self.may_commit.clear()
        self.at_commit.clear()
        try:
            yield
        finally:
            self.may_commit.set()

    async def reached_commit(self) -> None:
        assert await asyncio.to_thread(self.at_commit.wait, DEADLINE_S)


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"made up, code {code}")
    error.sqlite_errorcode = code
    return error


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    found: list[ThreadlogError] = []
    file = await open_file(tmp_path / "log.db", clock=SystemClock(), on_fatal=found.append)
    opened = Opened(file, found)
    opened.tamper()
    yield opened
    opened.failing.clear()
    await file.close()


@pytest.fixture
def log(opened: Opened) -> SqliteLog:
    return SqliteLog(opened.file)


# -- sharing a commit


async def test_all_who_wait_share_one_commit(opened: Opened, log: SqliteLog) -> None:
    with opened.held():
        first = asyncio.create_task(log.append([created()]))
        await opened.reached_commit()
        others = [
            asyncio.create_task(log.append([message(f"m{n}", thread_id(n))])) for n in range(63)
        ]
        await asyncio.sleep(0)
    await first
    receipts = [receipt for other in others for receipt in await other]
    assert [receipt.position for receipt in receipts] == list(range(2, 65))
    records = await collect(log, Position(1), 63)
    assert events_of(records) == [message(f"m{n}", thread_id(n)) for n in range(63)]
    assert opened.statements.count("COMMIT") == 2


async def test_a_batch_that_is_not_urgent_waits_for_company(opened: Opened, log: SqliteLog) -> None:
    clock = SystemClock()
    views = SqliteViews(opened.file)
    began_ms = clock.mono_ms()
    await views.apply(ViewBatch(Position(0), Position(1)), urgent=False)
    assert clock.mono_ms() - began_ms >= 9
    assert opened.statements.count("COMMIT") == 1


async def test_events_views_and_watermark_of_one_commit_land_together(
    opened: Opened, log: SqliteLog, tmp_path: Path
) -> None:
    views = SqliteViews(opened.file)
    with opened.held():
        first = asyncio.create_task(log.append([created()]))
        await opened.reached_commit()
        batch = ViewBatch(Position(0), Position(1), threads=[row(thread_id(), 1)])
        applied = asyncio.create_task(views.apply(batch, urgent=False))
        second = asyncio.create_task(log.append([message("second")]))
        await asyncio.sleep(0)
        with contextlib.closing(sqlite3.connect(tmp_path / "log.db")) as plain:
            assert plain.execute("SELECT count(*) FROM events").fetchone() == (0,)
    await asyncio.gather(first, applied, second)
    assert opened.statements.count("COMMIT") == 2


# -- who hears of it when


async def test_nobody_hears_of_a_record_before_its_commit(opened: Opened, log: SqliteLog) -> None:
    views = SqliteViews(opened.file)
    await log.append([created()])
    live = log.subscribe(Position(1))
    following = asyncio.ensure_future(anext(live))
    while not opened.file.feed.has_live:
        await asyncio.sleep(0)
    reading = asyncio.create_task(collect(log, Position(1), 1))
    waiting = asyncio.create_task(views.wait(Position(1)))
    with opened.held():
        batch = ViewBatch(Position(0), Position(1))
        told: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(log.append([message("held")])),
            asyncio.ensure_future(views.apply(batch, urgent=True)),
        ]
        await opened.reached_commit()
        # Two reads of the file by others: time enough for a wrong wake-up to arrive.
        assert await log.end() == 1
        assert await views.watermark() == 0
        assert not any(task.done() for task in (following, reading, waiting, *told))
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(reading, waiting, *told)
        assert events_of([*await following]) == [message("held")]


async def test_records_are_not_read_back_on_the_writers_connection(
    opened: Opened, log: SqliteLog
) -> None:
    following = asyncio.create_task(collect(log, Position(0), 40))
    await append_each(log, [message(f"m{n}") for n in range(40)])
    assert len(await following) == 40
    assert not [sql for sql in opened.statements if sql.startswith("SELECT") and "payload" in sql]


async def test_a_live_record_is_decoded_once_for_all(opened: Opened, log: SqliteLog) -> None:
    followers = [log.subscribe(Position(0)) for _ in range(3)]
    steps = [asyncio.ensure_future(anext(follower)) for follower in followers]
    while sum(s.is_live for s in opened.file.feed._subscribers) < 3:
        await asyncio.sleep(0)
    await log.append([created()])
    async with asyncio.timeout(DEADLINE_S):
        [one], [two], [three] = [await step for step in steps]
    assert one is two is three
    assert one.opens_stream


async def test_of_two_appends_in_one_commit_one_opens_the_stream(
    opened: Opened, log: SqliteLog
) -> None:
    following = log.subscribe(Position(0))
    step = asyncio.ensure_future(anext(following))
    while not opened.file.feed.has_live:
        await asyncio.sleep(0)
    with opened.held():
        first = asyncio.create_task(log.append([message("before", thread_id(9))]))
        await opened.reached_commit()
        pair = [asyncio.create_task(log.append([created()])) for _ in range(2)]
        await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(first, *pair)
        records = list(await step)
        while len(records) < 3:
            records += await anext(following)
    assert [record.opens_stream for record in records] == [True, True, False]


@pytest.mark.parametrize(("size", "count"), [(60_000, 500), (10, 6_000)])
async def test_a_slow_subscriber_is_bounded_in_memory(
    opened: Opened, log: SqliteLog, size: int, count: int
) -> None:
    slow = log.subscribe(Position(0))
    step = asyncio.ensure_future(anext(slow))
    while not opened.file.feed.has_live:
        await asyncio.sleep(0)
    [subscriber] = opened.file.feed._subscribers
    sent = [message(f"m{n} {'x' * size}") for n in range(count)]
    for at in range(0, count, count // 50):
        await log.append(sent[at : at + count // 50])
        assert subscriber.queued_bytes <= 16 * 2**20
        assert sum(len(landed.records or ()) for landed in subscriber.queue) <= 2_000
    assert not subscriber.is_live
    read: list[Record] = list(await step)
    async with asyncio.timeout(DEADLINE_S):
        while len(read) < len(sent):
            read += await anext(slow)
    assert events_of(read) == sent


# -- how it fails


async def test_a_failed_commit_ends_the_log(opened: Opened, log: SqliteLog) -> None:
    await log.append([created()])
    following = asyncio.ensure_future(anext(log.subscribe(Position(1))))
    waiting = asyncio.create_task(SqliteViews(opened.file).wait(Position(9)))
    opened.failing["COMMIT"] = sqlite_error(sqlite3.SQLITE_IOERR_FSYNC)
    with opened.held():
        pending = [asyncio.create_task(log.append([message("in the commit")]))]
        await opened.reached_commit()
        pending.append(asyncio.create_task(log.append([message("behind it")])))
        await asyncio.sleep(0)
    for task in (*pending, following, waiting):
        with pytest.raises(LogUnavailableError):
            await task
    opened.failing.clear()
    with pytest.raises(LogUnavailableError):
        await log.append([message("later")])
    assert [type(error) for error in opened.fatal] == [LogUnavailableError]
    assert await log.end() == 1


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL])
async def test_a_full_disk_is_temporary(
    opened: Opened, log: SqliteLog, statement: str, code: int
) -> None:
    """Q2, and where in the transaction it shows makes no difference."""
    await log.append([created()])
    opened.failing[statement] = sqlite_error(code)
    with pytest.raises(TransientError, match="no space"):
        await log.append([message("lost"), message("lost too")])
    opened.failing.clear()
    [receipt] = await log.append([message("kept")])
    assert receipt.position == 2
    records = await collect(log, Position(0), 2)
    assert events_of(records) == [created(), message("kept")]
    assert not opened.fatal


async def test_what_was_rolled_back_is_not_remembered(opened: Opened, log: SqliteLog) -> None:
    """The position of the lost event is the next one's: its stream must be the next one's, too."""
    lost = message("lost", thread_id(1))
    opened.failing["COMMIT"] = sqlite_error(sqlite3.SQLITE_FULL)
    with pytest.raises(TransientError):
        await log.append([lost])
    opened.failing.clear()
    kept = message("kept", thread_id(2), caused_by=lost.event_id)
    mine = message("mine", thread_id(1))
    receipts = [*await log.append([kept]), *await log.append([mine])]
    judged = [
        Judged(receipt.position, event, Seq(0))
        for receipt, event in zip(receipts, (kept, mine), strict=True)
    ]
    await SqliteViews(opened.file).apply(ViewBatch(Position(0), Position(2), judged), urgent=True)
    connection = opened.writer._connection
    rows = connection.execute("SELECT position, stream, cause FROM judgements").fetchall()
    assert rows == [(1, 1, None), (2, 2, None)]


async def test_a_page_limit_fills_the_file_like_a_disk(opened: Opened, log: SqliteLog) -> None:
    await log.append([created()])
    [pages] = opened.writer._connection.execute("PRAGMA page_count").fetchone()
    opened.writer._connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()
    with pytest.raises(TransientError, match="no space"):
        await log.append([message("x" * 60_000)])
    opened.writer._connection.execute("PRAGMA max_page_count = 1000000").fetchone()
    [receipt] = await log.append([message("x" * 60_000)])
    assert receipt.position == 2
    assert not opened.fatal


async def test_an_io_error_before_the_commit_is_temporary(opened: Opened, log: SqliteLog) -> None:
    opened.failing["INSERT"] = sqlite_error(sqlite3.SQLITE_IOERR_WRITE)
    with pytest.raises(LogUnavailableError):
        await log.append([created()])
    opened.failing.clear()
    await log.append([created()])
    assert not opened.fatal


async def test_damage_found_while_writing_ends_the_log(opened: Opened, log: SqliteLog) -> None:
    opened.failing["INSERT"] = sqlite_error(sqlite3.SQLITE_CORRUPT)
    with pytest.raises(LogUnavailableError):
        await log.append([created()])
    assert [type(error) for error in opened.fatal] == [LogFileError]
    assert str(opened.file.path) in str(opened.fatal[0])


async def test_a_bad_job_does_not_fail_its_neighbours(opened: Opened, log: SqliteLog) -> None:
    views = SqliteViews(opened.file)
    unbindable = Judged(cast(Position, object()), created(), Seq(0))
    with opened.held():
        first = asyncio.create_task(log.append([created()]))
        await opened.reached_commit()
        bad = asyncio.create_task(
            views.apply(ViewBatch(Position(0), Position(1), judged=[unbindable]), urgent=True)
        )
        good = asyncio.create_task(log.append([message("good")]))
        await asyncio.sleep(0)
    await first
    with pytest.raises(RejectedError):
        await bad
    assert [receipt.position for receipt in await good] == [2]
    assert await views.watermark() == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_bug_in_the_writer_ends_the_log_too(opened: Opened, log: SqliteLog) -> None:
    with pytest.raises(LogUnavailableError):
        await SqliteViews(opened.file).apply(cast(ViewBatch, None), urgent=True)
    with pytest.raises(LogUnavailableError):
        await log.append([created()])
    assert len(opened.fatal) == 1


async def test_what_was_submitted_is_done_before_the_file_is_closed(
    opened: Opened, log: SqliteLog
) -> None:
    following = asyncio.ensure_future(anext(log.subscribe(Position(64))))
    appending = [asyncio.create_task(log.append([message(f"m{n}")])) for n in range(64)]
    await asyncio.sleep(0)
    await opened.file.close()
    positions = {receipt.position for task in appending for receipt in await task}
    assert positions == set(range(1, 65))
    for call in (following, log.append([created()]), log.end()):
        with pytest.raises(LogUnavailableError, match="closed"):
            await call
    with contextlib.closing(sqlite3.connect(opened.file.path)) as plain:
        assert plain.execute("SELECT count(*) FROM events").fetchone() == (64,)
    assert not opened.file.path.with_name("log.db-wal").exists()


async def test_a_caller_that_gave_up_disturbs_nobody(opened: Opened, log: SqliteLog) -> None:
    with opened.held():
        first = asyncio.create_task(log.append([created()]))
        second = asyncio.create_task(log.append([message("kept all the same")]))
        await opened.reached_commit()
        first.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await first
    [receipt] = await second
    assert len(await collect(log, Position(0), receipt.position)) == 2


# -- every error of SQLite has a family


@pytest.mark.parametrize("code", range(1, sqlite3.SQLITE_NOTADB + 1))
def test_each_result_code_lands_in_one_family(code: int) -> None:
    mapped = failures.mapped(sqlite_error(code), Path("/a/file.db"))
    assert isinstance(mapped, TransientError | RejectedError | CorruptError)
    assert "/a/file.db" in str(mapped)
    extended = failures.mapped(sqlite_error(code | 30 << 8), Path("/a/file.db"))
    assert type(extended) is type(mapped), "the extended code only says more"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, LogUnavailableError),
        (sqlite3.SQLITE_BUSY, LogUnavailableError),
        (sqlite3.SQLITE_CORRUPT, LogFileError),
        (sqlite3.SQLITE_NOTADB, LogFileError),
        (sqlite3.SQLITE_IOERR_SHORT_READ, LogFileError),
    ],
)
def test_these_codes_mean_this(code: int, expected: type[ThreadlogError]) -> None:
    assert type(failures.mapped(sqlite_error(code), Path("x"))) is expected


async def test_an_id_from_a_caller_is_never_part_of_a_statement(
    opened: Opened, log: SqliteLog
) -> None:
    """E2: ids are bound, and a grouping comes from a closed set."""
    views = SqliteViews(opened.file)
    await log.append([created()])
    evil = "' OR 1=1; DROP TABLE events; --"
    assert await views.find(LOCAL, thread_id(), EventId(evil)) is None
    assert await views.causes(LOCAL, thread_id(), EventId(evil), "ancestors", limit=9) == []
    with pytest.raises(RejectedError):
        await views.usage(LOCAL, cast(Any, (evil,)))
    assert await log.end() == 1


async def test_every_commit_is_synced_before_it_is_acknowledged(opened: Opened) -> None:
    """A power cut cannot be made here; that SQLite was told to survive one can be seen."""
    settings = {
        name: opened.writer._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2}
