"""What a consumer's thread has read, on its way to those who follow the log on the event loop.

Two threads touch a `Subscriber`, and each field belongs to one of them: the reader counts what it
gave, the loop what was taken. What lies between is bounded in records and in bytes; a subscriber
that is full is not read for until a quarter is left, and holds up nobody else.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from threadlog.errors import ThreadlogError
from threadlog.ids import Partition, Position
from threadlog.limits import MIB, READ_EVENTS_MAX
from threadlog.ports.log import Record

_QUEUE_RECORDS_MAX = 4 * READ_EVENTS_MAX
_QUEUE_BYTES_MAX = 8 * MIB
_LOW = 4
"""A full queue is filled again from a quarter on."""


class Batch:
    """Records of one partition, and the bytes of their values."""

    __slots__ = ("payload_bytes", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.payload_bytes = 0


class Subscriber:
    """One reader's place in one partition."""

    def __init__(self, partition: Partition, after: Position, wake: Callable[[], None]) -> None:
        self.partition = partition
        self._wake_reader = wake
        # The reader's.
        self.told: Position = after
        """Everything up to here was given, or is known to be no record."""
        self.is_full = False
        self.is_paused = False
        self._given_records = 0
        self._given_bytes = 0
        # The loop's.
        self._queue: deque[Batch] = deque()
        self._taken_records = 0
        self._taken_bytes = 0
        self._failure: ThreadlogError | None = None
        self._waiter: asyncio.Future[None] | None = None

    # -- on the reader's thread

    def count(self, batch: Batch) -> None:
        """The batch is about to be offered."""
        self._given_records += len(batch.records)
        self._given_bytes += batch.payload_bytes

    def judge_fill(self) -> bool:
        """Whether no more may be read for it now."""
        records = self._given_records - self._taken_records
        payload = self._given_bytes - self._taken_bytes
        share = _LOW if self.is_full else 1
        self.is_full = records * share >= _QUEUE_RECORDS_MAX or payload * share >= _QUEUE_BYTES_MAX
        return self.is_full

    # -- on the loop

    def offer(self, batch: Batch) -> None:
        """The batch can be taken."""
        self._queue.append(batch)
        self._wake()

    def fail(self, failure: ThreadlogError) -> None:
        """`failure` is raised once everything offered before was taken."""
        self._failure = self._failure or failure
        self._wake()

    async def take(self) -> list[Record]:
        """The next records, at least one, at most `READ_EVENTS_MAX`."""
        while not self._queue:
            if self._failure is not None:
                raise self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        taken: list[Record] = []
        while self._queue and len(taken) + len(self._queue[0].records) <= READ_EVENTS_MAX:
            batch = self._queue.popleft()
            taken = taken + batch.records if taken else batch.records
            self._taken_bytes += batch.payload_bytes
        self._taken_records += len(taken)
        if self.is_full:
            self._wake_reader()
        return taken

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
