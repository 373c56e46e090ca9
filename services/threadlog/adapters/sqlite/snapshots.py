"""The snapshots port on the embedded file: one row a thread, written with the views."""

import sqlite3

from threadlog.adapters.sqlite.file import SqliteFile
from threadlog.ids import Position, Seq, TenantId, ThreadId
from threadlog.ports.snapshots import Snapshot

_NEWEST = (
    "SELECT seq, position, fold_version, sha256, state FROM snapshots"
    " WHERE thread_id = ? AND tenant_id = ?"
)


class SqliteSnapshots:
    """Implements `ports.snapshots.Snapshots`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def newest(self, tenant: TenantId, thread: ThreadId) -> Snapshot | None:
        def read(connection: sqlite3.Connection) -> Snapshot | None:
            row = connection.execute(_NEWEST, (thread, tenant)).fetchone()
            if row is None:
                return None
            seq, position, fold_version, sha256, state = row
            return Snapshot(
                tenant, thread, Seq(seq), Position(position), fold_version, sha256, state
            )

        return await self._file.view_reader.run(read)
