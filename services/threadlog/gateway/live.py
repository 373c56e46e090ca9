"""One follower a thread, however many clients watch it: it reads and encodes each event once.

A client has a bounded queue. Whoever reads too slowly loses deltas first; then it is told to come
back, and resumes from the views without a gap. Nobody is waited for: a client that never reads
slows neither the others nor the thread.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from threadlog.errors import ThreadlogError, TransientError
from threadlog.gateway.frames import (
    DeltaFrame,
    Frame,
    delta_frame,
    event_frame,
    fresh,
)
from threadlog.gateway.freshness import Freshness
from threadlog.gateway.so_far import CLOSING
from threadlog.ids import Seq, TenantId, ThreadId
from threadlog.limits import (
    STREAM_BYTES_MAX,
    STREAM_FRAMES_MAX,
    STREAM_FRESH_MS,
    STREAM_LOST_MS,
)
from threadlog.ports.notify import Frame as Heard
from threadlog.ports.notify import LiveDelta, Notify
from threadlog.ports.views import Reads

_log = logging.getLogger("threadlog.gateway")
_READ_AT_ONCE = 64
_RETRY_S = 0.25
_HEARD_S = 1.0
"""How long a join waits to be heard by whoever tells pieces: without them it goes on, too."""
Key = tuple[TenantId, ThreadId]


class Feed:
    """The queue of one client. `error`: nothing comes any more, for this reason."""

    def __init__(self, dropped: Callable[[str], None], heard: asyncio.Event) -> None:
        self._heard = heard
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._dropped = dropped
        self._filled = asyncio.Event()
        self.is_slow = False
        self.error: ThreadlogError | None = None

    async def heard(self) -> None:
        """Whatever is told from now on is offered, as far as it can be known in a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_S):
                await self._heard.wait()

    def offer(self, frame: Frame) -> None:
        """The frame waits for the client; never blocks."""
        if self.is_slow:
            return
        self._frames.append(frame)
        self._bytes += len(frame.data)
        if self._is_over():
            self._drop_deltas()
        if self._is_over():
            # What waits is given up whole: the client reads it again when it comes back.
            self.is_slow = True
            self._frames.clear()
            self._bytes = 0
        self._filled.set()

    def fail(self, error: ThreadlogError) -> None:
        """Nothing comes any more."""
        self.error = error
        self._filled.set()

    async def wait(self) -> None:
        """Something is there to be taken, or to be told."""
        await self._filled.wait()

    def take(self) -> list[Frame]:
        """Everything that waits, in order."""
        taken = list(self._frames)
        self._frames.clear()
        self._bytes = 0
        if self.error is None and not self.is_slow:
            self._filled.clear()
        return taken

    def _is_over(self) -> bool:
        return len(self._frames) > STREAM_FRAMES_MAX or self._bytes > STREAM_BYTES_MAX

    def _drop_deltas(self) -> None:
        kept: deque[Frame] = deque(f for f in self._frames if not isinstance(f, DeltaFrame))
        for _ in range(len(self._frames) - len(kept)):
            self._dropped("delta")
        self._frames = kept
        self._bytes = sum(len(frame.data) for frame in kept)


@dataclass(eq=False, slots=True)
class _Thread:
    feeds: set[Feed]
    heard: asyncio.Event
    following: asyncio.Task[None]


class Live:
    """Every thread that somebody watches through this process."""

    def __init__(
        self,
        views: Reads,
        notify: Notify,
        freshness: Freshness,
        dropped: Callable[[str], None],
        *,
        look_s: float | None,
    ) -> None:
        """`look_s`: how long frames may be silent before it looks by itself."""
        self._views = views
        self._notify = notify
        self._freshness = freshness
        self._dropped = dropped
        self._look_s = STREAM_FRESH_MS / 1_000 if look_s is None else look_s
        self._threads: dict[Key, _Thread] = {}

    @contextlib.contextmanager
    def join(self, tenant: TenantId, thread: ThreadId) -> Iterator[Feed]:
        """A feed of what comes from now on, until the block ends.

        Effects: listening begins with this call: whoever joins first and then reads misses nothing.
        """
        key = tenant, thread
        watched = self._threads.get(key)
        if watched is None or watched.following.done():
            feeds: set[Feed] = set()
            heard = asyncio.Event()
            following = asyncio.create_task(self._follow(key, feeds, heard))
            watched = self._threads[key] = _Thread(feeds, heard, following)
        feed = Feed(self._dropped, watched.heard)
        watched.feeds.add(feed)
        try:
            yield feed
        finally:
            watched.feeds.discard(feed)
            if not watched.feeds:
                watched.following.cancel()
                if self._threads.get(key) is watched:
                    del self._threads[key]

    async def _follow(self, key: Key, feeds: set[Feed], heard: asyncio.Event) -> None:
        """Whatever comes is offered to every feed; an error of ours ends them all."""
        failure: ThreadlogError = TransientError("the thread is not followed any more: come back")
        try:
            await _Following(self, key, feeds).run(heard)
        except ThreadlogError as error:
            failure = error
        except Exception:  # noqa: BLE001  # the edge of a task that nobody waits for
            _log.exception("following a thread broke off")
        finally:
            for feed in list(feeds):
                feed.fail(failure)

    def listen(self, key: Key) -> AsyncIterator[Heard]:
        """What is told of the thread from now on."""
        return self._notify.listen(*key)

    async def behind_ms(self, key: Key) -> int:
        """How far the views of the thread are behind."""
        return await self._freshness.of(*key)

    @property
    def views(self) -> Reads:
        """Where events are read."""
        return self._views

    @property
    def look_s(self) -> float:
        """How long nothing may be told before it looks by itself."""
        return self._look_s


async def _until_heard(listening: object) -> None:
    """A listener that has to be heard elsewhere first is, or that takes too long."""
    confirmed = getattr(listening, "heard", None)
    if confirmed is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_S):
                await confirmed()


class _Following:
    """Follows one thread from its present head on."""

    def __init__(self, live: Live, key: Key, feeds: set[Feed]) -> None:
        self._live = live
        self._key = key
        self._feeds = feeds
        self._head: int | None = None
        self._told: tuple[int, int] | None = None
        self._told_s = float("-inf")
        self._lost_since_s: float | None = None
        self._moved = asyncio.Event()
        self._pieces: list[LiveDelta] = []
        self._is_looking = False

    async def run(self, heard: asyncio.Event) -> None:
        """Until it is cancelled, or the views are away for too long.

        Effects: `heard` is set when nothing is missed any more, before the first look.
        """
        listening = self._live.listen(self._key)
        hearing: asyncio.Task[None] | None = None
        try:
            await _until_heard(listening)
            heard.set()
            hearing = asyncio.create_task(self._hear(listening))
            while not hearing.done():
                self._moved.clear()
                await self._patiently(self._look)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._live.look_s):
                        await self._moved.wait()
            hearing.result()
        finally:
            if hearing is not None:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
            close = getattr(listening, "aclose", None)
            if close is not None:
                await close()

    async def _hear(self, listening: AsyncIterator[Heard]) -> None:
        """Pieces are offered as they come; while events are read they wait for their place."""
        try:
            async for frame in listening:
                if isinstance(frame, LiveDelta):
                    self._pieces.append(frame)
                    if not self._is_looking:
                        self._offer_pieces()
                else:
                    self._moved.set()
        finally:
            self._moved.set()

    def _offer_pieces(self) -> None:
        pieces, self._pieces = self._pieces, []
        for piece in pieces:
            self._offer(delta_frame(piece))

    async def _patiently(self, look: Callable[[], Awaitable[None]]) -> None:
        """What cannot be read now is read later; not for ever.

        Raises:  TransientError: the views have not answered for `STREAM_LOST_MS`.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                await look()
            except TransientError:
                since = self._lost_since_s = self._lost_since_s or loop.time()
                if loop.time() - since > STREAM_LOST_MS / 1_000:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                self._lost_since_s = None
                return

    async def _look(self) -> None:
        """New events are offered, in order, then how fresh they are."""
        self._is_looking = True
        try:
            await self._read()
        finally:
            self._is_looking = False
            self._offer_pieces()
        await self._tell()

    async def _read(self) -> None:
        tenant, thread = self._key
        if self._head is None:
            row = await self._live.views.thread(tenant, thread)
            self._head = -1 if row is None else row.head
        while True:
            page = await self._live.views.events(
                tenant,
                thread,
                first=Seq(self._head + 1),
                last=Seq(self._head + _READ_AT_ONCE),
                limit=_READ_AT_ONCE,
            )
            for stored in page:
                frame = event_frame(stored)
                if isinstance(stored.event.body, CLOSING):
                    # What was told of a response was told before it was whole.
                    self._offer_pieces()
                self._head = frame.seq
                self._offer(frame)
            if len(page) < _READ_AT_ONCE:
                break

    async def _tell(self) -> None:
        """`fresh`, when it has changed, at most once a second."""
        now_s = asyncio.get_running_loop().time()
        assert self._head is not None
        if now_s - self._told_s < STREAM_FRESH_MS / 1_000:
            return
        state = self._head, await self._live.behind_ms(self._key)
        if state != self._told:
            self._told, self._told_s = state, now_s
            self._offer(fresh(*state))

    def _offer(self, frame: Frame) -> None:
        for feed in list(self._feeds):
            feed.offer(frame)
