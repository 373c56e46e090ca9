"""What the writer's commits mean for those who wait on the event loop.

Everything here runs on the loop, so it needs no lock. Records reach a subscriber either live, as
batches that all subscribers share, or from the file; the seam between the two is one comparison of
positions. A subscriber that is too far behind loses its place among the live ones and reads the
file again: nobody waits for it, and its queue is bounded.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from threadlog.errors import LogUnavailableError, ThreadlogError
from threadlog.ids import Position
from threadlog.limits import MIB, READ_EVENTS_MAX
from threadlog.ports.log import Record

_QUEUE_RECORDS_MAX = 4 * READ_EVENTS_MAX
_QUEUE_BYTES_MAX = 16 * MIB
"""What one slow subscriber may hold in memory before it reads from the file instead."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What one commit, or several, added to the log.

    Shapes:  `head`: the last durable position now. `records`: every record behind the head of the
             `Landed` before, or None when they were not read back: read the file. `payload_bytes`:
             the size of their bodies.
    """

    head: Position
    records: Sequence[Record] | None
    payload_bytes: int = 0


@dataclass(eq=False, slots=True)
class Subscriber:
    """One reader's place in the log: `position` is the last record it has taken."""

    position: Position
    is_live: bool = False
    queue: deque[Landed] = field(default_factory=deque)
    queued_records: int = 0
    queued_bytes: int = 0
    waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """The subscriber looks again."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def offer(self, landed: Landed) -> None:
        """`landed` is queued, or the subscriber is told to read the file."""
        records = landed.records
        count = 0 if records is None else len(records)
        if (
            records is None
            or self.queued_records + count > _QUEUE_RECORDS_MAX
            or self.queued_bytes + landed.payload_bytes > _QUEUE_BYTES_MAX
        ):
            self.is_live = False
        else:
            self.queue.append(landed)
            self.queued_records += count
            self.queued_bytes += landed.payload_bytes
        self.wake()

    def take(self) -> list[Record]:
        """The queued records it has not seen, `READ_EVENTS_MAX` or so; none: the queue is empty."""
        taken: list[Record] = []
        while self.queue and len(taken) < READ_EVENTS_MAX:
            landed = self.queue.popleft()
            records = landed.records or ()
            self.queued_records -= len(records)
            self.queued_bytes -= landed.payload_bytes
            # What the file already gave this subscriber at the seam comes again here.
            if records and records[0].position > self.position:
                taken.extend(records)
            else:
                taken.extend(r for r in records if r.position > self.position)
            self.position = max(self.position, landed.head)
        return taken


class Feed:
    """The live end of the log."""

    def __init__(self, head: Position) -> None:
        self.head = head
        """Every record up to here was offered to the live subscribers."""
        self.has_live = False
        """Read by the writer's thread: nobody is live, so nothing needs to be read back."""
        self._subscribers: set[Subscriber] = set()
        self._failure: ThreadlogError | None = None

    def join(self, after: Position) -> Subscriber:
        """A new subscriber, which starts by reading the file."""
        subscriber = Subscriber(after)
        self._subscribers.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """The subscriber is forgotten."""
        self._subscribers.discard(subscriber)
        self._count()

    def go_live(self, subscriber: Subscriber) -> bool:
        """Whether it is live now: only one that has everything up to the head may be."""
        if subscriber.position < self.head:
            return False
        subscriber.is_live = True
        self._count()
        return True

    async def next(self, subscriber: Subscriber) -> list[Record]:
        """The next live records; none: it is no longer live and must read the file.

        Raises:  LogUnavailableError: the log was closed or has failed.
        """
        while True:
            if taken := subscriber.take():
                return taken
            self.check()
            if not subscriber.is_live:
                return []
            subscriber.waiter = asyncio.get_running_loop().create_future()
            await subscriber.waiter

    def advance(self, landed: Landed) -> None:
        """The live subscribers are offered what was added."""
        self.head = max(self.head, landed.head)
        for subscriber in self._subscribers:
            if subscriber.is_live:
                subscriber.offer(landed)
        self._count()

    def fail(self, failure: ThreadlogError) -> None:
        """Every subscriber raises, once it has taken what was durable before."""
        self._failure = self._failure or failure
        for subscriber in self._subscribers:
            subscriber.wake()

    def check(self) -> None:
        """Nothing, while the log is open and sound.

        Raises:  LogUnavailableError: it is not.
        """
        if self._failure is not None:
            raise LogUnavailableError(str(self._failure)) from self._failure

    def _count(self) -> None:
        self.has_live = any(s.is_live for s in self._subscribers)


class WatermarkFeed:
    """Who waits for which watermark."""

    def __init__(self, watermark: Position) -> None:
        self.watermark = watermark
        self._waiting: list[tuple[Position, asyncio.Future[None]]] = []
        self._failure: ThreadlogError | None = None

    async def wait(self, position: Position) -> None:
        """The committed watermark has reached `position`.

        Raises:  LogUnavailableError: the log was closed or has failed.
        """
        if self.watermark >= position:
            return
        if self._failure is not None:
            raise LogUnavailableError(str(self._failure)) from self._failure
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((position, waiter))
        await waiter

    def advance(self, watermark: Position) -> None:
        """Those whose position was reached go on; a watermark may also move back (a rebuild)."""
        self.watermark = watermark
        still = []
        for position, waiter in self._waiting:
            if waiter.done():
                continue
            if position <= watermark:
                waiter.set_result(None)
            else:
                still.append((position, waiter))
        self._waiting = still

    def fail(self, failure: ThreadlogError) -> None:
        """Everyone who still waits raises."""
        self._failure = self._failure or failure
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(LogUnavailableError(str(failure)))
        self._waiting.clear()
