"""The log port in memory: a list, and everybody who follows it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from threadlog.errors import RecordError, RejectedError
from threadlog.events.codec import decode_event, to_cloud_event
from threadlog.events.envelope import Event
from threadlog.events.thread import ThreadCreated
from threadlog.ids import Position
from threadlog.limits import APPEND_EVENTS_MAX, EVENT_BYTES_MAX, READ_EVENTS_MAX
from threadlog.ports.log import Receipt, Record


class MemoryLog:
    """Implements `ports.log.Log`. Positions are places in `entries`, counted from 1."""

    def __init__(self) -> None:
        self.entries: list[Record] = []
        self._keys: set[str] = set()
        self._grown = asyncio.Condition()

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        if not 1 <= len(events) <= APPEND_EVENTS_MAX:
            raise RejectedError(f"an append holds 1 to {APPEND_EVENTS_MAX} events")
        if len({event.key for event in events}) > 1:
            raise RejectedError("an append holds events of one thread")
        if any(len(to_cloud_event(event)) > EVENT_BYTES_MAX for event in events):
            raise RejectedError("an event is too large; move its payload to blobs")
        receipts = []
        for event in events:
            # Read back as from any log: the body is what its bytes say, not what the caller holds.
            read = decode_event(
                {
                    name: getattr(event, name)
                    for name in Event.model_fields
                    if name not in ("body", "data")
                },
                event.data,
            )
            receipts.append(Receipt(event.event_id, self._add(event.key, read, None)))
        await self._tell()
        return receipts

    async def append_raw(self, fields: Mapping[str, Any], data: bytes) -> Position:
        """A record with this envelope is in the log, usable or not: for tests of bad records."""
        key = f"{fields.get('tenant_id')}/{fields.get('thread_id')}"
        try:
            position = self._add(key, decode_event(fields, data), None)
        except RecordError as error:
            position = self._add(key, None, str(error))
        await self._tell()
        return position

    async def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        at: int = after
        while True:
            async with self._grown:
                while len(self.entries) <= at:
                    await self._grown.wait()
            batch = self.entries[at : at + READ_EVENTS_MAX]
            at += len(batch)
            yield batch

    async def end(self) -> Position:
        return Position(len(self.entries))

    def _add(self, key: str, event: Event | None, problem: str | None) -> Position:
        position = Position(len(self.entries) + 1)
        is_creation = event is not None and event.type == ThreadCreated.TYPE
        opens_stream = is_creation and key not in self._keys
        self._keys.add(key)
        self.entries.append(Record(position, key, event, problem, opens_stream))
        return position

    async def _tell(self) -> None:
        async with self._grown:
            self._grown.notify_all()
