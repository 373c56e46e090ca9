"""`threadlog serve planner|tool-runner|projection`: one service of a cluster as a process.

Start: settings, broker, topic and Redis are checked; the process joins the group of the living,
then the group that shares the partitions. Stop: the partitions go to others at once; what has
started ends, or is ended after the drain timeout; the group of the living is left last.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from threadlog.adapters.kafka.dead_letters import DeadLetterViews
from threadlog.adapters.kafka.group import KafkaGroup
from threadlog.adapters.kafka.members import KafkaMembers
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.adapters.kafka.usage import UsageViews
from threadlog.adapters.sandbox.instances import RunnerFolder
from threadlog.bootstrap.actor_sample import ActorSample
from threadlog.bootstrap.cluster import Cluster, open_cluster
from threadlog.bootstrap.embedded import Notice, arm_faults, checked_tools, die, make_data_folder
from threadlog.bootstrap.log_watch import LogWatch
from threadlog.bootstrap.loop_health import Health, serve_pages
from threadlog.bootstrap.metered import MeteredLog
from threadlog.bootstrap.models import (
    PROVIDERS,
    MissingModel,
    close_models,
    load_models,
    load_prices,
    named_models,
)
from threadlog.bootstrap.sampling import broken_threads, show_clients, watch_log
from threadlog.bootstrap.traced import TracedViews, traced
from threadlog.clock import SystemClock
from threadlog.errors import TransientError
from threadlog.ids import Partition, Position, WorkerId, draw
from threadlog.limits import LANES_MAX
from threadlog.planner.service import Planner, PlannerPorts
from threadlog.ports.members import Members
from threadlog.ports.tools import Tools
from threadlog.projection.owned import OwnedProjection
from threadlog.projection.service import Projection, ProjectionPorts
from threadlog.runtime.acting import ActorPorts
from threadlog.runtime.assignment import Assignment, PartitionService
from threadlog.runtime.lag import Lag, is_moving
from threadlog.runtime.load import Loader
from threadlog.runtime.owned import OwnedActor
from threadlog.runtime.shared_fold import SharedFold
from threadlog.runtime.tracer import Tracer
from threadlog.settings import Settings
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.planner import TurnMeter
from threadlog.telemetry.scope import mark_process
from threadlog.telemetry.service import ServiceMeter
from threadlog.telemetry.table import Service
from threadlog.tool_runner.service import SLOTS, ToolRunner
from threadlog.tool_runner.slots import Slots
from threadlog.version import VERSION

ServiceName = Literal["planner", "tool-runner", "projection"]
PORTS: Mapping[ServiceName, int] = {"planner": 9102, "tool-runner": 9103, "projection": 9104}
"""Where each service's metrics are unless the settings say otherwise."""
_SAMPLE_S = 1.0
_LANES_MIN = 32
_LABELS: Mapping[ServiceName, Service] = {
    "planner": "planner",
    "tool-runner": "tool_runner",
    "projection": "projection",
}

Make = Callable[[Partition], PartitionService]


@dataclass(frozen=True, slots=True)
class Process:
    """What every service of one process shares."""

    cluster: Cluster
    metrics: Metrics
    meter: ServiceMeter
    service: Service
    tracer: Tracer

    @property
    def worker(self) -> WorkerId:
        """What claims of this process are made as."""
        return self.cluster.config.worker

    def log(self, partition: Partition) -> MeteredLog:
        """One partition of the log, its appends counted."""
        log, clock = self.cluster.log.partition(partition), self.cluster.clock
        return MeteredLog(log, self.metrics, self.service, clock)

    def loader(self) -> Loader:
        """Loads threads from the views."""
        return Loader(self.cluster.views, self.cluster.snapshots)

    def actor(self, partition: Partition, members: Members) -> ActorPorts:
        """What an actor on one partition needs."""
        return ActorPorts(
            self.log(partition),
            self.loader(),
            members,
            self.cluster.clock,
            SharedFold(remembers=False),
            self.meter,
            self.lanes_max,
            self.tracer,
        )

    @property
    def lanes_max(self) -> int:
        """Lanes of one partition, so that a process that has all of them keeps its bound."""
        return max(_LANES_MIN, LANES_MAX // self.cluster.config.partitions)


async def serve_service(
    settings: Settings,
    name: ServiceName,
    notice: Notice,
    stop: asyncio.Event,
    *,
    tools: Tools | None = None,
) -> None:
    """The service ran until `stop` was set, and left in order.

    Shapes:  `tools` None: those of the settings, checked; else what a tool-runner runs calls with.
    Raises:  UsageError, RefusedError: it must not run like this; the message says what to run.
             TransientError: the broker or Redis cannot be reached. Any error that ended it.
    """
    settings.check_cluster()
    arm_faults(settings)
    instance = draw()
    async with AsyncExitStack() as stack:
        mark_process(name, instance)
        tracer = stack.enter_context(traced(settings, name, instance, SystemClock()))
        cluster = await stack.enter_async_context(
            open_cluster(settings, name, instance, on_fatal=die)
        )
        process = _process(cluster, name, settings.revision, tracer)
        members = KafkaMembers(cluster.config)
        make = await stack.enter_async_context(
            _maker(settings, name, process, members, notice, tools)
        )
        # The living know of this process before it claims anything, and until it has drained.
        await members.start()
        stack.push_async_callback(members.close)
        group = KafkaGroup(cluster.config)
        assignment = Assignment(name, group, make)
        health = Health(cluster.clock)
        server = serve_pages(settings, PORTS[name], process.metrics, health)
        stack.callback(server.close)
        for work in (
            _sample(process, assignment, group, health),
            watch_log(cluster, process.metrics, process.service, assignment),
        ):
            stack.callback(asyncio.create_task(work).cancel)
        host, bound = server.address
        drain_ms = settings.worker.drain_timeout_ms
        failure: Exception | None = None
        watch = LogWatch(KafkaTopics(cluster.config), cluster.identity)
        try:
            if await _unless(stop, assignment.start()):
                notice(
                    f"{name} {instance} is in group {cluster.config.group}; "
                    f"metrics on {host}:{bound}"
                )
                gc.freeze()
                failure, is_gone = await _until(stop, assignment, members, watch)
                # Who is not among the living is taken for dead, and of a log that was replaced
                # nothing is true any more: nothing may run on.
                drain_ms = 0 if is_gone else drain_ms
        finally:
            await assignment.stop(drain_ms)
        if failure is not None:
            raise failure


def _process(cluster: Cluster, name: ServiceName, revision: str, tracer: Tracer) -> Process:
    """What the services of this process share; what an alert waits for is shown from the start."""
    metrics, label = Metrics(revision=revision), _LABELS[name]
    metrics.log.expect(cluster.config.topics if name == "projection" else (), reads=True)
    meter = ServiceMeter(metrics, label, cluster.clock.now_ms)
    return Process(cluster, metrics, meter, label, tracer)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether `work` was done before `stop` was set; else it was cancelled."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    is_done = working.done()
    for task in (working, waiting):
        task.cancel()
    await asyncio.gather(working, waiting, return_exceptions=True)
    if is_done:
        working.result()
    return is_done


async def _until(
    stop: asyncio.Event, assignment: Assignment, members: KafkaMembers, log: LogWatch
) -> tuple[Exception | None, bool]:
    """What ended this service before `stop` was set, and whether nothing of it may run on."""
    failed = asyncio.create_task(assignment.failed())
    gone = asyncio.create_task(members.failed())
    replaced = asyncio.create_task(log.failed())
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({failed, gone, replaced, waiting}, return_when=asyncio.FIRST_COMPLETED)
    ended = next((task.result() for task in (gone, replaced, failed) if task.done()), None)
    is_gone = gone.done() or replaced.done()
    for task in (failed, gone, replaced, waiting):
        task.cancel()
    return ended, is_gone


@asynccontextmanager
async def _maker(
    settings: Settings,
    name: ServiceName,
    process: Process,
    members: Members,
    notice: Notice,
    tools: Tools | None,
) -> AsyncIterator[Make]:
    """What makes the service of a partition, with all that it needs beside the cluster."""
    match name:
        case "projection":
            yield lambda partition: _projection(process, partition)
        case "planner":
            async with _planners(settings, process, members) as make:
                yield make
        case "tool-runner":
            async with _tool_runners(settings, process, members, notice, tools) as make:
                yield make


def _projection(process: Process, partition: Partition) -> OwnedProjection:
    cluster = process.cluster
    views = DeadLetterViews(
        UsageViews(cluster.views.partition(partition), cluster.log, cluster.identity, partition),
        cluster.log,
        identity=cluster.identity,
        partition=partition,
        code_version=VERSION,
    )
    ports = ProjectionPorts(
        process.log(partition),
        TracedViews(views, process.tracer, cluster.clock),
        process.loader(),
        cluster.notify,
        SharedFold(remembers=False),
        process.meter,
        process.lanes_max,
    )
    return OwnedProjection(Projection(ports))


@asynccontextmanager
async def _planners(settings: Settings, process: Process, members: Members) -> AsyncIterator[Make]:
    cluster = process.cluster
    models = await load_models(settings, None)
    process.metrics.models.allow(named_models(settings), PROVIDERS)
    prices, missing = load_prices(settings), MissingModel()

    def make(partition: Partition) -> OwnedActor:
        ports = PlannerPorts(
            process.actor(partition, members),
            models,
            missing,
            cluster.blobs,
            cluster.notify,
            prices,
            TurnMeter(process.metrics),
        )
        planner = Planner(ports, process.worker)
        return OwnedActor(planner, process.log(partition), cluster.views.partition(partition))

    try:
        yield make
    finally:
        await close_models(models)


@asynccontextmanager
async def _tool_runners(
    settings: Settings,
    process: Process,
    members: Members,
    notice: Notice,
    tools: Tools | None,
) -> AsyncIterator[Make]:
    cluster = process.cluster
    make_data_folder(settings)
    folder = RunnerFolder.claim(settings.data_folder() / "running" / "cluster", process.worker)
    if settings.sandbox == "off":
        notice("warning: THREADLOG_SANDBOX=off, commands run WITHOUT a sandbox, as this user")
    tools = tools or await checked_tools(settings, folder.path)
    # Nothing that a dead runner of this machine started runs any more when its claim is settled.
    await folder.settle_others()
    slots = Slots(SLOTS)

    def make(partition: Partition) -> OwnedActor:
        ports = process.actor(partition, members)
        runner = ToolRunner(
            ports, tools, cluster.blobs, process.worker, slots, folder.settle_others
        )
        return OwnedActor(runner, process.log(partition), cluster.views.partition(partition))

    try:
        yield make
    finally:
        folder.release()


async def _sample(
    process: Process, assignment: Assignment, group: KafkaGroup, health: Health
) -> None:
    """What operators watch is measured once a second."""
    lag, loop, metrics = Lag(), asyncio.get_running_loop(), process.metrics
    cluster, rebalances = process.cluster, 0
    known: dict[Partition, Position] = {}
    records: dict[int, int] = {}
    service = process.service
    actors_shown = None if service == "projection" else ActorSample(metrics, service)
    while True:
        health.beat(assignment.waits_for)
        await asyncio.sleep(_SAMPLE_S)
        services = assignment.services
        done = {p: point for p, point in assignment.points.items() if point is not None}
        has_kafka = has_redis = True
        try:
            ends = {p: await cluster.log.partition(p).end() for p in done}
            records, oldest_s = lag.sample(loop.time(), ends, done)
            metrics.set_lag(cluster.config.group, cluster.config.events_topic, records, oldest_s)
        except TransientError:
            has_kafka = False
        try:
            await cluster.views.partition(Partition(0)).watermark()
        except TransientError:
            has_redis = False
        metrics.up("kafka", has_kafka)
        metrics.up("redis", has_redis)
        for partition, at in done.items():
            if is_moving(known.get(partition), at, records.get(partition)):
                metrics.progress(cluster.config.group, partition, cluster.clock.now_ms() / 1_000)
        metrics.revoked(cluster.config.group, known.keys() - done.keys())
        known = dict(done)
        while rebalances < group.rebalances:
            metrics.rebalanced(cluster.config.group)
            rebalances += 1
        actors = [s.actor for s in services.values() if isinstance(s, OwnedActor)]
        if actors_shown is not None:
            actors_shown.sample(actors, cluster.clock.mono_ms())
        metrics.quarantined(broken_threads(services.values()))
        show_clients(cluster, metrics)
