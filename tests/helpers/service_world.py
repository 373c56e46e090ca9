"""One service at a time on the memory adapters: events in, events out.

`go` appends what the other services would have appended; `told` is what the log holds since then,
with the reason behind an event that is void.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.fakes import DEADLINE_S
from tests.helpers.thread_events import Maker
from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.members import MemoryMembers
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.clock import Clock, ManualClock
from threadlog.events.envelope import Body, Event
from threadlog.ids import Position, ThreadId, WorkerId
from threadlog.limits import LANES_MAX
from threadlog.planner.meter import NoPlannerMeter
from threadlog.planner.prices import NO_PRICES
from threadlog.planner.service import Planner, PlannerPorts
from threadlog.ports.log import Log
from threadlog.ports.model import Model
from threadlog.ports.tools import Tools
from threadlog.projection.service import Projection, ProjectionPorts
from threadlog.runtime.acting import ActorPorts
from threadlog.runtime.load import Loader
from threadlog.runtime.meter import NoMeter
from threadlog.runtime.shared_fold import SharedFold
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.planner import TurnMeter
from threadlog.telemetry.service import ServiceMeter
from threadlog.telemetry.table import Service
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.state import ThreadState
from threadlog.tool_runner.service import SLOTS, ToolRunner
from threadlog.tool_runner.slots import Slots

_QUIET_ROUNDS = 50


class World:
    """The memory adapters and a projection that keeps up. Use it as a context manager."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.snapshots = MemorySnapshots()
        self.views = MemoryViews(self.log, self.snapshots)
        self.blobs: MemoryBlobs = MemoryBlobs()
        self.notify = MemoryNotify()
        self.members = MemoryMembers()
        self.clock: Clock = ManualClock()
        self.lanes_max = LANES_MAX
        self.metrics: Metrics | None = None
        """Where services count; None: nowhere."""
        self.states: dict[ThreadId, ThreadState] = {}
        self.judged: list[tuple[Event, Judgement]] = []
        self._folded = 0
        self._mark = 0

    async def __aenter__(self) -> Self:
        loader = Loader(self.views, self.snapshots)
        ports = ProjectionPorts(self.log, self.views, loader, self.notify, SharedFold())
        projection = Projection(ports)
        self.projecting = asyncio.create_task(projection.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await _end(self.projecting)

    # -- events in

    async def go(self, *makers: Maker, thread: ThreadId | None = None) -> Event:
        """What the makers make is in the log, each accepted in the state before it; the last."""
        event = None
        for maker in makers:
            event = maker(self.state(thread))
            await self.log.append([event])
            self._fold()
            assert self.judged[-1][1].void is None, (self.judged[-1][1].void, event)
        self._mark = len(self.judged)
        assert event is not None
        return event

    # -- events out

    def state(self, thread: ThreadId | None = None) -> ThreadState:
        """The fold of everything that is in the log of the thread."""
        self._fold()
        thread = thread or thread_id()
        return self.states.get(thread, ThreadState(LOCAL, thread))

    def told(self) -> list[str]:
        """Types of the events since the last `go`; a void one with its reason behind a `!`."""
        self._fold()
        since = self.judged[self._mark :]
        return [e.type if j.void is None else f"{e.type}!{j.void}" for e, j in since]

    def mark(self) -> None:
        """`told` begins here."""
        self._fold()
        self._mark = len(self.judged)

    def accepted(self) -> list[Event]:
        """All accepted events."""
        self._fold()
        return [event for event, judgement in self.judged if judgement.void is None]

    def bodies(self, kind: type[Body]) -> list[Any]:
        """The bodies of all accepted events of this kind."""
        return [event.body for event in self.accepted() if isinstance(event.body, kind)]

    async def until(self, is_so: Callable[[], object]) -> None:
        """`is_so` holds, within the deadline."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not is_so():
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError(f"still not so; since the last input: {self.told()}") from None

    async def until_told(self, *types: str) -> None:
        """Exactly these events were appended since the last `go`, and no other one follows."""
        try:
            await self.until(lambda: self.told()[: len(types)] == list(types))
        finally:
            await self.quiet()
            assert self.told() == list(types)

    async def quiet(self) -> None:
        """Nothing more comes without a new cause: many turns of the loop added nothing."""
        rounds, seen = 0, -1
        while rounds < _QUIET_ROUNDS:
            await asyncio.sleep(0)
            rounds = rounds + 1 if len(self.log.entries) == seen else 0
            seen = len(self.log.entries)

    def _fold(self) -> None:
        for record in self.log.entries[self._folded :]:
            event = record.event
            if event is not None and event.key == record.key:
                stream = ThreadState(event.tenant_id, event.thread_id)
                state = self.states.get(event.thread_id, stream)
                judgement = judge(state, event)
                self.states[event.thread_id] = judgement.state
                self.judged.append((event, judgement))
        self._folded = len(self.log.entries)

    # -- services

    def actor_ports(self, log: Log | None = None, service: Service = "planner") -> ActorPorts:
        """What an actor needs, with a log of its own if one is given."""
        loader = Loader(self.views, self.snapshots)
        return ActorPorts(
            log or self.log,
            loader,
            self.members,
            self.clock,
            SharedFold(),
            NoMeter()
            if self.metrics is None
            else ServiceMeter(self.metrics, service, self.clock.now_ms),
            lanes_max=self.lanes_max,
        )

    @asynccontextmanager
    async def planner(
        self, model: Model, worker: str = "p1", log: Log | None = None
    ) -> AsyncIterator[Planner]:
        """A planner runs on what is in the log; its process is gone afterwards."""
        planner = Planner(
            PlannerPorts(
                self.actor_ports(log),
                {},
                model,
                self.blobs,
                self.notify,
                NO_PRICES,
                NoPlannerMeter() if self.metrics is None else TurnMeter(self.metrics),
            ),
            WorkerId(worker),
        )
        async with self._running(planner, worker):
            yield planner

    @asynccontextmanager
    async def tool_runner(
        self, tools: Tools, worker: str = "t1", log: Log | None = None, slots: int = SLOTS
    ) -> AsyncIterator[ToolRunner]:
        """A tool-runner runs on what is in the log; its process is gone afterwards."""
        ports = self.actor_ports(log, "tool_runner")
        runner = ToolRunner(ports, tools, self.blobs, WorkerId(worker), Slots(slots))
        async with self._running(runner, worker):
            yield runner

    @asynccontextmanager
    async def _running(self, actor: Planner | ToolRunner, worker: str) -> AsyncIterator[None]:
        end = await self.log.end()
        await self.views.wait(end)
        self.members.join(WorkerId(worker))
        work: Coroutine[Any, Any, None] = actor.worker.run(
            Position(end), (await self.views.open_threads()).threads
        )
        running = asyncio.create_task(work)
        try:
            yield
        finally:
            await _end(running)
            self.members.leave(WorkerId(worker))


async def _end(task: "asyncio.Task[None]") -> None:
    """The task was cancelled and has ended; whatever else ended it is raised."""
    task.cancel()
    [error] = await asyncio.gather(task, return_exceptions=True)
    if error is not None and not isinstance(error, asyncio.CancelledError):
        raise error
