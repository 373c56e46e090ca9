"""The log suite over memory, SQLite and a Kafka broker."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.contract.log_suite import LogSuite
from tests.helpers.events import LOCAL, WHEN
from tests.helpers.kafka import append_raw, make_config, make_topics, running_log
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.ids import Partition, Position, ThreadId
from threadlog.ports.log import Log


class TestMemoryLog(LogSuite):
    starts_empty = True
    knows_openings = True
    takes_rubbish = True

    @pytest.fixture
    async def log(self) -> Log:
        self.opened = MemoryLog()
        return self.opened

    async def inject(self, thread: ThreadId) -> Position:
        fields = {"event_id": "rubbish", "type": "thread.created", "version": 1}
        return await self.opened.append_raw({**fields, "thread_id": thread}, b"{}")


class TestSqliteLog(LogSuite):
    starts_empty = True
    knows_openings = True
    survives_reopening = True
    takes_rubbish = True

    @pytest.fixture
    async def log(self, tmp_path: Path) -> AsyncIterator[Log]:
        self.path = tmp_path / "threadlog.db"
        async with contextlib.AsyncExitStack() as self.stack:
            yield await self.reopened()

    async def reopened(self) -> Log:
        await self.stack.aclose()
        return SqliteLog(await self.stack.enter_async_context(opened(self.path)))

    async def inject(self, thread: ThreadId) -> Position:
        """Someone with `sqlite3` at hand, while the runtime runs."""
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            cursor = connection.execute(
                "INSERT INTO events (event_id, type, version, payload_json, thread_id, tenant_id,"
                " actor, occurred_at, source, critical) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ("rubbish", "?", -1, "no json", thread, LOCAL, "\x00", WHEN, "", 7),
            )
        assert cursor.lastrowid is not None
        return Position(cursor.lastrowid)


class TestKafkaLog(LogSuite):
    starts_empty = True
    survives_reopening = True
    takes_rubbish = True

    @pytest.fixture
    async def log(self, kafka_bootstrap: str) -> AsyncIterator[Log]:
        self.config = make_config(kafka_bootstrap)
        await make_topics(self.config)
        async with contextlib.AsyncExitStack() as self.stack:
            yield await self.reopened()

    async def reopened(self) -> Log:
        await self.stack.aclose()
        log = await self.stack.enter_async_context(running_log(self.config))
        return log.partition(Partition(0))

    async def inject(self, thread: ThreadId) -> Position:
        """Someone with a console producer at hand."""
        [position] = append_raw(self.config, [(thread.encode(), [("ce_id", b"?")], b"no json")])
        return position
