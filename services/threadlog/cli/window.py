"""Which events of a thread a read is about: every list is a window, newest first."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadlog.ids import ThreadId
from threadlog.ports.notify import LiveDelta
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
)
from threadlog.queries.reading import Reader


class Window:
    """Which events are asked for: the newest `limit`, or from seq `first` on, or both."""

    def __init__(self, first: int | None, limit: int | None, newest: int) -> None:
        self.first = first
        self.limit = limit if limit is not None or first is not None else newest

    def first_of(self, row: ThreadRow) -> int:
        """The first seq that is asked for."""
        if self.first is not None:
            return self.first
        return max(0, row.head + 1 - (self.limit or 0))

    def holds(self, stored: StoredEvent, first: int) -> bool:
        """Whether the event is not beyond the limit."""
        return self.limit is None or (stored.seq or 0) < first + self.limit


async def window_events(reader: Reader, row: ThreadRow, window: Window) -> list[StoredEvent]:
    """The events in the window, in the order of their seq."""
    first = window.first_of(row)
    found = []
    async for stored in reader.events(row.thread_id, first):
        if not window.holds(stored, first):
            break
        found.append(stored)
    return found


@asynccontextmanager
async def followed(
    reader: Reader, thread: ThreadId, first: int
) -> AsyncIterator[AsyncIterator[StoredEvent | LiveDelta]]:
    """`Reader.follow`, whose listening ends with the block."""
    stream = reader.follow(thread, first)
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
