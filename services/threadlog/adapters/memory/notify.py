"""The notify port in memory, of one process: what the embedded runtime uses."""

import asyncio
from collections import deque
from weakref import WeakSet

from threadlog.ids import TenantId, ThreadId
from threadlog.ports.notify import Frame

_BACKLOG_MAX = 1_024
"""Frames that a slow listener may fall behind; then it loses the oldest."""


class MemoryNotify:
    """Implements `ports.notify.Notify`. To be used on one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[TenantId, ThreadId], WeakSet[Listener]] = {}

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        listeners = self._listeners.get((tenant, thread))
        if listeners is None:
            return
        for listener in list(listeners):
            if listener.is_closed:
                listeners.discard(listener)
            else:
                listener.offer(frame)
        if not listeners:
            del self._listeners[tenant, thread]

    def listen(self, tenant: TenantId, thread: ThreadId) -> "Listener":
        listener = Listener()
        self._listeners.setdefault((tenant, thread), WeakSet()).add(listener)
        return listener


class Listener:
    """Frames from its creation on. Closing it ends it; so does dropping it."""

    def __init__(self) -> None:
        self._backlog: deque[Frame] = deque(maxlen=_BACKLOG_MAX)
        self._waiter: asyncio.Future[None] | None = None
        self.is_closed = False

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> Frame:
        while not self._backlog:
            if self.is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._backlog.popleft()

    async def aclose(self) -> None:
        """No more frames come, and whoever waits for one is told so."""
        self.is_closed = True
        self._backlog.clear()
        self._wake()

    def offer(self, frame: Frame) -> None:
        """`frame` is the newest to be had; the oldest is lost when there are too many."""
        self._backlog.append(frame)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
