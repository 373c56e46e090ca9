"""Storing what the projection made of the log: rows and watermark in one step, or nothing."""

import sqlite3

from threadlog.adapters.sqlite.recent import Place, Recent
from threadlog.adapters.sqlite.rows import Row, insert_rows
from threadlog.ids import Position
from threadlog.ports.snapshots import Snapshot
from threadlog.ports.usage import UsageFact
from threadlog.ports.views import (
    Judged,
    ThreadRow,
    ViewBatch,
)

_MOVE = "UPDATE watermark SET position = ? WHERE id = 1 AND position = ?"
_STORED = "SELECT position FROM watermark WHERE id = 1"

_JUDGED = "INSERT OR REPLACE INTO judgements (position, stream, cause, seq, void)"
_KNOWN_VALUES = "(?, ?, ?, ?, ?)"
_SOUGHT_VALUES = (
    "(?, (SELECT min(f.sequence) FROM events e JOIN events f"
    " ON f.thread_id = e.thread_id AND f.tenant_id = e.tenant_id WHERE e.sequence = ?),"
    " (SELECT max(f.sequence) FROM events e JOIN events f ON f.event_id = e.caused_by"
    " AND f.tenant_id = e.tenant_id AND f.sequence < e.sequence WHERE e.sequence = ?), ?, ?)"
)
THREAD_COLUMNS = (
    "tenant_id",
    "thread_id",
    "title",
    "status",
    "head",
    "position",
    "turns",
    "open_turn",
    "queued",
    "verdict",
    "model",
    "steps",
    "input",
    "output",
    "cache_read",
    "cache_write",
    "reasoning",
    "cost_micros",
    "created_at",
    "updated_at",
)
_THREADS = f"INSERT INTO threads ({', '.join(THREAD_COLUMNS)})"
_THREAD_VALUES = f"({', '.join('?' * len(THREAD_COLUMNS))})"
_THREAD_UPDATE = "ON CONFLICT (tenant_id, thread_id) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in THREAD_COLUMNS[2:]
)
_SNAPSHOTS = (
    "INSERT INTO snapshots (tenant_id, thread_id, seq, position, fold_version, sha256, state)"
)
_SNAPSHOT_VALUES = "(?, ?, ?, ?, ?, ?, ?)"
# The last one stored wins, not the highest seq: after a rebuild the new fold's replaces the old.
_SNAPSHOT_UPDATE = (
    "ON CONFLICT (thread_id, tenant_id) DO UPDATE SET seq = excluded.seq,"
    " position = excluded.position, fold_version = excluded.fold_version,"
    " sha256 = excluded.sha256, state = excluded.state"
)
_FACTS = (
    "INSERT OR REPLACE INTO usage_facts (position, event_id, tenant_id, thread_id, turn_id, step,"
    " attempt, provider, model, input, output, cache_read, cache_write, reasoning, cost_micros,"
    " occurred_at, tool_ms)"
)
_FACT_VALUES = f"({', '.join('?' * 17)})"
_LETTERS = "INSERT OR REPLACE INTO dead_letters (position, reason)"


def apply_batch(connection: sqlite3.Connection, recent: Recent, batch: ViewBatch) -> Position:
    """The stored watermark afterwards; the batch's own exactly when its rows are in."""
    moved = connection.execute(_MOVE, (batch.watermark, batch.expected))
    if moved.rowcount != 1:
        [stored] = connection.execute(_STORED).fetchone()
        return Position(stored)
    places = [(row, recent.place(row.position)) for row in batch.judged]
    for head, values, tail, rows in (
        (_JUDGED, _KNOWN_VALUES, "", [_known(row, place) for row, place in places if place]),
        (_JUDGED, _SOUGHT_VALUES, "", [_sought(row) for row, place in places if not place]),
        (_THREADS, _THREAD_VALUES, _THREAD_UPDATE, [_thread(row) for row in batch.threads]),
        (_SNAPSHOTS, _SNAPSHOT_VALUES, _SNAPSHOT_UPDATE, [_snapshot(s) for s in batch.snapshots]),
        (_FACTS, _FACT_VALUES, "", [_fact(fact) for fact in batch.usage]),
        (_LETTERS, "(?, ?)", "", [(d.position, d.reason) for d in batch.dead_letters]),
    ):
        for _ in insert_rows(connection, head, values, tail, rows):
            pass
    return batch.watermark


def _known(row: Judged, place: Place) -> Row:
    return (row.position, place.stream, place.cause, row.seq, row.void)


def _sought(row: Judged) -> Row:
    return (row.position, row.position, row.position, row.seq, row.void)


def _thread(row: ThreadRow) -> Row:
    usage = row.usage
    return (
        row.tenant_id,
        row.thread_id,
        row.title,
        row.status,
        row.head,
        row.position,
        row.turns,
        row.open_turn,
        row.queued,
        row.verdict,
        row.model,
        usage.steps,
        usage.input,
        usage.output,
        usage.cache_read,
        usage.cache_write,
        usage.reasoning,
        usage.cost_micros,
        row.created_at,
        row.updated_at,
    )


def _snapshot(row: Snapshot) -> Row:
    return (
        row.tenant_id,
        row.thread_id,
        row.seq,
        row.position,
        row.fold_version,
        row.sha256,
        row.state,
    )


def _fact(row: UsageFact) -> Row:
    return (
        row.position,
        row.event_id,
        row.tenant_id,
        row.thread_id,
        row.turn_id,
        row.step,
        row.attempt,
        row.provider,
        row.model,
        row.input,
        row.output,
        row.cache_read,
        row.cache_write,
        row.reasoning,
        row.cost_micros,
        row.occurred_at,
        row.tool_ms,
    )
