"""The queries behind the views. Each runs on a read connection and sees one state of the file.

Identifiers from a caller are bound, never written into a statement; what cannot be bound (a
grouping) comes from a closed table here.
"""

import sqlite3
from collections.abc import Sequence

from threadlog.adapters.sqlite.rows import EVENT, Row, read_rows, record
from threadlog.adapters.sqlite.view_rows import THREAD_COLUMNS
from threadlog.errors import RejectedError
from threadlog.ids import EventId, Position, Seq, TenantId, ThreadId, TurnId
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.log import Record
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
    UsageTotals,
)
from threadlog.ports.views import (
    Direction,
    StoredEvent,
    ThreadRow,
)

_JUDGED = f"{EVENT}, j.seq, j.void"
_STREAM = "(SELECT min(f.sequence) FROM events f WHERE f.thread_id = ? AND f.tenant_id = ?)"
_BY_SEQ = (
    "judgements j JOIN events e ON e.sequence = j.position"
    f" WHERE j.seq BETWEEN ? AND ? AND j.stream = {_STREAM} ORDER BY j.seq LIMIT ?"
)
_VOIDS = (
    "judgements j JOIN events e ON e.sequence = j.position"
    f" WHERE j.seq IS NULL AND j.stream = {_STREAM} ORDER BY j.position LIMIT ?"
)
# The plus signs keep the planner from walking through the whole thread instead.
_BY_ID = (
    "events e JOIN judgements j ON j.position = e.sequence"
    " WHERE e.event_id = ? AND +e.thread_id = ? AND +e.tenant_id = ?"
    " ORDER BY j.seq IS NULL, e.sequence"
)
_RECORDS = (
    "events e WHERE e.thread_id = ? AND e.tenant_id = ? AND e.sequence > ? AND e.sequence < ?"
    " ORDER BY e.sequence LIMIT ?"
)
# CROSS JOIN fixes the order of the joins: each step is a seek, whatever the planner would guess.
_SEEN = "CROSS JOIN judgements j ON j.position = e.sequence AND j.seq IS NOT NULL"
_STEP: dict[Direction, tuple[str, str]] = {
    "ancestors": (
        f"CROSS JOIN events e ON e.event_id = c.caused_by AND c.cause IS NOT NULL {_SEEN}",
        "DESC",
    ),
    "descendants": (
        "CROSS JOIN events f ON f.event_id = c.event_id AND f.tenant_id = c.tenant_id"
        " CROSS JOIN judgements j ON j.cause = f.sequence AND j.seq IS NOT NULL"
        " CROSS JOIN events e ON e.sequence = j.position",
        "ASC",
    ),
}
"""How to go one step from an event `c` to `e`; the nearest are kept when there are too many."""
_THREADS = f"SELECT {', '.join(THREAD_COLUMNS)} FROM threads WHERE tenant_id = ?"
_GROUPS: dict[UsageGroup, str] = {
    "tenant": "tenant_id",
    "thread": "thread_id",
    "turn": "turn_id",
    "model": "provider || '/' || model",
    "day": "substr(occurred_at, 1, 10)",
    "hour": "substr(occurred_at, 1, 13)",
}
_SUMS = (
    "count(DISTINCT CASE WHEN tool_ms IS NULL THEN turn_id || ':' || step END), sum(input),"
    " sum(output), sum(cache_read),"
    " sum(cache_write), sum(reasoning), sum(cost_micros),"
    " coalesce(sum(tool_ms), 0)"
)


def events_by_seq(
    connection: sqlite3.Connection,
    key: tuple[TenantId, ThreadId],
    first: Seq,
    last: Seq,
    limit: int,
) -> list[StoredEvent]:
    """Accepted events of the range, by one index seek."""
    tenant, thread = key
    return _stored(read_rows(connection, _JUDGED, _BY_SEQ, (first, last, thread, tenant, limit)))


def voids(
    connection: sqlite3.Connection, tenant: TenantId, thread: ThreadId, limit: int
) -> list[StoredEvent]:
    """Void events of the thread, in log order."""
    return _stored(read_rows(connection, _JUDGED, _VOIDS, (thread, tenant, limit)))


def event_by_id(
    connection: sqlite3.Connection, tenant: TenantId, thread: ThreadId, event_id: EventId
) -> StoredEvent | None:
    """The accepted copy, else the first void one."""
    rows = read_rows(connection, _JUDGED, _BY_ID, (event_id, thread, tenant))
    return next(iter(_stored(rows)), None)


def causes(
    connection: sqlite3.Connection,
    key: tuple[TenantId, ThreadId],
    event_id: EventId,
    direction: Direction,
    limit: int,
) -> list[StoredEvent]:
    """The chain in one recursive query."""
    tenant, thread = key
    join, order = _STEP[direction]
    members = "e.sequence, e.event_id, e.tenant_id, e.caused_by, j.cause"
    tail = (
        f"events e {_SEEN} WHERE e.sequence IN ("
        "WITH RECURSIVE chain (sequence, event_id, tenant_id, caused_by, cause) AS ("
        f"SELECT {members} FROM events e {_SEEN} WHERE e.event_id = ? AND e.tenant_id = ?"
        " AND +e.thread_id = ?"
        f" UNION SELECT {members} FROM chain c {join} WHERE e.tenant_id = c.tenant_id"
        f" ORDER BY 1 {order} LIMIT ?"
        ") SELECT sequence FROM chain) ORDER BY e.sequence"
    )
    return _stored(read_rows(connection, _JUDGED, tail, (event_id, tenant, thread, limit)))


def records(
    connection: sqlite3.Connection,
    key: tuple[TenantId, ThreadId],
    after: Position,
    before: Position,
) -> list[Record]:
    """The thread's records between two positions, read in bounded pieces."""
    tenant, thread = key
    found: list[Record] = []
    while True:
        rows = read_rows(
            connection, EVENT, _RECORDS, (thread, tenant, after, before, READ_EVENTS_MAX)
        )
        found += [record(row) for row in rows]
        if len(rows) < READ_EVENTS_MAX:
            return found
        after = found[-1].position


def thread_rows(
    connection: sqlite3.Connection, tail: str, parameters: Sequence[object]
) -> list[ThreadRow]:
    """Rows of a tenant's threads; `tail` continues the WHERE clause."""
    return [_thread(row) for row in connection.execute(f"{_THREADS} {tail}", parameters)]


def usage(
    connection: sqlite3.Connection,
    tenant: TenantId,
    group: Sequence[UsageGroup],
    thread: ThreadId | None,
) -> list[UsageRow]:
    """The sums, one line a group; no facts, no line."""
    if unknown := [name for name in group if name not in _GROUPS]:
        raise RejectedError(f"usage is not grouped by {', '.join(unknown)}")
    keys = [_GROUPS[name] for name in group]
    where, parameters = "tenant_id = ?", [str(tenant)]
    if thread is not None:
        where, parameters = "tenant_id = ? AND thread_id = ?", [str(tenant), str(thread)]
    by = f"GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}" if keys else ""
    rows = connection.execute(
        f"SELECT {', '.join([*keys, _SUMS])}, count(*) FROM usage_facts WHERE {where} {by}",
        parameters,
    )
    width = len(keys)
    return [
        UsageRow(tuple(row[:width]), UsageTotals(*row[width:-2]), row[-2])
        for row in rows
        if row[-1] > 0
    ]


def _stored(rows: Sequence[Row]) -> list[StoredEvent]:
    """Events of rows that end in seq and reason; one without an envelope is no event to show."""
    found = []
    for row in rows:
        read = record(row)
        if read.event is not None:
            seq, void = row[-2], row[-1]
            found.append(
                StoredEvent(read.position, None if seq is None else Seq(seq), read.event, void)
            )
    return found


def _thread(row: Row) -> ThreadRow:
    return ThreadRow(
        tenant_id=TenantId(row[0]),
        thread_id=ThreadId(row[1]),
        title=row[2],
        status=row[3],
        head=Seq(row[4]),
        position=Position(row[5]),
        turns=row[6],
        open_turn=None if row[7] is None else TurnId(row[7]),
        queued=row[8],
        verdict=row[9],
        model=row[10],
        usage=UsageTotals(*row[11:18]),
        created_at=row[18],
        updated_at=row[19],
    )
