"""One thread with one read-only connection: reads run there, never on the event loop."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from threadlog.adapters.sqlite.connect import open_reader
from threadlog.adapters.sqlite.failures import mapped
from threadlog.errors import LogUnavailableError

T = TypeVar("T")


class Reader:
    """Runs functions of a connection one after another; each sees all commits before it began."""

    def __init__(self, file: Path, name: str) -> None:
        """Opens the connection at once.

        Raises:  NotFoundError, RefusedError, LogFileError: as `connect.open_reader`.
        """
        self._file = file
        self._connection = open_reader(file)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"threadlog-{name}")

    async def run(self, read: Callable[[sqlite3.Connection], T]) -> T:
        """What `read` returns.

        Raises:  LogFileError: the file is damaged. LogUnavailableError: closed, or not now.
        """
        try:
            future = self._executor.submit(read, self._connection)
        except RuntimeError as error:  # the executor takes nothing after its shutdown
            raise LogUnavailableError(f"{self._file} was closed") from error
        try:
            return await asyncio.wrap_future(future)
        except sqlite3.Error as error:
            raise mapped(error, self._file) from error

    def close(self) -> None:
        """The reads asked for are done, the thread has ended, the connection is closed."""
        self._executor.shutdown(wait=True)
        self._connection.close()
