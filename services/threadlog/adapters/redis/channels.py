"""One connection a process that listens to any number of channels, and finds its way back.

What is told while the connection is away is lost. So a listener is called with None whenever its
channel is newly listened to, the first time and after each gap: read then what may have changed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from redis.asyncio.connection import AbstractConnection

from threadlog.adapters.redis.connect import CONNECT_MS, RedisClient
from threadlog.adapters.redis.failures import FOREIGN

_log = logging.getLogger("threadlog.redis")
PING_S = 5
"""A connection that is silent for so long is asked, and given up when silent once more."""
RETRY_S = 0.2
Handler = Callable[[bytes | None], None]


@dataclass(eq=False, slots=True)
class Listener:
    """Somebody who listens to a channel. `heard`: Redis has confirmed that it listens."""

    channel: str
    handler: Handler
    heard: asyncio.Event


class Channels:
    """Listens for everybody of one process. To be used on one event loop."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._listeners: dict[str, set[Listener]] = {}
        self._asked: set[str] = set()
        self._heard: set[str] = set()
        self._changed = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    def add(self, channel: str, handler: Handler) -> Listener:
        """`handler` is called with what is told on the channel, from soon on, until `remove`."""
        listener = Listener(channel, handler, asyncio.Event())
        self._listeners.setdefault(channel, set()).add(listener)
        if channel in self._heard:
            self._confirm(listener)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        self._changed.set()
        return listener

    def remove(self, listener: Listener) -> None:
        """It is called no more. Repeating it does nothing."""
        others = self._listeners.get(listener.channel)
        if others is None:
            return
        others.discard(listener)
        if not others:
            del self._listeners[listener.channel]
            self._changed.set()

    async def aclose(self) -> None:
        """The connection is closed, and nobody is called any more."""
        self._listeners.clear()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def _serve(self) -> None:
        """Connects and listens, again and again, while anybody listens."""
        while self._listeners:
            connection = self._client.connection()
            connect: Callable[[], Awaitable[None]] = connection.connect
            try:
                async with asyncio.timeout(CONNECT_MS / 1_000):
                    await connect()
                await self._listen(connection)
            except FOREIGN as error:
                _log.debug("live channels: %s", type(error).__name__)
            finally:
                self._asked.clear()
                self._heard.clear()
                for listener in [each for group in self._listeners.values() for each in group]:
                    listener.heard.clear()
                with contextlib.suppress(*FOREIGN):
                    await connection.disconnect(nowait=True)
            await asyncio.sleep(RETRY_S)

    async def _listen(self, connection: AbstractConnection) -> None:
        """Reads and asks at the same time; the first that fails ends both."""
        tasks = [
            asyncio.create_task(self._read(connection)),
            asyncio.create_task(self._ask(connection)),
        ]
        self._changed.set()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, connection: AbstractConnection) -> None:
        """Redis is told which channels are wanted, whenever that changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = set(self._listeners)
            new, old = sorted(wanted - self._asked), sorted(self._asked - wanted)
            self._asked = wanted
            self._heard &= wanted
            if new:
                await connection.send_command("SUBSCRIBE", *new, check_health=False)
            if old:
                await connection.send_command("UNSUBSCRIBE", *old, check_health=False)

    async def _read(self, connection: AbstractConnection) -> None:
        is_asked = False
        while True:
            reply = await connection.read_response(
                timeout=PING_S, disconnect_on_error=False, push_request=True
            )
            if reply is None and is_asked:
                return
            is_asked = reply is None
            if reply is None:
                await connection.send_command("PING", check_health=False)
            elif isinstance(reply, list) and len(reply) == 3:  # noqa: PLR2004  # what, where, which
                self._handle(reply[0], reply[1], reply[2])

    def _handle(self, kind: object, channel: object, data: object) -> None:
        if not isinstance(channel, bytes):
            return
        name = channel.decode(errors="replace")
        if kind == b"subscribe" and name in self._asked:
            self._heard.add(name)
        for listener in list(self._listeners.get(name, ())):
            if kind == b"subscribe":
                self._confirm(listener)
            elif kind == b"message" and isinstance(data, bytes):
                listener.handler(data)

    def _confirm(self, listener: Listener) -> None:
        listener.heard.set()
        listener.handler(None)
