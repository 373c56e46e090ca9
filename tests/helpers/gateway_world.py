"""A gateway over memory adapters or any others, reached through a socket or in process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from starlette.types import ASGIApp

from tests.helpers.events import LOCAL, OTHER
from tests.helpers.service_world import World
from threadlog.adapters.model_api.renderers import renderer_named
from threadlog.api.keys import DEFAULT_SCOPES, Credential, Scope
from threadlog.bootstrap.sockets import listen
from threadlog.gateway.app import create_app
from threadlog.gateway.freshness import Freshness
from threadlog.gateway.ports import GatewayOptions, GatewayPorts
from threadlog.gateway.server import GatewayServer
from threadlog.ids import Partition, Position, TenantId, ThreadId
from threadlog.ports.model import Renderer

TOKEN, OTHER_TOKEN, READ_TOKEN = "token-of-local", "token-of-other", "token-that-reads"
BASE = "http://localhost"


def credential(key_id: str, tenant: TenantId, *scopes: Scope) -> Credential:
    return Credential(key_id, tenant, frozenset(scopes), f"key:{key_id}", None)


@dataclass(slots=True)
class DictKeys:
    """Implements `ports.keys.Keys` on a dict that a test changes."""

    tokens: dict[str, Credential] = field(
        default_factory=lambda: {
            TOKEN: credential("aaaaaaaaaaaa", LOCAL, *DEFAULT_SCOPES, "ops:read"),
            OTHER_TOKEN: credential("bbbbbbbbbbbb", OTHER, *DEFAULT_SCOPES, "ops:read"),
            READ_TOKEN: credential("cccccccccccc", LOCAL, "threads:read"),
        }
    )

    def verify(self, token: str) -> Credential | None:
        return self.tokens.get(token)

    def is_valid(self, credential: Credential) -> bool:
        return credential in self.tokens.values()


def gateway_ports(
    world: World,
    options: GatewayOptions | None = None,
    *,
    renderer_named: Callable[[str], Renderer | None] = renderer_named,
) -> GatewayPorts:
    """The ports of a gateway over this world."""

    async def ends(_: Partition) -> tuple[Position, Position]:
        return await world.log.end(), await world.views.watermark()

    def home(_: TenantId, __: ThreadId) -> Partition:
        return Partition(0)

    return GatewayPorts(
        log=world.log,
        views=world.views,
        snapshots=world.snapshots,
        blobs=world.blobs,
        notify=world.notify,
        clock=world.clock,
        keys=DictKeys(),
        freshness=Freshness(ends, home, world.clock),
        renderer_named=renderer_named,
        options=options or GatewayOptions(version="1"),
        signing_key=lambda: b"signing",
        stopping=asyncio.Event(),
    )


@asynccontextmanager
async def asking(
    ports: GatewayPorts, token: str | None = TOKEN, *, app: ASGIApp | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application, in this process."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    transport = httpx2.ASGITransport(app or create_app(ports), raise_app_exceptions=False)
    async with httpx2.AsyncClient(
        transport=transport, base_url=BASE, headers=headers, timeout=30
    ) as client:
        yield client


@asynccontextmanager
async def socket_served(ports: GatewayPorts, folder: Path) -> AsyncIterator[Path]:
    """The gateway behind a socket in `folder`."""
    path = folder / "s.sock"
    server = GatewayServer(create_app(ports), [listen(path)], grace_s=5.0, stopping=ports.stopping)
    try:
        yield path
    finally:
        await server.stop()
