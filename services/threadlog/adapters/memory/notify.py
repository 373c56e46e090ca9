"""The notify port in memory, of one process: what the embedded runtime uses."""

import asyncio
from collections import OrderedDict, deque
from weakref import WeakSet

from threadlog.ids import TenantId, ThreadId
from threadlog.limits import LIVE_PIECES_MAX
from threadlog.ports.notify import Frame, LiveDelta, SoFar

_BACKLOG_MAX = 1_024
"""Frames that a slow listener may fall behind; then it loses the oldest."""

_RESPONSES_MAX = 1_024
"""Responses under way whose pieces are kept; then the oldest is forgotten."""


class MemoryNotify:
    """Implements `ports.notify.Notify`. To be used on one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[TenantId, ThreadId], WeakSet[Listener]] = {}
        self._said: OrderedDict[tuple[TenantId, ThreadId], list[LiveDelta]] = OrderedDict()

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        self._remember(tenant, thread, frame)
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

    async def so_far(self, tenant: TenantId, thread: ThreadId) -> SoFar | None:
        pieces = self._said.get((tenant, thread))
        if not pieces:
            return None
        first = pieces[0]
        text, thinking = (
            "".join(p.text for p in pieces if p.kind == kind) for kind in ("text", "thinking")
        )
        return SoFar(first.turn_id, first.step, first.attempt, len(pieces), text, thinking)

    def _remember(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        """Pieces of the newest response are kept while the thread is busy."""
        key = tenant, thread
        if isinstance(frame, LiveDelta):
            if frame.call_id is not None:
                return
            if frame.n == 0:
                self._said[key] = [frame]
                self._said.move_to_end(key)
                if len(self._said) > _RESPONSES_MAX:
                    self._said.popitem(last=False)
                return
            pieces = self._said.get(key)
            if pieces is not None and len(pieces) == frame.n < LIVE_PIECES_MAX:
                pieces.append(frame)
        elif frame.is_idle:
            self._said.pop(key, None)

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
