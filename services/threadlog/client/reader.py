"""Reads and live following through a gateway: what `queries.reading.Reader` does, from afar."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Self

from threadlog.client.connection import Connection, Pause
from threadlog.client.reads import HttpBlobs, HttpReads
from threadlog.client.stream import ThreadStream
from threadlog.events.turn import TurnFinished
from threadlog.ids import EventId, TenantId, ThreadId
from threadlog.ports.notify import Frame, LiveDelta, SoFar
from threadlog.ports.views import StoredEvent
from threadlog.queries.reading import Reader, TurnResult


class HttpReader(Reader):
    """Reads of the tenant of the key."""

    def __init__(
        self, connection: Connection, tenant: TenantId, *, pause: Pause = asyncio.sleep
    ) -> None:
        """`tenant`: as the gateway says."""
        reads = HttpReads(connection)
        super().__init__(reads, HttpBlobs(connection, reads), _Unheard(), tenant)
        self._connection = connection
        self._pause = pause

    async def follow(
        self, thread: ThreadId, first: int = 0
    ) -> AsyncIterator[StoredEvent | LiveDelta]:
        """Accepted events from seq `first` on and live deltas between them.

        Shapes:  events come without gap or repeat; deltas may be lost. Number 0 of a response
                 takes the place of what came before of it: joining late, it is the text so far.
        Raises:  NotFoundError: there is no such thread. What `ThreadStream.items` raises.
        """
        # A cursor beyond the head is unknown to a gateway.
        after = min(first - 1, (await self.thread(thread)).head)
        stream = ThreadStream(self._connection, thread, after, pause=self._pause)
        async with aclosing(stream.items()) as items:
            async for item in items:
                is_early = isinstance(item, StoredEvent) and (item.seq or 0) < first
                if not is_early:
                    yield item

    async def turn_result(self, thread: ThreadId, message: EventId, first: int) -> TurnResult:
        """The result of the turn that admits `message`, an accepted one with seq `first`.

        Effects: waits as long as it takes; bound it outside.
        """
        stream = ThreadStream(self._connection, thread, first - 1, pause=self._pause)
        async with aclosing(stream.items()) as items:
            async for item in items:
                if isinstance(item, StoredEvent) and isinstance(item.event.body, TurnFinished):
                    result = await self.find_result(thread, message, first)
                    if result is not None:
                        return result
        raise AssertionError("the stream does not end before its turn")


class _Unheard:
    """Implements `ports.notify.Notify`: all that is live comes through the stream instead."""

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        return

    async def so_far(self, tenant: TenantId, thread: ThreadId) -> SoFar | None:
        return None

    def listen(self, tenant: TenantId, thread: ThreadId) -> AsyncIterator[Frame]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        never: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        return await never
