"""`threadlog serve planner|tool-runner|projection`: one service of a cluster as a process.

Start: settings, broker, topic and Redis are checked; the process joins the group of the living,
then the group that shares the partitions. Stop: the partitions go to others at once; what has
started ends, or is ended after the drain timeout; the group of the living is left last.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from threadlog.adapters.kafka.dead_letters import DeadLetterViews
from threadlog.adapters.kafka.group import KafkaGroup
from threadlog.adapters.kafka.members import KafkaMembers
from threadlog.adapters.sandbox.instances import RunnerFolder
from threadlog.bootstrap.cluster import Cluster, open_cluster
from threadlog.bootstrap.embedded import Notice, arm_faults, checked_tools, die, make_data_folder
from threadlog.bootstrap.metered import MeteredLog
from threadlog.bootstrap.models import MissingModel, close_models, load_models, load_prices
from threadlog.ids import Partition, Position, WorkerId, draw
from threadlog.planner.service import Planner, PlannerPorts
from threadlog.ports.members import Members
from threadlog.ports.tools import Tools
from threadlog.projection.owned import OwnedProjection
from threadlog.projection.service import Projection, ProjectionPorts
from threadlog.runtime.acting import ActorPorts
from threadlog.runtime.assignment import Assignment, PartitionService
from threadlog.runtime.lag import Lag
from threadlog.runtime.load import Loader
from threadlog.runtime.owned import OwnedActor
from threadlog.runtime.shared_fold import SharedFold
from threadlog.settings import Settings
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.server import MetricsServer
from threadlog.telemetry.service import ServiceMeter
from threadlog.telemetry.table import Service
from threadlog.tool_runner.service import SLOTS, ToolRunner
from threadlog.tool_runner.slots import Slots
from threadlog.version import VERSION

ServiceName = Literal["planner", "tool-runner", "projection"]
PORTS: Mapping[ServiceName, int] = {"planner": 9102, "tool-runner": 9103, "projection": 9104}
"""Where each service's metrics are unless the settings say otherwise."""
_SAMPLE_S = 1.0
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
    worker: WorkerId
    metrics: Metrics
    meter: ServiceMeter
    service: Service

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
            SharedFold(),
            self.meter,
        )


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
    instance, label = draw(), _LABELS[name]
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            open_cluster(settings, name, instance, on_fatal=die)
        )
        metrics = Metrics()
        meter = ServiceMeter(metrics, label, cluster.clock.now_ms)
        process = Process(cluster, cluster.config.worker, metrics, meter, label)
        members = KafkaMembers(cluster.config)
        make = await stack.enter_async_context(
            _maker(settings, name, process, members, notice, tools)
        )
        # The living know of this process before it claims anything, and until it has drained.
        await members.start()
        stack.push_async_callback(members.close)
        group = KafkaGroup(cluster.config)
        assignment = Assignment(name, group, make)
        port = PORTS[name] if settings.metrics.port is None else settings.metrics.port
        server = MetricsServer(
            metrics, port=port, host=settings.metrics.host, is_ready=lambda: assignment.is_ready
        )
        stack.callback(server.close)
        await assignment.start()
        sampling = asyncio.create_task(_sample(process, assignment, group))
        stack.callback(sampling.cancel)
        host, bound = server.address
        notice(f"{name} {instance} is in group {cluster.config.group}; metrics on {host}:{bound}")
        gc.freeze()
        try:
            await _until(stop, assignment, members)
        finally:
            await assignment.stop(settings.worker.drain_timeout_ms)


async def _until(stop: asyncio.Event, assignment: Assignment, members: KafkaMembers) -> None:
    """`stop` was set. Raises what ended a service or a membership before."""
    failures = {asyncio.create_task(work) for work in (assignment.failed(), members.failed())}
    waiting = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({*failures, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (*failures, waiting):
        task.cancel()
    for failed in failures & done:
        raise failed.result()


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
        cluster.views.partition(partition),
        cluster.log,
        identity=cluster.identity,
        partition=partition,
        code_version=VERSION,
    )
    ports = ProjectionPorts(
        process.log(partition),
        views,
        process.loader(),
        cluster.notify,
        SharedFold(),
        process.meter,
    )
    return OwnedProjection(Projection(ports))


@asynccontextmanager
async def _planners(settings: Settings, process: Process, members: Members) -> AsyncIterator[Make]:
    cluster = process.cluster
    models = await load_models(settings, None)
    prices, missing = load_prices(settings), MissingModel()

    def make(partition: Partition) -> OwnedActor:
        ports = PlannerPorts(
            process.actor(partition, members),
            models,
            missing,
            cluster.blobs,
            cluster.notify,
            prices,
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
        runner = ToolRunner(ports, tools, cluster.blobs, process.worker, slots)
        return OwnedActor(runner, process.log(partition), cluster.views.partition(partition))

    try:
        yield make
    finally:
        folder.release()


async def _sample(process: Process, assignment: Assignment, group: KafkaGroup) -> None:
    """What operators watch is measured once a second."""
    lag, loop, metrics = Lag(), asyncio.get_running_loop(), process.metrics
    cluster, rebalances = process.cluster, 0
    known: dict[Partition, Position] = {}
    while True:
        await asyncio.sleep(_SAMPLE_S)
        services = assignment.services
        done = {p: s.commit_point or Position(0) for p, s in services.items()}
        with contextlib.suppress(Exception):  # a broker that is away is told by the next line
            ends = {p: await cluster.log.partition(p).end() for p in services}
            records, oldest_s = lag.sample(loop.time(), ends, done)
            metrics.set_lag(cluster.config.group, cluster.config.events_topic, records, oldest_s)
        for partition, at in done.items():
            if known.get(partition) != at:
                metrics.progress(cluster.config.group, partition, cluster.clock.now_ms() / 1_000)
        metrics.revoked(cluster.config.group, known.keys() - done.keys())
        known = dict(done)
        while rebalances < group.rebalances:
            metrics.rebalanced(cluster.config.group)
            rebalances += 1
        actors = [s.actor for s in services.values() if isinstance(s, OwnedActor)]
        metrics.lanes(process.service, sum(len(a.worker.lanes) for a in actors))
        metrics.window(process.service, sum(a.worker.ledger.open_count for a in actors))
