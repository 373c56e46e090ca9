"""The three services in one process, over whatever ports they are given."""

import asyncio
import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from threadlog.bootstrap.traced import TracedViews
from threadlog.clock import Clock
from threadlog.gateway.meter import GatewayMeter
from threadlog.ids import Position, ThreadId, WorkerId
from threadlog.limits import DRAIN_TIMEOUT_MS
from threadlog.planner.meter import NoPlannerMeter, PlannerMeter
from threadlog.planner.prices import NO_PRICES, Prices
from threadlog.planner.service import Planner, PlannerPorts
from threadlog.ports.blobs import SizedBlobs
from threadlog.ports.log import Log
from threadlog.ports.members import Members
from threadlog.ports.model import Model
from threadlog.ports.notify import Notify
from threadlog.ports.snapshots import Snapshots
from threadlog.ports.tools import Tools
from threadlog.ports.views import (
    PartitionViews,
    Views,
)
from threadlog.projection.service import GATHER_MS, Projection, ProjectionPorts
from threadlog.runtime.acting import ActorPorts
from threadlog.runtime.load import Loader
from threadlog.runtime.meter import Meter
from threadlog.runtime.shared_fold import SharedFold
from threadlog.runtime.tracer import NoTracer, Tracer
from threadlog.tool_runner.service import SLOTS, ToolRunner
from threadlog.tool_runner.slots import Slots

_log = logging.getLogger("threadlog.services")


class Counting(Protocol):
    """Where the services of one process count."""

    def actor(self, ports: ActorPorts, service: Literal["planner", "tool_runner"]) -> ActorPorts:
        """The same ports, with what is appended and done counted."""
        ...

    def projection(self) -> Meter:
        """The counters of the projection."""
        ...

    def turns(self) -> PlannerMeter:
        """What the planner counts beside."""
        ...

    def gateway(self) -> GatewayMeter:
        """The counters of the gateway."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """Everything the services need of the world.

    Shapes:  `slots`: calls that run at a time. `gather_ms`: as `Projection` has it. `counting`:
             where the services count; None: nowhere.
    """

    log: Log
    views: Views
    partition: PartitionViews
    snapshots: Snapshots
    blobs: SizedBlobs
    notify: Notify
    members: Members
    clock: Clock
    models: Mapping[str, Model]
    unknown_model: Model
    tools: Tools
    prices: Prices = NO_PRICES
    slots: int = SLOTS
    gather_ms: int = GATHER_MS
    counting: Counting | None = None
    tracer: Tracer = field(default_factory=NoTracer)


class Services:
    """Projection, planner and tool-runner. Made once, started once, stopped once."""

    def __init__(self, ports: Ports, planner_id: WorkerId, runner_id: WorkerId) -> None:
        self.ports = ports
        loader = Loader(ports.views, ports.snapshots)
        folding = SharedFold()
        tracer, clock = ports.tracer, ports.clock
        actor = ActorPorts(ports.log, loader, ports.members, clock, folding, tracer=tracer)
        views = TracedViews(ports.partition, tracer, clock)
        projected = ProjectionPorts(ports.log, views, loader, ports.notify, folding)
        planning = running = actor
        if (counting := ports.counting) is not None:
            planning = counting.actor(actor, "planner")
            running = counting.actor(actor, "tool_runner")
            projected = replace(projected, meter=counting.projection())
        self.projection = Projection(projected, ports.gather_ms)
        self.planner = Planner(
            PlannerPorts(
                planning,
                ports.models,
                ports.unknown_model,
                ports.blobs,
                ports.notify,
                ports.prices,
                NoPlannerMeter() if counting is None else counting.turns(),
            ),
            planner_id,
        )
        self.tool_runner = ToolRunner(
            running, ports.tools, ports.blobs, runner_id, Slots(ports.slots)
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """All three run; the projection has caught up with the log as it was.

        Effects: processes of an earlier life are killed before any claim of theirs is settled.
                 Open turns go on, claims of workers that are gone are settled.
        """
        # 1. Nothing that an earlier process started runs any more.
        await self.ports.tools.settle_orphans()
        # 2. The views are at the end of the log.
        end = await self.ports.log.end()
        self._run(self.projection.run(), "projection")
        await self._caught_up(end)
        # 3. Planner and tool-runner go on from there, with the threads that are open.
        open_threads = (await self.ports.partition.open_threads()).threads
        self._run(self.planner.worker.run(end, open_threads), "planner")
        self._run(self.tool_runner.worker.run(end, open_threads), "tool-runner")
        # What exists by now lives as long as the process: full collections need not walk it (they
        # were most of the 99th percentile).
        gc.freeze()

    async def _caught_up(self, end: Position) -> None:
        """The views are at `end`; the projection's error, if that is what ended it instead."""
        waiting = asyncio.ensure_future(self.ports.partition.wait(end))
        try:
            await asyncio.wait({waiting, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            self._check()
            await waiting
        finally:
            waiting.cancel()

    def _run(self, work, name: str) -> None:  # type: ignore[no-untyped-def]  # coroutines
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_report)
        self._tasks.append(task)

    async def failed(self) -> BaseException | None:
        """What ended one of the services; waits until one ends."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = next(iter(done))
        return None if task.cancelled() else task.exception()

    async def stop(self, drain_ms: int = DRAIN_TIMEOUT_MS) -> None:
        """Nothing runs any more; what was cut off has its outcome in the log.

        Units:   `drain_ms`: how long running effects may go on, milliseconds.
        """
        await asyncio.gather(
            self.planner.drain(drain_ms), self.tool_runner.drain(drain_ms), return_exceptions=True
        )
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_busy(self) -> bool:
        """Whether a claim of this process is open."""
        return self.planner.is_busy or self.tool_runner.is_busy

    def hurry(self) -> None:
        """Whoever waits in `stop` for running effects waits no longer than these take to die."""
        self.planner.hurry()
        self.tool_runner.hurry()

    async def is_resting(self) -> bool:
        """Whether no thread has anything to do and no claim is open; broken ones aside.

        Raises:  what ended one of the services, if one has ended.
        """
        self._check()
        if self.is_busy:
            return False
        await self._caught_up(await self.ports.log.end())
        found = await self.ports.partition.open_threads()
        open_threads = {thread for _, thread in found.threads}
        return open_threads <= self.broken

    @property
    def has_failed(self) -> bool:
        """Whether a service has ended by an error: nothing moves any more in this process."""
        return any(_error_of(task) is not None for task in self._tasks)

    def _check(self) -> None:
        for task in self._tasks:
            if (error := _error_of(task)) is not None:
                raise error

    @property
    def broken(self) -> set[ThreadId]:
        """Threads that a bug of ours stopped in this process; the log says where they are."""
        workers = self.planner.worker.broken | self.tool_runner.worker.broken
        return workers | self.projection.broken


def _error_of(task: asyncio.Task[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


def _report(task: asyncio.Task[None]) -> None:
    if (error := _error_of(task)) is not None:
        _log.error("%s ended: %s", task.get_name(), error, exc_info=error)
