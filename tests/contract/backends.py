"""The backends that need more than a constructor: the embedded file, opened and reopened."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from threadlog.adapters.sqlite.file import SqliteFile, open_file
from threadlog.clock import SystemClock
from threadlog.errors import ThreadlogError


def fail_on_fatal(error: ThreadlogError) -> None:
    """No test of a sound file may end its log."""
    pytest.fail(f"the log has failed: {error}")


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteFile]:
    """The file, open for appending."""
    file = await open_file(path, clock=SystemClock(), on_fatal=fail_on_fatal)
    try:
        yield file
    finally:
        await file.close()
