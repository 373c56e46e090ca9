"""What the gateway is made of: it owns nothing, so everything comes from outside."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from threadlog.api.reports import ModelEntry
from threadlog.clock import Clock
from threadlog.commands.service import Commands
from threadlog.gateway.freshness import Freshness
from threadlog.gateway.meter import GatewayMeter, NoGatewayMeter
from threadlog.ids import TenantId
from threadlog.limits import REQUESTS_PER_MINUTE, STREAMS_PER_TENANT, WAITS_PER_TENANT
from threadlog.ports.blobs import SizedBlobs
from threadlog.ports.keys import Keys
from threadlog.ports.log import Appender
from threadlog.ports.model import Renderer
from threadlog.ports.notify import Notify
from threadlog.ports.snapshots import Snapshots
from threadlog.ports.views import Views
from threadlog.queries.reading import Reader
from threadlog.runtime.tracer import NoTracer, Tracer

LOCAL_KEY_ID = "local"
"""The id of the runtime's own token: no key of a file has it, their ids have 12 characters."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What an operator decides.

    Shapes:  `origins`: pages of these origins may use it. `hosts`: the names under which it may be
             addressed; empty: any. `models`: those that threads may use; empty: any.
             `is_local`: it serves one person's own machine, whose folders may be attached.
             `look_s`: how long frames may be silent before it looks by itself; None: none is lost.
    """

    version: str
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    models: tuple[ModelEntry, ...] = ()
    default_model: ModelEntry | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    is_local: bool = False
    requests_per_minute: int = REQUESTS_PER_MINUTE
    streams_per_tenant: int = STREAMS_PER_TENANT
    waits_per_tenant: int = WAITS_PER_TENANT
    look_s: float | None = None


@dataclass(frozen=True, slots=True)
class GatewayPorts:
    """What a gateway reads, appends to, and asks.

    Shapes:  `stopping` is set when it is to end.
             `signing_key`: what page tokens are signed with, equal in all gateways of a cluster.
    """

    log: Appender
    views: Views
    snapshots: Snapshots
    blobs: SizedBlobs
    notify: Notify
    clock: Clock
    keys: Keys
    freshness: Freshness
    renderer_named: Callable[[str], Renderer | None]
    options: GatewayOptions
    signing_key: Callable[[], bytes]
    stopping: asyncio.Event
    meter: GatewayMeter = field(default_factory=NoGatewayMeter)
    tracer: Tracer = field(default_factory=NoTracer)

    def commands(self, tenant: TenantId, actor: str) -> Commands:
        """Commands of this tenant and actor."""
        return Commands(self.log, self.views, self.blobs, self.clock, tenant=tenant, actor=actor)

    def reader(self, tenant: TenantId) -> Reader:
        """Reads of this tenant."""
        return Reader(self.views, self.blobs, self.notify, tenant, look_s=self.options.look_s)
