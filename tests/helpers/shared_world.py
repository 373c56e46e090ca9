"""Several worker processes on one log of several partitions, all in memory.

Each process has an assignment in the group of its service; a coordinator moves partitions as the
test says. A process can be killed: nothing it asks of a port from then on happens.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self, cast

import pytest

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.fakes import DEADLINE_S, FaultyLog
from tests.helpers.lives import Life, Watched
from tests.helpers.memory_group import Coordinator
from tests.helpers.shared_log import RemoteViews, SharedLog, SharedViews
from tests.helpers.thread_events import Maker
from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.memory.members import MemoryMembers
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.clock import ManualClock
from threadlog.events.envelope import Body, Event
from threadlog.ids import NO_POSITION, Partition, Position, ThreadId, WorkerId
from threadlog.limits import LANES_MAX
from threadlog.planner.prices import NO_PRICES
from threadlog.planner.service import Planner, PlannerPorts
from threadlog.ports.model import Model
from threadlog.ports.tools import Tools
from threadlog.projection import service as projecting
from threadlog.projection.service import Projection, ProjectionPorts
from threadlog.runtime import assignment, liveness, worker
from threadlog.runtime.acting import ActorPorts
from threadlog.runtime.assignment import Assignment
from threadlog.runtime.ledger import Ledger
from threadlog.runtime.load import Loader
from threadlog.runtime.meter import NoMeter
from threadlog.runtime.owned import OwnedActor
from threadlog.runtime.shared_fold import SharedFold
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.invariants import violations
from threadlog.thread.state import ThreadState
from threadlog.tool_runner.service import SLOTS, ToolRunner
from threadlog.tool_runner.slots import Slots

P0 = Partition(0)
_QUIET_ROUNDS = 50


class WatchedLedger(Ledger):
    """A ledger that tells what is open."""

    def __init__(self, start: Position) -> None:
        super().__init__(start)
        self.opened: Counter[Position] = Counter()

    def open(self, position: Position) -> bool:
        is_open = super().open(position)
        self.opened[position] += is_open
        return is_open

    def close(self, position: Position) -> None:
        super().close(position)
        self.opened[position] -= 1

    def lowest(self) -> Position | None:
        """The lowest open record."""
        return min((at for at, number in self.opened.items() if number), default=None)


class CountingMeter(NoMeter):
    """Counts what became of claims."""

    def __init__(self) -> None:
        self.claims: Counter[str] = Counter()

    def claim(self, result: str) -> None:
        self.claims[result] += 1


class CountingMembers(MemoryMembers):
    """Counts how often it was asked."""

    asked = 0
    first_asked_s: float | None = None

    async def is_gone(self, worker: WorkerId) -> bool:
        self.asked += 1
        if self.first_asked_s is None:
            self.first_asked_s = asyncio.get_running_loop().time()
        return await super().is_gone(worker)


def hasten(patch: pytest.MonkeyPatch) -> None:
    """What happens once a second happens at once; ledgers are watched."""
    patch.setattr(assignment, "_COMMIT_S", 0.005)
    patch.setattr(assignment, "_LOOK_S", 0.001)
    patch.setattr(liveness, "_ASK_AGAIN_S", 0.002)
    patch.setattr(projecting, "_COMPARE_S", 0.02)
    patch.setattr(worker, "Ledger", WatchedLedger)


@dataclass(eq=False)
class Process:
    """A worker process of one service. `log`: where it appends and reads, one a partition."""

    life: Life
    worker: WorkerId
    group: Coordinator
    assignment: Assignment
    logs: dict[Partition, FaultyLog]
    meter: CountingMeter
    made: list[tuple[Partition, OwnedActor]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.life.name

    def service(self, partition: Partition = P0) -> OwnedActor:
        """The newest service of the partition in this process."""
        return next(owned for p, owned in reversed(self.made) if p == partition)

    def state(self, thread: ThreadId, partition: Partition = P0) -> ThreadState | None:
        """What this process holds of the thread."""
        lane = self.service(partition).actor.worker.lanes.get(f"{LOCAL}/{thread}")
        return None if lane is None or lane.backlog is not None else lane.state


class SharedWorld:
    """The log, its views, the groups. Use it as a context manager."""

    def __init__(self, partitions: int = 1, lanes_max: int = LANES_MAX) -> None:
        self.lanes_max = lanes_max
        self.log = SharedLog(partitions)
        self.snapshots = MemorySnapshots()
        self.parts = [RemoteViews(log, self.snapshots) for log in self.log.logs]
        self.begun_with: list[Any] = [*self.parts]
        """The views, by partition, as services have them while they begin."""
        self.views = SharedViews(self.log, self.parts)
        self.blobs = MemoryBlobs()
        self.notify = MemoryNotify()
        self.members = CountingMembers()
        self.clock = ManualClock()
        self.groups = {name: Coordinator(partitions) for name in ("planner", "tool_runner")}
        self.processes: dict[str, Process] = {}
        self.states: dict[ThreadId, ThreadState] = {}
        self._judged: list[tuple[Event, Judgement]] = []
        self._folded = [0] * partitions
        self._before: set[asyncio.Task[Any]] = set()
        self.projecting: dict[Partition, tuple[Projection, asyncio.Task[None]]] = {}
        """The newest projection of each partition."""

    async def __aenter__(self) -> Self:
        self._before = asyncio.all_tasks()
        for group in self.groups.values():
            group.on_commit = self._check_commit
        for partition in range(len(self.parts)):
            self.project(Partition(partition))
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def project(
        self, partition: Partition, gather_ms: int = 10, reached: Position = NO_POSITION
    ) -> Projection:
        """A projection of the partition runs; `reached` as its `run` has it."""
        loader = Loader(self.views, self.snapshots)
        log, views = self.log.partition(partition), self.parts[partition]
        ports = ProjectionPorts(
            log, views, loader, self.notify, SharedFold(), lanes_max=self.lanes_max
        )
        projection = Projection(ports, gather_ms)
        self.projecting[partition] = projection, asyncio.create_task(projection.run(reached))
        return projection

    async def end_projection(self, partition: Partition = P0) -> None:
        """The projection of the partition runs no more."""
        _, task = self.projecting[partition]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def thread(self, partition: int = 0, n: int = 0) -> ThreadId:
        """Thread `n` of those in the partition."""
        found = (
            thread
            for thread in map(thread_id, count())
            if self.log.partition_of(f"{LOCAL}/{thread}") == partition
        )
        return next(thread for at, thread in enumerate(found) if at == n)

    # -- events in and out

    async def go(self, *makers: Maker, thread: ThreadId) -> Event:
        """What the makers make is in the log, each accepted in the state before it; the last."""
        event = None
        for maker in makers:
            event = maker(self.state(thread))
            await self.log.append([event])
            void = next(j.void for e, j in self.judged if e.event_id == event.event_id)
            assert void is None, (void, event)
        assert event is not None
        return event

    @property
    def judged(self) -> list[tuple[Event, Judgement]]:
        """Every event, each partition in log order, and the fold's word on it."""
        self._fold()
        return self._judged

    def state(self, thread: ThreadId) -> ThreadState:
        """The fold of everything that is in the log of the thread."""
        self._fold()
        return self.states.get(thread, ThreadState(LOCAL, thread))

    def bodies(self, kind: type[Body], thread: ThreadId | None = None) -> list[Any]:
        """The bodies of the accepted events of this kind."""
        return [
            event.body
            for event, judgement in self.judged
            if judgement.void is None
            and isinstance(event.body, kind)
            and thread in (None, event.thread_id)
        ]

    def told(self, thread: ThreadId) -> list[str]:
        """Types of the thread's events; a void one with its reason behind a `!`."""
        mine = [(e, j) for e, j in self.judged if e.thread_id == thread]
        return [e.type if j.void is None else f"{e.type}!{j.void}" for e, j in mine]

    async def until(self, is_so: Callable[[], object]) -> None:
        """`is_so` holds, within the deadline."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not is_so():
                    await asyncio.sleep(0.001)
        except TimeoutError:
            found = {thread: self.told(thread) for thread in self.states}
            raise AssertionError(f"still not so: {found}") from None

    async def quiet(self) -> None:
        """Nothing more comes without a new cause: many turns of the loop added nothing."""
        rounds, seen = 0, -1
        while rounds < _QUIET_ROUNDS:
            await asyncio.sleep(0.0005)
            size = sum(len(log.entries) for log in self.log.logs)
            rounds, seen = (rounds + 1 if size == seen else 0), size

    async def caught_up(self) -> None:
        """The views are where the log is."""
        async with asyncio.timeout(DEADLINE_S):
            for views, log in zip(self.parts, self.log.logs, strict=True):
                await views.wait(await log.end())

    def _fold(self) -> None:
        for n, log in enumerate(self.log.logs):
            for record in log.entries[self._folded[n] :]:
                event = record.event
                if event is not None and event.key == record.key:
                    state = self.states.get(event.thread_id, ThreadState(LOCAL, event.thread_id))
                    judgement = judge(state, event)
                    assert violations(judgement.state) == ()
                    self.states[event.thread_id] = judgement.state
                    self._judged.append((event, judgement))
            self._folded[n] = len(log.entries)

    # -- processes

    async def planner(self, name: str, model: Model) -> Process:
        """A process with planners joins its group."""

        def make(process: Process, partition: Partition, ports: ActorPorts) -> Planner:
            seen = _seen(process.life, "model", model)
            planner_ports = PlannerPorts(ports, {}, seen, self.blobs, self.notify, NO_PRICES)
            return Planner(planner_ports, process.worker)

        return await self._start(name, "planner", make)

    async def tool_runner(self, name: str, tools: Tools, slots: int = SLOTS) -> Process:
        """A process with tool-runners joins its group."""
        places = Slots(slots)

        def make(process: Process, partition: Partition, ports: ActorPorts) -> ToolRunner:
            seen = _seen(process.life, "tools", tools)
            return ToolRunner(ports, seen, self.blobs, process.worker, places)

        return await self._start(name, "tool_runner", make)

    async def _start(
        self,
        name: str,
        service: str,
        make: Callable[[Process, Partition, ActorPorts], Planner | ToolRunner],
    ) -> Process:
        group, life = self.groups[service], Life(name)

        def made(partition: Partition) -> OwnedActor:
            views = _seen(life, "views", self.views)
            loader = Loader(views, _seen(life, "snapshots", self.snapshots))
            log = process.logs[partition]
            ports = ActorPorts(
                log,
                loader,
                self.members,
                self.clock,
                SharedFold(),
                process.meter,
                self.lanes_max,
            )
            actor = make(process, partition, ports)
            owned = OwnedActor(actor, log, _seen(life, "views", self.begun_with[partition]))
            process.made.append((partition, owned))
            return owned

        logs = {
            p: FaultyLog(cast(Any, _seen(life, "log", self.log.partition(p)))) for p in group.owners
        }
        listening = Assignment(name, group.member(name), made)
        process = Process(life, WorkerId(name), group, listening, logs, CountingMeter())
        self.processes[name] = process
        self.members.join(process.worker)
        await listening.start()
        return process

    async def ready(self, *processes: Process) -> None:
        """Each has partitions, and serves them."""
        found = [process.assignment for process in processes]
        await self.until(lambda: all(each.services and each.is_ready for each in found))

    async def stop(self, process: Process, drain_ms: int = 10_000) -> None:
        """The process leaves in order."""
        await process.assignment.stop(drain_ms)
        self.members.leave(process.worker)

    async def kill(self, process: Process) -> None:
        """The process does nothing any more; the group finds out, who asks for the living later."""
        process.life.is_dead = True
        await process.group.expire(process.name)

    def bury(self, process: Process) -> None:
        """The dead process is listed among the living no more."""
        self.members.leave(process.worker)

    def _check_commit(self, name: str, positions: Mapping[Partition, Position]) -> None:
        """No commit passes a record that is open in the ledger of who commits."""
        process = self.processes[name]
        for partition, position in positions.items():
            ledger = process.service(partition).actor.worker.ledger
            assert isinstance(ledger, WatchedLedger)
            lowest = ledger.lowest()
            assert lowest is None or position < lowest, (name, partition, position, lowest)


def _seen(life: Life, name: str, port: object) -> Any:
    return Watched(life, name, port)
