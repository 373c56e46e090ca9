"""The ways to the services of one process: in it, through its socket, over HTTP with a key."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from tests.helpers.embedded import Embedded, InstantTools, embedded
from tests.helpers.events import LOCAL
from tests.helpers.gateway_world import TOKEN, DictKeys, credential
from tests.helpers.raw_http import loopback
from threadlog.api.keys import SCOPES
from threadlog.bootstrap.gateway import LocalUser, address_of, embedded_ports
from threadlog.bootstrap.sockets import listen
from threadlog.client.connection import Connection
from threadlog.client.http import HttpCommands
from threadlog.client.interface import CommandPort
from threadlog.client.reader import HttpReader
from threadlog.gateway.app import create_app
from threadlog.gateway.ports import LOCAL_KEY_ID, GatewayPorts
from threadlog.gateway.server import GatewayServer
from threadlog.ports.model import Model
from threadlog.queries.reading import Reader
from threadlog.settings import Settings

Way = Literal["in process", "socket", "http"]
WAYS: tuple[Way, ...] = get_args(Way)
GRACE_S = 0.5


@dataclass
class Ways:
    """Services that run, and every way to them."""

    runtime: Embedded
    folder: Path
    keys: DictKeys = field(default_factory=DictKeys)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    server: GatewayServer | None = None
    base: str = ""

    @property
    def socket(self) -> Path:
        return self.folder / "s.sock"

    def connection(self, way: Way, key: str = TOKEN) -> Connection:
        """A connection to the gateway, closed with the services."""
        assert way != "in process"
        made = (
            Connection.through(self.socket, key) if way == "socket" else Connection(self.base, key)
        )
        self._stack.push_async_callback(made.close)
        return made

    def commands(self, way: Way, key: str = TOKEN) -> CommandPort:
        return (
            self.runtime.commands
            if way == "in process"
            else HttpCommands(self.connection(way, key))
        )

    def reader(self, way: Way, key: str = TOKEN) -> Reader:
        return (
            self.runtime.reader
            if way == "in process"
            else HttpReader(self.connection(way, key), LOCAL)
        )

    def serve(self) -> None:
        """The gateway is served on the socket and on loopback, the same port as before."""
        settings = Settings(data_dir=self.folder)
        user = LocalUser(TOKEN, "user:ann")
        ports = embedded_ports(settings, self.runtime.services.ports, user, {})
        self._serve(replace(ports, keys=self.keys))

    def _serve(self, ports: GatewayPorts) -> None:
        listener = loopback()
        self.base = address_of(listener)
        self.server = GatewayServer(
            create_app(ports),
            [listen(self.socket), listener],
            grace_s=GRACE_S,
            stopping=ports.stopping,
        )

    async def stop_serving(self) -> None:
        """Nobody answers there any more."""
        server, self.server = self.server, None
        if server is not None:
            await server.stop()

    async def close(self) -> None:
        await self._stack.aclose()
        await self.stop_serving()


@asynccontextmanager
async def ways_to(
    folder: Path, model: Model, tools: InstantTools | None = None
) -> AsyncIterator[Ways]:
    """Services on a file in `folder`, and a gateway over them."""
    async with embedded(folder / "log.db", model, tools) as runtime:
        ways = Ways(runtime, folder)
        ways.keys.tokens[TOKEN] = credential(LOCAL_KEY_ID, LOCAL, *SCOPES)
        ways.serve()
        try:
            yield ways
        finally:
            await ways.close()
