"""The blobs suite over memory, SQLite and a folder."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.contract.blobs_suite import BlobsSuite
from tests.helpers.events import LOCAL
from threadlog.adapters.blobs.files import FileBlobs
from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.clock import ManualClock
from threadlog.ports.blobs import Blobs


class TestMemoryBlobs(BlobsSuite):
    can_alter = True

    @pytest.fixture
    async def blobs(self) -> Blobs:
        self.opened = MemoryBlobs()
        return self.opened

    async def alter(self, sha256: str, content: bytes) -> None:
        self.opened.contents[LOCAL, sha256] = content


class TestSqliteBlobs(BlobsSuite):
    survives_reopening = True
    can_alter = True

    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> AsyncIterator[Blobs]:
        self.path = tmp_path / "threadlog.db"
        self.clock = ManualClock()
        async with contextlib.AsyncExitStack() as self.stack:
            yield await self.reopened()

    async def reopened(self) -> Blobs:
        await self.stack.aclose()
        file = await self.stack.enter_async_context(opened(self.path))
        return SqliteBlobs(file, clock=self.clock)

    async def alter(self, sha256: str, content: bytes) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            update = "UPDATE blobs SET content = ? WHERE sha256 = ?"
            assert connection.execute(update, (content, sha256)).rowcount == 1

    async def test_putting_again_moves_the_time_of_the_last_touch(self, blobs: Blobs) -> None:
        touched = []
        for _ in range(2):
            await blobs.put(LOCAL, [(b"content", "text/plain")])
            with contextlib.closing(sqlite3.connect(self.path)) as connection:
                touched += connection.execute("SELECT touched_at_ms FROM blobs").fetchall()
            self.clock.advance(60_000)
        assert touched[1][0] - touched[0][0] == 60_000


class TestFileBlobs(BlobsSuite):
    survives_reopening = True
    can_alter = True

    @pytest.fixture
    async def blobs(self, tmp_path: Path) -> Blobs:
        self.root = tmp_path / "shared" / "blobs"
        return await self.reopened()

    async def reopened(self) -> Blobs:
        return FileBlobs(self.root)

    async def alter(self, sha256: str, content: bytes) -> None:
        path = self.root / LOCAL / sha256[:2] / sha256
        assert path.is_file()
        await asyncio.to_thread(path.write_bytes, content)

    async def test_putting_again_moves_the_time_and_writes_nothing(self, blobs: Blobs) -> None:
        [ref] = await blobs.put(LOCAL, [(b"content", "text/plain")])
        path = self.root / LOCAL / ref.sha256[:2] / ref.sha256
        os.utime(path, (1_000_000, 1_000_000))
        before = path.stat()
        await blobs.put(LOCAL, [(b"content", "text/plain")])
        assert path.stat().st_ino == before.st_ino
        assert path.stat().st_mtime > before.st_mtime
