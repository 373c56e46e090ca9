"""`threadlog serve gateway`: the gateway of a cluster as a process. It owns nothing.

Start: settings, broker, topic and Redis are checked, then the address is served. Stop: no
connection is taken any more, streams are told to connect elsewhere, what was taken is answered.
"""

import asyncio
import gc
import logging
import resource
import secrets
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import replace

from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.adapters.keys.file import KeysFile
from threadlog.adapters.model_api.renderers import renderer_named
from threadlog.bootstrap.cluster import Cluster, open_cluster
from threadlog.bootstrap.embedded import Notice, arm_faults, die
from threadlog.bootstrap.gateway import (
    address_of,
    gateway_options,
    save_uses,
    serve_app,
    tcp_listener,
)
from threadlog.bootstrap.log_watch import LogWatch
from threadlog.bootstrap.loop_health import Health, serve_pages
from threadlog.bootstrap.metered import MeteredAppender
from threadlog.bootstrap.models import known_model
from threadlog.bootstrap.sampling import show_clients, watch_log
from threadlog.bootstrap.traced import traced
from threadlog.clock import SystemClock
from threadlog.errors import ThreadlogError, TransientError
from threadlog.gateway.freshness import Freshness
from threadlog.gateway.ports import GatewayPorts
from threadlog.ids import Partition, Position, TenantId, ThreadId, draw, partition_of
from threadlog.limits import CONNECTIONS_MAX
from threadlog.settings import Settings
from threadlog.telemetry.gateway import HttpMeter
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.scope import mark_process

_log = logging.getLogger("threadlog.gateway")
SERVICE = "gateway"
METRICS_PORT = 9101
_SAMPLE_S = 1.0
_LOOK_S = 1.0


async def serve_gateway(settings: Settings, notice: Notice, stop: asyncio.Event) -> None:
    """The gateway ran until `stop` was set, and left in order.

    Raises:  UsageError, RefusedError: it must not run like this; the message says what to do.
             TransientError: the broker or Redis cannot be reached. Any error that ended it.
    """
    settings.check_cluster()
    arm_faults(settings)
    _raise_files()
    async with AsyncExitStack() as stack:
        instance = draw()
        mark_process(SERVICE, instance)
        tracer = stack.enter_context(traced(settings, SERVICE, instance, SystemClock()))
        cluster = await stack.enter_async_context(
            open_cluster(settings, SERVICE, instance, on_fatal=die)
        )
        metrics = Metrics(revision=settings.revision)
        keys = KeysFile(settings.keys_file(), cluster.clock)
        metrics.expect("gateway")
        metrics.log.expect(cluster.config.topics, reads=False)
        ports = replace(_ports(settings, cluster, metrics, keys), tracer=tracer)
        listener = tcp_listener(settings, is_choosy=True)
        stack.callback(listener.close)
        health = Health(cluster.clock)
        pages = serve_pages(settings, METRICS_PORT, metrics, health)
        stack.callback(pages.close)
        stack.push_async_callback(keys.save_uses)
        watching = watch_log(cluster, metrics, "gateway", None)
        for work in (_beat(health, ports), _sample(cluster, metrics), save_uses(keys), watching):
            task = asyncio.create_task(work)
            stack.callback(task.cancel)
        server = serve_app(ports, [listener])
        stack.push_async_callback(server.stop)
        host, port = pages.address
        has_keys = bool(keys.records())
        notice(f"gateway on {address_of(listener)}; metrics on {host}:{port}")
        if not has_keys:
            notice(f"no key yet in {settings.keys_file()}: threadlog keys create --name NAME")
        gc.freeze()
        failure = await _until(stop, LogWatch(KafkaTopics(cluster.config), cluster.identity))
        ports.stopping.set()
    if failure is not None:
        raise failure


def _raise_files() -> None:
    """As many connections as this process may have: each of them is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS_MAX
    if hard != resource.RLIM_INFINITY:
        wanted = min(hard, wanted)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _ports(settings: Settings, cluster: Cluster, metrics: Metrics, keys: KeysFile) -> GatewayPorts:
    log, views = cluster.log, cluster.views

    async def ends(partition: Partition) -> tuple[Position, Position]:
        return await log.end_of(partition), await views.partition(partition).watermark()

    def home(tenant: TenantId, thread: ThreadId) -> Partition:
        return partition_of(f"{tenant}/{thread}", cluster.identity.partitions)

    fallback = secrets.token_bytes(32)
    return GatewayPorts(
        log=MeteredAppender(log, metrics, "gateway", cluster.clock),
        views=views,
        snapshots=cluster.snapshots,
        blobs=cluster.blobs,
        notify=cluster.notify,
        clock=cluster.clock,
        keys=keys,
        freshness=Freshness(ends, home, cluster.clock, cluster.identity.partitions),
        renderer_named=renderer_named,
        options=gateway_options(
            settings, {}, is_local=False, model=known_model(settings, None), look_s=_LOOK_S
        ),
        signing_key=lambda: keys.signing_key() or fallback,
        stopping=asyncio.Event(),
        meter=HttpMeter(metrics),
    )


async def _beat(health: Health, ports: GatewayPorts) -> None:
    """The loop runs. Whether others answer says nothing of that."""
    while True:
        health.beat("stopping" if ports.stopping.is_set() else None)
        await asyncio.sleep(_SAMPLE_S)


async def _sample(cluster: Cluster, metrics: Metrics) -> None:
    """What operators watch is measured about once a second."""
    partition = Partition(0)
    while True:
        await asyncio.sleep(_SAMPLE_S)
        metrics.up("kafka", await _answers(cluster.log.end_of(partition)))
        show_clients(cluster, metrics)
        metrics.up("redis", await _answers(cluster.views.partition(partition).watermark()))


async def _answers(asked: Awaitable[object]) -> bool:
    try:
        await asked
    except TransientError:
        return False
    except ThreadlogError as error:
        _log.error("%s", error)
        return False
    return True


async def _until(stop: asyncio.Event, watch: LogWatch) -> Exception | None:
    """What ended the gateway before `stop` was set; None: it was told to end."""
    replaced, waiting = asyncio.create_task(watch.failed()), asyncio.create_task(stop.wait())
    await asyncio.wait({replaced, waiting}, return_when=asyncio.FIRST_COMPLETED)
    failure = replaced.result() if replaced.done() else None
    for task in (replaced, waiting):
        task.cancel()
    return failure
