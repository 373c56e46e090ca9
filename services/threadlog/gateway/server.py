"""Serving an application on sockets that are already bound, without touching signals.

From the stop on no connection is taken; what was taken is answered, or cut when the grace is over.
"""

import asyncio
import socket
from collections.abc import Sequence

import uvicorn
from starlette.types import ASGIApp

from threadlog.clock import Clock, SystemClock
from threadlog.gateway.connection import GatewayConnection
from threadlog.gateway.peers import ConnectionBounds, Peers
from threadlog.limits import GATEWAY_END_MS, HEADER_BYTES_MAX, LISTEN_BACKLOG


class GatewayServer:
    """A gateway that serves until it is stopped. `stopping` is set first thing of that."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[socket.socket],
        *,
        grace_s: float,
        bounds: ConnectionBounds | None = None,
        clock: Clock | None = None,
        stopping: asyncio.Event | None = None,
    ) -> None:
        """`grace_s`: what the requests under way may take from the stop on.

        Shapes:  `stopping`: the event that the application looks at; None: one of its own.
        """
        self.stopping = stopping or asyncio.Event()
        self._grace_s = grace_s
        self._clock = clock or SystemClock()
        self._peers = Peers(bounds or ConnectionBounds(), self.stopping)
        self._config = uvicorn.Config(
            app,
            http=GatewayConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        )
        self._config.load()
        self._servers: list[asyncio.Server] = []
        self._starting = asyncio.create_task(self._start(listeners))
        self._stopping: asyncio.Task[None] | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether no further request is taken."""
        return self.stopping.is_set()

    async def stop(self) -> None:
        """Requests that were taken are answered; no other one is taken.

        Effects: whatever is not over after `grace_s` is cut. Returns within a second more.
        """
        self.stopping.set()
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def add(self, listener: socket.socket) -> None:
        """Connections are taken there, too."""
        listener.setblocking(False)
        if listener.family != socket.AF_UNIX:
            # Its connections inherit it. asyncio sets it on sockets alone that were made for TCP by
            # name; without it a second small piece of an answer waits 40 ms for the client's ACK.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, sock=listener, backlog=LISTEN_BACKLOG)
        self._servers.append(server)

    async def _start(self, listeners: Sequence[socket.socket]) -> None:
        for listener in listeners:
            await self.add(listener)

    def _connection(self) -> GatewayConnection:
        return GatewayConnection(self._config, self._peers, self._clock)

    async def _stop(self) -> None:
        try:
            await self._starting
        finally:
            for server in self._servers:
                server.close()
        for peer in self._peers.all_open():
            peer.begin_stop()
        gone = asyncio.create_task(self._peers.gone())
        done, _ = await asyncio.wait([gone], timeout=self._grace_s)
        if not done:
            for peer in self._peers.all_open():
                peer.cut()
            for task in self._peers.tasks:
                task.cancel()
            await asyncio.wait([gone], timeout=GATEWAY_END_MS / 1_000)
            gone.cancel()
