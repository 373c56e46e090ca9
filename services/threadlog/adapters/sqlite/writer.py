"""The writer: one thread, one connection that writes, one commit for all who wait.

Guarantees
    1. Jobs are taken in the order in which they were submitted; all that wait share a commit.
    2. Nobody hears of a job, and no record is read back, before its COMMIT has returned.
    3. Records are read back on a connection of their own, never on the one that wrote them, and
       reach the event loop together with the receipts, in one call.
    4. When the outcome of a commit is unknown nothing more is written: every job fails, now and
       later, and `on_fatal` is told, so that the process ends and the next one reads the file.

A full device is not such a case. SQLite writes the WAL while it commits, so that is where it shows;
the frame that would make the transaction count is the last one written, so a refused write leaves
none, and the next transaction begins at the same place. The jobs fail, to be tried again with the
same ids, and the next commit succeeds as soon as there is space. A failed *sync* is fatal: the
kernel may have dropped the pages, and a later sync would report success over the hole.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from threadlog.adapters.sqlite.connect import open_reader, open_writer
from threadlog.adapters.sqlite.failures import mapped, result_code
from threadlog.adapters.sqlite.feed import Landed
from threadlog.adapters.sqlite.jobs import Job, Transaction, run_jobs
from threadlog.adapters.sqlite.recent import Recent
from threadlog.adapters.sqlite.rows import EVENT, Row, read_rows, record
from threadlog.clock import Clock
from threadlog.errors import LogUnavailableError, RejectedError, ThreadlogError
from threadlog.events.envelope import Event
from threadlog.ids import Position
from threadlog.ports.log import Record

_COMPANY_MS = 10
"""How long a job that is not urgent waits for one that is."""
_GROUP_JOBS_MAX = 256
"""Jobs in one commit: bounds how long the first of them waits for the last."""
_READ_BACK_MAX = 2_048
"""Records read back at once; when more were added the subscribers read the file themselves."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the event loop is told after a group: results, what landed, and the end, if it came."""

    outcomes: Sequence[tuple[asyncio.Future[object], object]] = ()
    landed: Landed | None = None
    watermark: Position | None = None
    fatal: ThreadlogError | None = None


def _record(row: Row, written: tuple[Row, Event] | None, opens_stream: bool) -> Record:
    """The record in the row. Where it is, value for value, the row that was just written from an
    event, that event is what decoding it would give.
    """
    if written is not None and tuple(row[1:]) == written[0]:
        event = written[1]
        return Record(Position(row[0]), event.key, event, None, opens_stream)
    return record(row, opens_stream=opens_stream)


class Writer:
    """Runs jobs until it is closed or has failed."""

    def __init__(
        self,
        file: Path,
        *,
        clock: Clock,
        deliver: Callable[[Delivery], None],
        wants_records: Callable[[], bool],
    ) -> None:
        """Opens the file, makes it where it is missing.

        Effects: `deliver` and `wants_records` are called on the writer's thread.
        Raises:  as `connect.open_writer`.
        """
        self._file = file
        self._clock = clock
        self._deliver = deliver
        self._wants_records = wants_records
        self._connection = open_writer(file)
        self._read_connection = open_reader(file)
        [head] = self._read_connection.execute(
            "SELECT coalesce(max(sequence), 0) FROM events"
        ).fetchone()
        self.head = Position(head)
        self._recent = Recent()
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._failure: ThreadlogError | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="threadlog-writer", daemon=True)

    def start(self) -> None:
        """Jobs are taken from now on."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """The job runs with the next group.

        Raises:  LogUnavailableError: the writer has failed or was closed.
        """
        self._check()
        self._queue.put(job)
        # It may have ended in between without having seen this job.
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise LogUnavailableError(str(self._failure)) from self._failure
        if self._is_closed:
            raise LogUnavailableError(f"{self._file} was closed")

    def stop(self) -> None:
        """What was submitted is done and the thread has ended."""
        self._is_closed = True
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def close(self) -> None:
        """The connections are closed; the last one moves the WAL into the file."""
        self.stop()
        self._read_connection.close()
        self._connection.close()

    def _run(self) -> None:
        is_last = False
        jobs: list[Job] = []
        try:
            while not is_last and self._failure is None:
                jobs, is_last = self._take()
                if jobs:
                    self._run_group(jobs)
        finally:
            if not is_last and self._failure is None:
                # An error that nobody foresaw passes here: it ends the log, not only this thread.
                self._end(jobs, LogUnavailableError("the writer's thread has died"))
            self._fail_waiting()

    def _take(self) -> tuple[list[Job], bool]:
        """The next group, and whether the writer was closed behind it."""
        jobs: list[Job] = []
        is_urgent = False
        job = self._queue.get()
        deadline_ms = self._clock.mono_ms() + _COMPANY_MS
        while job is not None:
            jobs.append(job)
            if len(jobs) == _GROUP_JOBS_MAX:
                return jobs, False
            is_urgent = is_urgent or job.urgent
            wait_ms = 0 if is_urgent else deadline_ms - self._clock.mono_ms()
            try:
                job = self._queue.get(wait_ms > 0, max(wait_ms, 0) / 1_000)
            except Empty:
                return jobs, False
        return jobs, True

    def _run_group(self, jobs: Sequence[Job]) -> None:
        """One transaction: 1. begin, 2. run, 3. commit, 4. read back, 5. deliver."""
        transaction = Transaction(self._connection, self._recent)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            run_jobs(transaction, jobs)
        except (sqlite3.Error, ValueError, OverflowError, TypeError) as error:
            self._give_up(jobs, error)
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if result_code(error) & 0xFF == sqlite3.SQLITE_FULL:
                self._give_up(jobs, error)
            else:
                self._end(jobs, mapped(error, self._file))
            return
        for appended in transaction.appended:
            self._recent.add(appended)
        try:
            landed = self._read_back(transaction)
        except sqlite3.Error as error:
            self._end(jobs, mapped(error, self._file))
            return
        outcomes = [(job.future, outcome) for job, outcome in transaction.outcomes]
        self._deliver(Delivery(outcomes, landed, transaction.watermark))

    def _read_back(self, transaction: Transaction) -> Landed | None:
        """What was added behind the head, whoever added it."""
        if transaction.head is None:
            return None
        if not self._wants_records():
            self.head = transaction.head
            return Landed(self.head, None)
        rows = read_rows(
            self._read_connection,
            EVENT,
            "events e WHERE e.sequence > ? ORDER BY e.sequence LIMIT ?",
            (self.head, _READ_BACK_MAX + 1),
        )
        if len(rows) > _READ_BACK_MAX:
            self.head = transaction.head
            return Landed(self.head, None)
        opens = transaction.opens
        written = transaction.written
        records = tuple(_record(row, written.get(row[0]), row[0] in opens) for row in rows)
        self.head = records[-1].position
        size = sum(len(r.event.data) for r in records if r.event is not None)
        return Landed(self.head, records, size)

    def _give_up(self, jobs: Sequence[Job], error: Exception) -> None:
        """Nothing of this group was committed; one bad job does not fail its neighbours."""
        failure = mapped(error, self._file)
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._end(jobs, failure)
            return
        if not isinstance(failure, LogUnavailableError | RejectedError):
            self._end(jobs, failure)
        elif isinstance(failure, RejectedError) and len(jobs) > 1:
            for job in jobs:
                if self._failure is None:
                    self._run_group([job])
                else:
                    self._fail([job])
        else:
            self._deliver(Delivery([(job.future, failure) for job in jobs]))

    def _end(self, jobs: Sequence[Job], cause: ThreadlogError) -> None:
        """What the log holds is not known any more: nothing is written from now on."""
        self._failure = cause
        outcome = LogUnavailableError(f"the log has failed: {cause}")
        outcomes = [(job.future, outcome) for job in jobs]
        self._deliver(Delivery(outcomes, fatal=cause))

    def _fail(self, jobs: Sequence[Job]) -> None:
        reason = self._failure or "it was closed"
        outcome = LogUnavailableError(f"the log takes nothing any more: {reason}")
        self._deliver(Delivery([(job.future, outcome) for job in jobs]))

    def _fail_waiting(self) -> None:
        """Whatever was submitted while the writer ended."""
        waiting: list[Job] = []
        try:
            while True:
                if (job := self._queue.get_nowait()) is not None:
                    waiting.append(job)
        except Empty:
            self._fail(waiting)
