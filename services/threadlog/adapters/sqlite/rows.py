"""Events as rows and back: how records are written and read in few, large steps.

Each step of SQLite gives Python's global lock away and waits to have it back, which costs up to a
switch interval while the event loop is busy. So many rows go in with one statement, and come out
as one JSON text that is parsed in one go; row by row is the way for rows that JSON cannot carry.

Guarantee: a row never raises. One without a usable envelope becomes a `Record` with a `problem`.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import orjson

from threadlog.adapters.sqlite.schema import COLUMNS
from threadlog.errors import RecordError
from threadlog.events.codec import decode_event
from threadlog.events.envelope import Event
from threadlog.ids import Position
from threadlog.ports.log import Record

Row = Sequence[Any]
"""One row: only SQLite knows the types of its values."""

EVENT = ", ".join(f"e.{name}" for name in COLUMNS)
"""The columns of an event, of a table called `e`."""
_WIDTH = len(COLUMNS)
_CHUNK_MAX = 64
"""Rows in one INSERT; sizes are powers of two, so that few statements are ever prepared."""
_CRITICAL = {0: False, 1: True}


def event_row(event: Event) -> Row:
    """The values of `COLUMNS` behind `sequence`, which the file assigns."""
    return (
        event.event_id,
        event.type,
        event.version,
        event.data.decode(),
        event.caused_by,
        event.turn_id,
        event.thread_id,
        event.tenant_id,
        event.workspace_id,
        event.actor,
        event.worker,
        event.idempotency_key,
        event.occurred_at,
        event.source,
        int(event.critical),
        event.traceparent,
        event.tracestate,
    )


def record(row: Row, *, opens_stream: bool = False) -> Record:
    """The record in a row that begins with `EVENT`."""
    position = Position(row[0])
    data = row[4]
    fields = {
        "event_id": row[1],
        "type": row[2],
        "version": row[3],
        "caused_by": row[5],
        "turn_id": row[6],
        "thread_id": row[7],
        "tenant_id": row[8],
        "workspace_id": row[9],
        "actor": row[10],
        "worker": row[11],
        "idempotency_key": row[12],
        "occurred_at": row[13],
        "source": row[14],
        "critical": _CRITICAL.get(row[15], row[15]),
    }
    if row[16] is not None:
        fields |= {"traceparent": row[16], "tracestate": row[17]}
    try:
        event = decode_event(fields, data.encode() if isinstance(data, str) else data)
    except RecordError as error:
        tenant, thread = row[8], row[7]
        known = isinstance(tenant, str) and isinstance(thread, str)
        return Record(position, f"{tenant}/{thread}" if known else "", None, str(error))
    return Record(position, event.key, event, None, opens_stream)


def insert_rows(
    connection: sqlite3.Connection, head: str, values: str, tail: str, rows: Sequence[Row]
) -> Iterator[tuple[int, int]]:
    """All rows are in, in that order; per statement its last rowid and its number of rows."""
    at = 0
    while at < len(rows):
        size = min(_CHUNK_MAX, 1 << ((len(rows) - at).bit_length() - 1))
        flat = [value for row in rows[at : at + size] for value in row]
        cursor = connection.execute(_insert(head, values, tail, size), flat)
        yield cursor.lastrowid or 0, size
        at += size


def read_rows(
    connection: sqlite3.Connection, columns: str, tail: str, parameters: Sequence[object]
) -> Sequence[Row]:
    """The rows of `SELECT columns FROM tail`, in its order."""
    try:
        [text] = connection.execute(_as_json(columns, tail), parameters).fetchone()
        rows: list[Row] = orjson.loads(text) if text is not None else []
        return rows
    except (sqlite3.OperationalError, sqlite3.DataError, orjson.JSONDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if code not in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG):
            raise
    return _read_one_by_one(connection, columns, tail, parameters)


def _read_one_by_one(
    connection: sqlite3.Connection, columns: str, tail: str, parameters: Sequence[object]
) -> Sequence[Row]:
    """The same rows, where one holds a BLOB or text that is not UTF-8: such a value stays bytes.

    Also where together they are more than SQLite makes one value of.
    """
    connection.text_factory = bytes
    try:
        rows = connection.execute(f"SELECT {columns} FROM {tail}", parameters).fetchall()
    finally:
        connection.text_factory = str
    return [[_text(value) for value in row] for row in rows]


def _text(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


@cache
def _insert(head: str, values: str, tail: str, size: int) -> str:
    return f"{head} VALUES {', '.join([values] * size)} {tail}"


@cache
def _as_json(columns: str, tail: str) -> str:
    return (
        "SELECT CAST('[' || group_concat(line, ',') || ']' AS BLOB) "
        f"FROM (SELECT json_array({columns}) AS line FROM {tail})"
    )
