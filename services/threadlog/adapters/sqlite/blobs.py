"""The blobs port on the embedded file."""

import asyncio
import sqlite3
from collections.abc import Sequence
from hashlib import sha256 as digest

from threadlog.adapters.sqlite.file import SqliteFile
from threadlog.adapters.sqlite.jobs import BlobJob
from threadlog.clock import Clock
from threadlog.events.content import BlobRef
from threadlog.ids import TenantId
from threadlog.limits import MIB

_HASH_INLINE_MAX = MIB // 4
"""Bytes hashed on the event loop: about 0.2 ms; more goes to a thread."""
_GET = "SELECT content FROM blobs WHERE sha256 = ? AND tenant_id = ?"

_SIZE = "SELECT length(content) FROM blobs WHERE sha256 = ? AND tenant_id = ?"


class SqliteBlobs:
    """Implements `ports.blobs.Blobs`: contents lie beside the events and share their commits."""

    def __init__(self, file: SqliteFile, *, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    async def put(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        if not contents:
            return []
        if sum(len(content) for content, _ in contents) > _HASH_INLINE_MAX:
            references = await asyncio.to_thread(_references, contents)
        else:
            references = _references(contents)
        now_ms = self._clock.now_ms()
        rows = [
            (tenant, ref.sha256, ref.media_type, ref.bytes, now_ms, content)
            for ref, (content, _) in zip(references, contents, strict=True)
        ]
        await self._file.run(BlobJob(self._file.future(), rows))
        return references

    async def size(self, tenant: TenantId, sha256: str) -> int | None:
        def read(connection: sqlite3.Connection) -> int | None:
            row = connection.execute(_SIZE, (sha256, tenant)).fetchone()
            return None if row is None else int(row[0])

        return await self._file.view_reader.run(read)

    async def get(self, tenant: TenantId, sha256: str) -> bytes | None:
        def read(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute(_GET, (sha256, tenant)).fetchone()
            if row is None or digest(row[0]).hexdigest() != sha256:
                return None
            content: bytes = row[0]
            return content

        return await self._file.view_reader.run(read)


def _references(contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
    return [
        BlobRef(sha256=digest(content).hexdigest(), bytes=len(content), media_type=media_type)
        for content, media_type in contents
    ]
