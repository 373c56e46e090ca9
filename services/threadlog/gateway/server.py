"""Serving the gateway on a socket that is already bound, without touching signals."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from threadlog.commands.service import Commands
from threadlog.gateway.app import create_app


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class GatewayServer:
    """A gateway that serves until it is stopped."""

    def __init__(
        self,
        commands: Commands,
        listener: socket.socket,
        version: str,
        models: dict[str, str],
    ) -> None:
        config = uvicorn.Config(
            create_app(commands, version, models),
            log_level="warning",
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def stop(self) -> None:
        """Requests that were taken are answered; no other one is taken."""
        self._server.should_exit = True
        await self._task
