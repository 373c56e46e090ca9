"""The log port on the embedded file."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

from threadlog.adapters.sqlite.feed import Subscriber
from threadlog.adapters.sqlite.file import POLL_S, SqliteFile
from threadlog.adapters.sqlite.jobs import AppendJob
from threadlog.adapters.sqlite.rows import EVENT, event_row, read_rows, record
from threadlog.errors import RejectedError
from threadlog.events.codec import to_cloud_event
from threadlog.events.envelope import Event
from threadlog.ids import Position
from threadlog.limits import APPEND_EVENTS_MAX, EVENT_BYTES_MAX, KIB, READ_EVENTS_MAX
from threadlog.ports.log import Receipt, Record

_ENVELOPE_BYTES_MAX = 4 * KIB
"""More than any envelope whose members keep their bounds; only longer bodies are encoded to see."""
_OLD = "events e WHERE e.sequence > ? ORDER BY e.sequence LIMIT ?"


class SqliteLog:
    """Implements `ports.log.Log`: group commit, synchronous=FULL, read back after the commit."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        check_batch(events)
        try:
            rows = [event_row(event) for event in events]
        except UnicodeDecodeError as error:
            raise RejectedError("the body is not UTF-8") from error
        job = AppendJob(
            self._file.future(),
            (events[0].thread_id, events[0].tenant_id),
            events,
            [event.event_id for event in events],
            rows,
        )
        # The writer answers an AppendJob with its receipts.
        return cast(Sequence[Receipt], await self._file.run(job))

    async def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        feed = self._file.feed
        subscriber = feed.join(after)
        try:
            while True:
                if batch := await self._next(subscriber):
                    yield batch
        finally:
            feed.leave(subscriber)

    async def end(self) -> Position:
        return await self._file.log_reader.run(
            lambda c: Position(
                c.execute("SELECT coalesce(max(sequence), 0) FROM events").fetchone()[0]
            )
        )

    async def _next(self, subscriber: Subscriber) -> Sequence[Record]:
        """The next records, live or from the file; none: look again."""
        feed = self._file.feed
        if subscriber.is_live or subscriber.queue:
            return await feed.next(subscriber)
        feed.check()
        head = feed.head
        records = await self._read(subscriber.position)
        if records:
            subscriber.position = records[-1].position
        elif self._file.is_read_only:
            await asyncio.sleep(POLL_S)
        else:
            # Nothing behind its place although the head is further on: only a hole made by hand.
            subscriber.position = max(subscriber.position, head)
            feed.go_live(subscriber)
        return records

    async def _read(self, after: Position) -> Sequence[Record]:
        return await self._file.log_reader.run(
            lambda c: [record(row) for row in read_rows(c, EVENT, _OLD, (after, READ_EVENTS_MAX))]
        )


def check_batch(events: Sequence[Event]) -> None:
    """Nothing, when the log takes these events in one append.

    Raises:  RejectedError: none, too many, of several threads, or one of them too large.
    """
    if not 1 <= len(events) <= APPEND_EVENTS_MAX:
        raise RejectedError(f"an append holds 1 to {APPEND_EVENTS_MAX} events, not {len(events)}")
    key = events[0].key
    for event in events:
        if event.key != key:
            raise RejectedError("an append holds events of one thread")
        if len(event.data) > EVENT_BYTES_MAX - _ENVELOPE_BYTES_MAX:
            size = len(to_cloud_event(event))
            if size > EVENT_BYTES_MAX:
                raise RejectedError(
                    f"event {event.event_id} has {size} bytes, more than {EVENT_BYTES_MAX}; "
                    "move its payload to blobs"
                )
