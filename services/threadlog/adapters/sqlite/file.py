"""One embedded file, open: its writer, its readers, and those who wait for its commits.

`log`, `views`, `snapshots` and `blobs` are the ports on it. A file that is open for writing must be
held by this process's `lock.FileLock`; that is the caller's part.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from threadlog.adapters.sqlite.feed import Feed, WatermarkFeed
from threadlog.adapters.sqlite.jobs import Job
from threadlog.adapters.sqlite.reader import Reader
from threadlog.adapters.sqlite.writer import Delivery, Writer
from threadlog.clock import Clock
from threadlog.errors import LogUnavailableError, RefusedError, ThreadlogError
from threadlog.ids import Position

POLL_S = 0.025
"""How often a process that only reads looks for new commits. Units: seconds."""


class SqliteFile:
    """An open file; made by `open_file` or `open_read_only`, for the running event loop."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None,
        on_fatal: Callable[[ThreadlogError], None] | None = None,
    ) -> None:
        """Blocks while the file is opened, made or recovered. `clock` None: read-only."""
        self.path = path
        self._loop = asyncio.get_running_loop()
        self._on_fatal = on_fatal
        self._writer: Writer | None = None
        if clock is not None:
            self._writer = Writer(
                path,
                clock=clock,
                deliver=self._post,
                wants_records=lambda: self.feed.has_live,
            )
        with contextlib.ExitStack() as undo:
            if self._writer is not None:
                undo.callback(self._writer.close)
            self.log_reader = Reader(path, "log-reader")
            """Catches up subscribers; apart from `view_reader`, so that no view waits for it."""
            undo.callback(self.log_reader.close)
            self.view_reader = Reader(path, "view-reader")
            undo.pop_all()
        self.feed = Feed(self._writer.head if self._writer else Position(0))
        self.watermark_feed = WatermarkFeed(Position(0))

    @property
    def is_read_only(self) -> bool:
        """Whether this process may not append: another one may do so meanwhile."""
        return self._writer is None

    async def start(self) -> None:
        """Jobs are taken and waiting for a watermark works."""
        watermark = await self.read_watermark()
        self.watermark_feed.advance(watermark)
        if self._writer is not None:
            self._writer.start()

    async def read_watermark(self) -> Position:
        """The stored watermark."""
        return await self.view_reader.run(
            lambda c: Position(c.execute("SELECT position FROM watermark").fetchone()[0])
        )

    def future(self) -> asyncio.Future[object]:
        """What a job reports its outcome through."""
        return self._loop.create_future()

    async def run(self, job: Job) -> object:
        """The job's outcome, after its commit.

        Raises:  RefusedError: the file is open read-only.
                 TransientError: it is unknown, or known not, to have happened.
        """
        if self._writer is None:
            raise RefusedError(f"{self.path} is open read-only")
        self._writer.submit(job)
        return await job.future

    async def close(self) -> None:
        """Everything submitted is done, all who wait were told, nothing of the file is open."""
        closed = LogUnavailableError(f"{self.path} was closed")
        if self._writer is not None:
            await asyncio.to_thread(self._writer.stop)
        # What the writer posted last is delivered before anybody hears of the end.
        await asyncio.sleep(0)
        self.feed.fail(closed)
        self.watermark_feed.fail(closed)
        await asyncio.to_thread(self._close_readers)
        if self._writer is not None:
            # Last, so that it is alone and moves the WAL into the file.
            await asyncio.to_thread(self._writer.close)

    def _close_readers(self) -> None:
        self.log_reader.close()
        self.view_reader.close()

    def _post(self, delivery: Delivery) -> None:
        """Called on the writer's thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver, delivery)
        except RuntimeError:
            # The loop is closed: nobody is left to be told. What was committed stays committed.
            return

    def _deliver(self, delivery: Delivery) -> None:
        for future, outcome in delivery.outcomes:
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        if delivery.landed is not None:
            self.feed.advance(delivery.landed)
        if delivery.watermark is not None:
            self.watermark_feed.advance(delivery.watermark)
        if delivery.fatal is not None:
            self.feed.fail(delivery.fatal)
            self.watermark_feed.fail(delivery.fatal)
            if self._on_fatal is not None:
                self._on_fatal(delivery.fatal)


async def open_file(
    path: Path, *, clock: Clock, on_fatal: Callable[[ThreadlogError], None]
) -> SqliteFile:
    """The file is open for appending; made if it is missing.

    Effects: `on_fatal` is called on the event loop, once, when nothing can be appended any more.
    Raises:  RefusedError, LogFileError: as `connect.open_writer`.
    """
    file = SqliteFile(path, clock=clock, on_fatal=on_fatal)
    await file.start()
    return file


async def open_read_only(path: Path) -> SqliteFile:
    """The file is open for reading, whether or not another process writes it.

    Raises:  NotFoundError, RefusedError, LogFileError: as `connect.open_reader`.
    """
    file = SqliteFile(path, clock=None)
    await file.start()
    return file
