"""The notify port on Redis: a channel a thread, one connection that listens, one that tells.

Redis away loses frames and nothing else: telling never waits and never fails, and listening finds
its way back. Whenever a thread's channel is newly heard, at first and after each gap, its listeners
are given the thread's present head, so that what was told before is not missed: whoever listens
first and then reads sees everything.
"""

import asyncio
import weakref
from collections import deque
from collections.abc import Sequence

from threadlog.adapters.redis import frames, rows
from threadlog.adapters.redis.channels import Channels, Listener
from threadlog.adapters.redis.connect import Command, RedisClient
from threadlog.adapters.redis.frames import decode_frame, encode_frame
from threadlog.adapters.redis.layout import Keys, home_of, keys_of
from threadlog.errors import ThreadlogError
from threadlog.ids import TenantId, ThreadId
from threadlog.limits import LIVE_KEPT_MS, LIVE_PIECES_MAX
from threadlog.ports.log import LogIdentity
from threadlog.ports.notify import Advanced, Frame, LiveDelta, SoFar

_BACKLOG_MAX = 1_024
"""Frames that a slow listener may fall behind; then it loses the oldest."""
_OUTBOX_MAX = 4_096
"""Frames that wait to be told; then the oldest is lost."""
_TOLD_AT_ONCE = 256
RETRY_S = 0.2


class RedisNotify:
    """Implements `ports.notify.Notify`. To be used on one event loop."""

    def __init__(self, client: RedisClient, channels: Channels, identity: LogIdentity) -> None:
        self._client = client
        self._channels = channels
        self._identity = identity
        self._outbox: deque[tuple[Keys, Frame]] = deque(maxlen=_OUTBOX_MAX)
        self._filled = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None
        self._reading: set[asyncio.Task[None]] = set()

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        self._outbox.append((self._keys(tenant, thread), frame))
        self._filled.set()
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    async def so_far(self, tenant: TenantId, thread: ThreadId) -> SoFar | None:
        keys = self._keys(tenant, thread)
        try:
            [data] = await self._client.batch([("GET", keys.of_thread("said"))])
        except ThreadlogError:
            return None
        return frames.so_far(data) if isinstance(data, bytes) else None

    def listen(self, tenant: TenantId, thread: ThreadId) -> "LiveListener":
        keys = self._keys(tenant, thread)
        live = LiveListener()
        # The listener may be dropped without a word: nothing here keeps it.
        known = weakref.ref(live)

        def heard(data: bytes | None) -> None:
            listening = known()
            if listening is None:
                return
            if data is None:
                listening.is_current = False
                task = asyncio.create_task(self._show(known, keys, tenant, thread))
                self._reading.add(task)
                task.add_done_callback(self._reading.discard)
            elif (frame := decode_frame(data)) is not None:
                listening.offer(frame)

        listener = self._channels.add(keys.live, heard)
        live.begin(self._channels, listener)
        return live

    async def aclose(self) -> None:
        """Nothing is told any more."""
        tasks = [*self._reading, *([self._telling] if self._telling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keys(self, tenant: TenantId, thread: ThreadId) -> Keys:
        home = home_of(self._identity, tenant, thread)
        return keys_of(self._identity, home).of(tenant, thread)

    async def _tell(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._outbox:
                count = min(len(self._outbox), _TOLD_AT_ONCE)
                commands = _commands([self._outbox.popleft() for _ in range(count)])
                try:
                    await self._client.batch(commands)
                except ThreadlogError:
                    # These are lost. Those that come meanwhile wait for Redis, the newest of them.
                    await asyncio.sleep(RETRY_S)

    async def _show(
        self,
        known: "weakref.ref[LiveListener]",
        keys: Keys,
        tenant: TenantId,
        thread: ThreadId,
    ) -> None:
        """The listener sees where the thread is now, unless it has been told already."""
        try:
            [data] = await self._client.batch([("HGET", keys.of_thread("row"), "row")])
            row = None if data is None else rows.decode_row(data, tenant, thread)
        except ThreadlogError:
            return
        listening = known()
        if row is not None and listening is not None and not listening.is_current:
            listening.offer(Advanced(row.head, row.open_turn, row.status == "idle"))


def _commands(told: Sequence[tuple[Keys, Frame]]) -> list[Command]:
    """Frames are told; pieces of a response are kept, too, for those who come later."""
    commands: list[Command] = []
    kept: set[str] = set()
    for keys, frame in told:
        if isinstance(frame, LiveDelta) and frame.call_id is None:
            # Kept first: who joins in between has it twice, and knows that, not never.
            name = keys.of_thread("said")
            if frame.n == 0:
                commands.append(("SET", name, frames.begun(frame) + frames.piece(frame)))
            elif frame.n < LIVE_PIECES_MAX:
                commands.append(("APPEND", name, frames.piece(frame)))
            kept.add(name)
        commands.append(("PUBLISH", keys.live, encode_frame(frame)))
    commands += (("PEXPIRE", name, LIVE_KEPT_MS) for name in sorted(kept))
    return commands


class LiveListener:
    """Frames from its creation on. Closing it ends it; so does dropping it.

    `is_current`: it was given the thread's head since its channel was last newly heard.
    """

    def __init__(self) -> None:
        self._backlog: deque[Frame] = deque(maxlen=_BACKLOG_MAX)
        self._waiter: asyncio.Future[None] | None = None
        self._heard = asyncio.Event()
        self._is_closed = False
        self.is_current = False

    def begin(self, channels: Channels, listener: Listener) -> None:
        """It listens as this one, until it is closed or dropped."""
        self._heard = listener.heard
        self._end = weakref.finalize(self, channels.remove, listener)
        self._end.atexit = False

    def __aiter__(self) -> "LiveListener":
        return self

    async def __anext__(self) -> Frame:
        while not self._backlog:
            if self._is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._backlog.popleft()

    @property
    def is_heard(self) -> bool:
        """Whether Redis has confirmed that it listens, on a connection that is still good."""
        return self._heard.is_set()

    async def heard(self) -> None:
        """Redis has confirmed that it listens."""
        await self._heard.wait()

    async def aclose(self) -> None:
        """No more frames come, and whoever waits for one is told so."""
        self._end()
        self._is_closed = True
        self._backlog.clear()
        self._wake()

    def offer(self, frame: Frame) -> None:
        """`frame` is the newest to be had; the oldest is lost when there are too many."""
        if self._is_closed:
            return
        self.is_current = self.is_current or isinstance(frame, Advanced)
        self._backlog.append(frame)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
