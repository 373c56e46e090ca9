"""What the writer is asked to do. A job runs inside a transaction that it shares with others."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from threadlog.adapters.sqlite.rows import Row, insert_rows
from threadlog.adapters.sqlite.schema import COLUMNS
from threadlog.adapters.sqlite.view_rows import apply_batch
from threadlog.ids import EventId, Position, TenantId, ThreadId
from threadlog.ports.log import Receipt
from threadlog.ports.views import ViewBatch

_INSERT_EVENTS = f"INSERT INTO events ({', '.join(COLUMNS[1:])})"
_EVENT_VALUES = f"({', '.join('?' * (len(COLUMNS) - 1))})"
_KNOWS_KEY = "SELECT 1 FROM events WHERE thread_id = ? AND tenant_id = ? LIMIT 1"
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
             of records that begin their stream. `watermark` None: no view batch was applied.
    """

    connection: sqlite3.Connection
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
    """Append these events. `rows` and `ids` are in order; `opens`: index and key of creations."""

    future: asyncio.Future[object]
    ids: Sequence[EventId]
    rows: Sequence[Row]
    opens: Sequence[tuple[int, TenantId, ThreadId]] = ()
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
            stored = apply_batch(transaction.connection, job.batch)
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
    opening = _openings(transaction.connection, jobs)
    positions: list[Position] = []
    for last, size in insert_rows(transaction.connection, _INSERT_EVENTS, _EVENT_VALUES, "", rows):
        positions += map(Position, range(last - size + 1, last + 1))
    assert len(positions) == len(rows)
    transaction.head = positions[-1]
    transaction.opens = {positions[at] for at in opening}
    at = iter(positions)
    for job in jobs:
        transaction.outcomes.append((job, list(_receipts(job.ids, at))))


def _receipts(ids: Sequence[EventId], positions: Iterator[Position]) -> Iterator[Receipt]:
    for event_id in ids:
        yield Receipt(event_id, next(positions))


def _openings(connection: sqlite3.Connection, jobs: Sequence[AppendJob]) -> list[int]:
    """Which of the jobs' rows, counted through, are the first record of their key.

    Only creations are asked about: an index seek each, and none for the keys seen before.
    """
    if not any(job.opens for job in jobs):
        return []
    found: list[int] = []
    seen: set[tuple[object, object]] = set()
    start = 0
    for job in jobs:
        keys = {at: (thread, tenant) for at, tenant, thread in job.opens}
        for at, row in enumerate(job.rows):
            key = keys.get(at)
            if key and key not in seen and not connection.execute(_KNOWS_KEY, key).fetchone():
                found.append(start + at)
            seen.add((row[_THREAD], row[_TENANT]))
        start += len(job.rows)
    return found


_THREAD = COLUMNS.index("thread_id") - 1
_TENANT = COLUMNS.index("tenant_id") - 1
