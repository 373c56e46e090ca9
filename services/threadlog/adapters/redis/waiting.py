"""Waiting for a watermark: told on a channel, and asked for now and then in case nobody told."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from threadlog.adapters.redis.channels import Channels, Listener
from threadlog.errors import ThreadlogError, TransientError
from threadlog.ids import Position

POLL_MS = 250


class Watermark:
    """All who wait for the watermark of one partition; it is read once for all of them."""

    def __init__(
        self, channels: Channels, channel: str, read: Callable[[], Awaitable[Position]]
    ) -> None:
        """`channel`: where each move is told; what is told there is not believed, only read for."""
        self._channels = channels
        self._channel = channel
        self._read = read
        self._moved = asyncio.Event()
        self._waiting: dict[asyncio.Future[None], Position] = {}
        self._following: asyncio.Task[None] | None = None
        self._listener: Listener | None = None

    async def reaches(self, position: Position) -> None:
        """The stored watermark is at least `position`, for as long as it takes."""
        if self._following is None and await self._is_there(position):
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[reached] = position
        self.tell()
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        try:
            await reached
        finally:
            self._waiting.pop(reached, None)

    def tell(self) -> None:
        """It may have moved."""
        self._moved.set()

    async def aclose(self) -> None:
        """Whoever waits is told that nobody follows any more."""
        if self._listener is not None:
            self._channels.remove(self._listener)
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _is_there(self, position: Position) -> bool:
        try:
            return await self._read() >= position
        except TransientError:
            return False

    async def _follow(self) -> None:
        """Reads when told, and at the latest every `POLL_MS`, while somebody waits."""
        if self._listener is None:
            self._listener = self._channels.add(self._channel, lambda _: self.tell())
        failure: ThreadlogError = TransientError("nobody follows the watermark any more")
        try:
            while self._waiting:
                self._moved.clear()
                with contextlib.suppress(TransientError):
                    self._settle(await self._read())
                if self._waiting:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(POLL_MS / 1_000):
                            await self._moved.wait()
        except ThreadlogError as error:
            failure = error
        finally:
            self._following = None
            for future in self._waiting:
                if not future.done():
                    future.set_exception(failure)

    def _settle(self, stored: Position) -> None:
        for future, position in self._waiting.items():
            if position <= stored and not future.done():
                future.set_result(None)
        self._waiting = {f: p for f, p in self._waiting.items() if not f.done()}
