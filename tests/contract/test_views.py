"""The suites of views, usage and snapshots over memory, SQLite and Redis."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.contract.redis_parts import redis_parts
from tests.contract.snapshots_suite import SnapshotsSuite
from tests.contract.usage_suite import UsageSuite
from tests.contract.views_suite import Parts, ViewsSuite
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews


class TestMemoryViews(ViewsSuite, UsageSuite, SnapshotsSuite):
    @pytest.fixture
    async def parts(self) -> Parts:
        log, snapshots = MemoryLog(), MemorySnapshots()
        views = MemoryViews(log, snapshots)
        return Parts(log, views, views, snapshots)


class TestSqliteViews(ViewsSuite, UsageSuite, SnapshotsSuite):
    @pytest.fixture
    async def parts(self, tmp_path: Path) -> AsyncIterator[Parts]:
        async with opened(tmp_path / "threadlog.db") as file:
            views = SqliteViews(file)
            yield Parts(SqliteLog(file), views, views, SqliteSnapshots(file))


class TestRedisViews(ViewsSuite, UsageSuite, SnapshotsSuite):
    @pytest.fixture
    async def parts(self, redis_url: str) -> AsyncIterator[Parts]:
        async with redis_parts(redis_url) as redis:
            yield redis.parts()
