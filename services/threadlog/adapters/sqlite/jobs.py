"""What the writer is asked to do. A job runs inside a transaction that it shares with others."""

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from threadlog.adapters.sqlite.recent import Appended, Key, Recent
from threadlog.adapters.sqlite.rows import Row, insert_rows
from threadlog.adapters.sqlite.schema import COLUMNS
from threadlog.adapters.sqlite.view_rows import apply_batch
from threadlog.events.envelope import Event
from threadlog.ids import EventId, Position
from threadlog.ports.log import Receipt
from threadlog.ports.views import ViewBatch

_INSERT_EVENTS = f"INSERT INTO events ({', '.join(COLUMNS[1:])})"
_EVENT_VALUES = f"({', '.join('?' * (len(COLUMNS) - 1))})"
_FIRST = "SELECT min(sequence) FROM events WHERE thread_id = ? AND tenant_id = ?"
_CAUSE = COLUMNS.index("caused_by") - 1
_INSERT_BLOBS = "INSERT INTO blobs (tenant_id, sha256, media_type, bytes, touched_at_ms, content)"
_BLOB_VALUES = "(?, ?, ?, ?, ?, ?)"
_TOUCH = (
    "ON CONFLICT (sha256, tenant_id) "
    "DO UPDATE SET touched_at_ms = max(touched_at_ms, excluded.touched_at_ms)"
)


@dataclass(slots=True)
class Transaction:
    """What the jobs of one transaction did, known to the writer once it is committed.

    Shapes:  `head`: the last position assigned, None when no event was appended. `opens`: positions
             of records that begin their stream. `appended`: what `recent` is to remember when it is
             committed. `written`: each row and its event. `watermark` None: no view batch was
             applied.
    """

    connection: sqlite3.Connection
    recent: Recent
    appended: list[Appended] = field(default_factory=list)
    written: dict[Position, tuple[Row, Event]] = field(default_factory=dict)
    head: Position | None = None
    opens: set[Position] = field(default_factory=set)
    watermark: Position | None = None
    outcomes: list[tuple["Job", object]] = field(default_factory=list)


class Job(Protocol):
    """A piece of work, and who waits for it. `urgent` False: it waits for company."""

    @property
    def future(self) -> asyncio.Future[object]:
        """Set on the event loop, after the commit or with an error."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether it causes a commit of its own at once."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class AppendJob:
    """Append these events of one thread. `rows` and `ids` are in their order."""

    future: asyncio.Future[object]
    key: Key
    events: Sequence[Event]
    ids: Sequence[EventId]
    rows: Sequence[Row]
    urgent: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ViewJob:
    """Apply this batch, if the watermark is the expected one."""

    future: asyncio.Future[object]
    batch: ViewBatch
    urgent: bool


@dataclass(frozen=True, slots=True, eq=False)
class BlobJob:
    """Store these rows of `blobs`, or touch those that are there."""

    future: asyncio.Future[object]
    rows: Sequence[Row]
    urgent: bool = True


def run_jobs(transaction: Transaction, jobs: Sequence[Job]) -> None:
    """Every job ran, appends in the order in which they were asked for."""
    _append(transaction, [job for job in jobs if isinstance(job, AppendJob)])
    for job in jobs:
        if isinstance(job, ViewJob):
            stored = apply_batch(transaction.connection, transaction.recent, job.batch)
            transaction.watermark = stored
            transaction.outcomes.append((job, stored))
        elif isinstance(job, BlobJob):
            for _ in insert_rows(
                transaction.connection, _INSERT_BLOBS, _BLOB_VALUES, _TOUCH, job.rows
            ):
                pass
            transaction.outcomes.append((job, None))


def _append(transaction: Transaction, jobs: Sequence[AppendJob]) -> None:
    """All events of all jobs in one go; SQLite numbers the rows of a statement without a gap."""
    rows = [row for job in jobs for row in job.rows]
    if not rows:
        return
    streams = {job.key: _first(transaction, job.key) for job in jobs}
    positions: list[Position] = []
    for last, size in insert_rows(transaction.connection, _INSERT_EVENTS, _EVENT_VALUES, "", rows):
        positions += map(Position, range(last - size + 1, last + 1))
    assert len(positions) == len(rows)
    transaction.head = positions[-1]
    at = 0
    for job in jobs:
        own = positions[at : at + len(job.rows)]
        at += len(job.rows)
        stream = streams[job.key]
        if stream is None:
            stream = streams[job.key] = own[0]
            transaction.opens.add(stream)
        causes = [row[_CAUSE] for row in job.rows]
        transaction.appended.append(Appended(job.key, stream, own, job.ids, causes))
        pairs = zip(job.rows, job.events, strict=True)
        transaction.written.update(zip(own, pairs, strict=True))
        transaction.outcomes.append((job, list(map(Receipt, job.ids, own))))


def _first(transaction: Transaction, key: Key) -> Position | None:
    """The position of the first record with this key, None when there is none."""
    if (known := transaction.recent.stream(key)) is not None:
        return known
    [found] = transaction.connection.execute(_FIRST, key).fetchone()
    return None if found is None else Position(found)
