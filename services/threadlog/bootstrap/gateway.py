"""The gateway wired: over a file's services in this process, or over a cluster.

`threadlog up` serves it on loopback and on the socket, for the bearer of the token in a file of
this user, and for the keys of the keys file. `threadlog serve gateway` knows those keys alone.
"""

import asyncio
import errno
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from threadlog.adapters.keys.file import KeysFile
from threadlog.adapters.keys.local import LocalKeys, local_credential
from threadlog.adapters.model_api.renderers import renderer_named
from threadlog.api.reports import ModelEntry
from threadlog.bootstrap.services import Ports
from threadlog.errors import RefusedError, ThreadlogError
from threadlog.events.content import ModelRef
from threadlog.gateway.app import create_app
from threadlog.gateway.auth import LOOPBACK
from threadlog.gateway.freshness import Freshness
from threadlog.gateway.meter import NoGatewayMeter
from threadlog.gateway.ports import LOCAL_KEY_ID, GatewayOptions, GatewayPorts
from threadlog.gateway.server import GatewayServer
from threadlog.ids import Partition, Position, TenantId, ThreadId
from threadlog.limits import GATEWAY_GRACE_MS, KEY_USES_SAVE_MS, LISTEN_BACKLOG
from threadlog.settings import Settings
from threadlog.version import VERSION

API_PORT = 8080


@dataclass(frozen=True, slots=True)
class LocalUser:
    """Who runs the file's runtime: the token that stands for this person, who acts, and with which
    model a thread begins that names none.
    """

    token: str
    actor: str
    model: ModelRef | None = None


def serve_embedded(
    settings: Settings,
    ports: Ports,
    user: LocalUser,
    fingerprints: Mapping[str, str],
    listeners: Sequence[socket.socket],
) -> GatewayServer:
    """The gateway over the services of this process serves until it is stopped."""
    return serve_app(embedded_ports(settings, ports, user, fingerprints), listeners)


def embedded_ports(
    settings: Settings, ports: Ports, user: LocalUser, fingerprints: Mapping[str, str]
) -> GatewayPorts:
    """The gateway's ports over the services of this process."""
    views, log = ports.partition, ports.log

    async def ends(_: Partition) -> tuple[Position, Position]:
        return await log.end(), await views.watermark()

    def home(_: TenantId, __: ThreadId) -> Partition:
        return Partition(0)

    meter = NoGatewayMeter() if ports.counting is None else ports.counting.gateway()
    others = KeysFile(settings.keys_file(), ports.clock)
    fallback = secrets.token_bytes(32)
    return GatewayPorts(
        log=log,
        views=ports.views,
        snapshots=ports.snapshots,
        blobs=ports.blobs,
        notify=ports.notify,
        clock=ports.clock,
        keys=LocalKeys(user.token, local_credential(LOCAL_KEY_ID, user.actor), others),
        freshness=Freshness(ends, home, ports.clock),
        renderer_named=renderer_named,
        options=gateway_options(settings, fingerprints, is_local=True, model=user.model),
        signing_key=lambda: others.signing_key() or fallback,
        stopping=asyncio.Event(),
        meter=meter,
        tracer=ports.tracer,
    )


def gateway_options(
    settings: Settings,
    fingerprints: Mapping[str, str],
    *,
    is_local: bool,
    model: ModelRef | None,
    look_s: float | None = None,
) -> GatewayOptions:
    """What the operator decided."""
    gateway = settings.gateway
    allowed = tuple(map(_entry, gateway.models))
    default = None if model is None else ModelEntry(provider=model.provider, name=model.name)
    if default is None and len(allowed) == 1:
        default = allowed[0]
    is_loopback = gateway.host in LOOPBACK
    hosts = (*gateway.hosts, *LOOPBACK) if is_loopback or gateway.hosts else ()
    return GatewayOptions(
        version=VERSION,
        origins=gateway.origins,
        hosts=hosts,
        models=allowed,
        default_model=default,
        fingerprints=fingerprints,
        is_local=is_local,
        requests_per_minute=gateway.requests_per_minute,
        streams_per_tenant=gateway.streams_per_tenant,
        waits_per_tenant=gateway.waits_per_tenant,
        look_s=look_s,
    )


def _entry(text: str) -> ModelEntry:
    provider, _, name = text.partition("/")
    return ModelEntry(provider=provider, name=name)


def tcp_listener(settings: Settings, *, is_choosy: bool) -> socket.socket:
    """A socket that is bound where the settings say.

    Shapes:  `is_choosy` False: another port will do, where the settings name none and the usual one
             is taken.
    Raises:  RefusedError: it cannot be bound; says what to do.
    """
    gateway = settings.gateway
    port = API_PORT if gateway.port is None else gateway.port
    family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (gateway.host, port), family=family, backlog=LISTEN_BACKLOG, reuse_port=False
        )
    except OSError as error:
        if gateway.port is None and not is_choosy and error.errno == errno.EADDRINUSE:
            free = gateway.model_copy(update={"port": 0})
            return tcp_listener(settings.model_copy(update={"gateway": free}), is_choosy=True)
        raise RefusedError(
            f"the gateway cannot be served on port {port} of {gateway.host}: {_said(error)}; "
            "choose another: THREADLOG_GATEWAY__PORT, 0 for a free one"
        ) from error
    listener.setblocking(False)
    return listener


def _said(error: OSError) -> str:
    """What the system says of it, without what the library adds."""
    return "no such address" if error.errno is None else os.strerror(error.errno)


def address_of(listener: socket.socket) -> str:
    """The address that clients use."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve_app(ports: GatewayPorts, listeners: Sequence[socket.socket]) -> GatewayServer:
    """The gateway serves on these sockets until it is stopped."""
    return GatewayServer(
        create_app(ports), listeners, grace_s=GATEWAY_GRACE_MS / 1_000, stopping=ports.stopping
    )


async def save_uses(keys: KeysFile) -> None:
    """When keys were used last is written down, again and again, as far as that is possible."""
    while True:
        await asyncio.sleep(KEY_USES_SAVE_MS / 1_000)
        try:
            await keys.save_uses()
        except ThreadlogError:
            continue
