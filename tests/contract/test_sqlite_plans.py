"""No read of the embedded file walks through a table: its time depends on what it returns."""

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.helpers.events import LOCAL, created, event_id, thread_id
from threadlog.adapters.sqlite import view_queries, views
from threadlog.adapters.sqlite.connect import open_writer
from threadlog.adapters.sqlite.recent import Recent
from threadlog.adapters.sqlite.view_rows import apply_batch
from threadlog.ids import Position, Seq
from threadlog.ports.views import (
    Judged,
    ViewBatch,
)

WALK = re.compile(r"SCAN (?!c\b|chain\b|\d+ CONSTANT|.*\(subquery|.*CONSTANT ROW)\S+")
"""A scan of anything but the members of a chain of causes, or of the values of an INSERT."""
KEY = (LOCAL, thread_id())
Query = Callable[[sqlite3.Connection], object]
QUERIES: dict[str, Query] = {
    "events": lambda c: view_queries.events_by_seq(c, KEY, Seq(5), Seq(9), 10),
    "voids": lambda c: view_queries.voids(c, *KEY, 10),
    "find": lambda c: view_queries.event_by_id(c, *KEY, event_id(1)),
    "ancestors": lambda c: view_queries.causes(c, KEY, event_id(1), "ancestors", 10),
    "descendants": lambda c: view_queries.causes(c, KEY, event_id(1), "descendants", 10),
    "records": lambda c: view_queries.records(c, KEY, Position(5), Position(9)),
    "thread": lambda c: view_queries.thread_rows(c, views._ONE, KEY),
    "threads": lambda c: view_queries.thread_rows(c, views._PAGE, (LOCAL, 9, 10)),
    "open threads": lambda c: list(c.execute(views._OPEN)),
    "usage": lambda c: view_queries.usage(c, LOCAL, ("turn", "model"), thread_id()),
    "apply": lambda c: apply_batch(
        c, Recent(), ViewBatch(Position(0), Position(1), [Judged(Position(1), created(), Seq(0))])
    ),
}


class Explained:
    """A connection that notes the plan of whatever it executes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.plan: list[str] = []

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        rows = self._connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)
        self.plan += [row[3] for row in rows]
        return self._connection.execute(sql, parameters)


@pytest.fixture
def explained(tmp_path: Path) -> Iterator[Explained]:
    with contextlib.closing(open_writer(tmp_path / "threadlog.db")) as connection:
        yield Explained(connection)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_seeks(explained: Explained, name: str) -> None:
    QUERIES[name](cast(sqlite3.Connection, explained))
    assert explained.plan
    assert not [step for step in explained.plan if WALK.match(step)], explained.plan


def test_a_walk_would_be_seen(explained: Explained) -> None:
    explained.execute("SELECT * FROM events e WHERE e.actor = 'me'")
    assert [step for step in explained.plan if WALK.match(step)]


def test_an_event_is_found_by_its_id_and_not_through_its_thread(explained: Explained) -> None:
    QUERIES["find"](cast(sqlite3.Connection, explained))
    assert any("events_by_id" in step for step in explained.plan), explained.plan
