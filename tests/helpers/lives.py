"""Lives of one runtime in a world that outlives it: each await on a port is two numbered points.

A life dies at a point: nothing that it asks of a port from then on happens, no answer reaches it,
and its tasks are abandoned. Log, views, blobs, the provider and the effects stay.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.thread_events import MODEL, configured, created, message
from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.members import MemoryMembers
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.adapters.model_api.script import Script
from threadlog.adapters.model_api.scripted import ScriptedModel
from threadlog.bootstrap.services import Ports, Services
from threadlog.clock import ManualClock
from threadlog.errors import LateError
from threadlog.events.envelope import Event
from threadlog.ids import EventId, WorkerId
from threadlog.ports.model import Delta, ModelReply, always
from threadlog.ports.tools import Finding, ToolCall, ToolResult, WorkspaceRef
from threadlog.thread.decide import open_claims
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.invariants import violations
from threadlog.thread.state import ThreadState

T = TypeVar("T")
_STUCK_ROUNDS = 3_000
"""Turns of the loop without an end or a death; every fake answers at once, so it hangs."""


@dataclass(slots=True)
class Life:
    """One process. `dies_at`: the number of the point at which it dies, None: it does not."""

    name: str
    dies_at: int | None = None
    points: list[str] = field(default_factory=list)
    is_dead: bool = False

    async def point(self, name: str) -> None:
        """The process goes on here, or is dead from here on."""
        if not self.is_dead:
            self.points.append(name)
            self.is_dead = len(self.points) == self.dies_at
        if self.is_dead:
            await asyncio.Event().wait()

    async def ask(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives, if the process lives before and after it."""
        await self.point(f"before {name}")
        try:
            result = await work()
        except Exception:
            await self.point(f"after {name}")
            raise
        await self.point(f"after {name}")
        return result


class Watched:
    """A port as one life sees it: any port, all of its methods."""

    def __init__(self, life: Life, name: str, port: object) -> None:
        self._life, self._name, self._port = life, name, port

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._port, name)
        label = f"{self._name}.{name}"
        if inspect.isasyncgenfunction(inner):
            return partial(self._stream, label, inner)
        if inspect.iscoroutinefunction(inner):
            return partial(self._call, label, inner)
        return inner

    async def _call(self, label: str, inner: Any, *arguments: Any, **named: Any) -> Any:
        return await self._life.ask(label, partial(inner, *arguments, **named))

    async def _stream(self, label: str, inner: Any, *arguments: Any) -> AsyncIterator[Any]:
        stream = inner(*arguments)
        while True:
            yield await self._life.ask(label, stream.__anext__)


@dataclass(frozen=True, slots=True)
class Effect:
    """What happened outside: under which open claim, and, of a command, its call and attempt."""

    kind: str
    claim: EventId | None
    call: str = ""
    attempt: int = 0
    command: str = ""


class Universe:
    """What outlives every process, and what was seen from outside."""

    def __init__(self, script: Script) -> None:
        self.log = MemoryLog()
        self.snapshots = MemorySnapshots()
        self.views = MemoryViews(self.log, self.snapshots)
        self.blobs = MemoryBlobs()
        self.members = MemoryMembers()
        self.effects: list[Effect] = []
        self.judged: list[tuple[Event, Judgement]] = []
        self._state = ThreadState(LOCAL, thread_id())
        self._folded = 0
        self._model = _Provider(self, script)

    async def begin(self) -> None:
        """A message waits in a new thread."""
        for maker in (created(), configured(model=MODEL), message()):
            await self.log.append([maker(self.state)])

    @property
    def state(self) -> ThreadState:
        """The fold of the log; each state on the way keeps the invariants."""
        for record in self.log.entries[self._folded :]:
            assert record.event is not None
            judgement = judge(self._state, record.event)
            self._state = judgement.state
            assert violations(self._state) == ()
            self.judged.append((record.event, judgement))
        self._folded = len(self.log.entries)
        return self._state

    async def has_ended(self) -> bool:
        """The turn has ended, and the views know."""
        is_over = self.state.turn is None and self.state.verdict is not None
        return is_over and await self.views.watermark() == await self.log.end()

    async def live(self, life: Life) -> bool:
        """Whether the turn has ended before this life did; its tasks are gone then."""
        before = asyncio.all_tasks()
        planner, runner = WorkerId(f"p-{life.name}"), WorkerId(f"t-{life.name}")
        self.members.join(planner)
        self.members.join(runner)
        services = Services(self._ports(life), planner, runner)
        starting = asyncio.create_task(services.start())
        for _ in range(_STUCK_ROUNDS):
            if life.is_dead or await self.has_ended():
                break
            await asyncio.sleep(0)
        else:
            raise AssertionError(f"{life.name} hangs: {[e.type for e, _ in self.judged]}")
        is_dead, life.is_dead = life.is_dead, True
        if starting.done():
            await starting
        abandoned = asyncio.all_tasks() - before
        for task in abandoned:
            task.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
        self.members.leave(planner)
        self.members.leave(runner)
        return not is_dead

    def _ports(self, life: Life) -> Ports:
        def seen(name: str, port: object) -> Any:
            return cast(Any, Watched(life, name, port))

        return Ports(
            gather_ms=0,
            log=seen("log", self.log),
            views=seen("views", self.views),
            partition=seen("views", self.views),
            snapshots=seen("snapshots", self.snapshots),
            blobs=seen("blobs", self.blobs),
            notify=MemoryNotify(),
            members=seen("members", self.members),
            clock=ManualClock(),
            models={},
            unknown_model=seen("model", self._model),
            tools=seen("tools", _Tools(self)),
        )

    def claim_of(self, call: str | None) -> EventId | None:
        """The open claim of the call, or of the step for None; None when there is none."""
        for claim, claimed in open_claims(self.state):
            if (None if claimed is None else claimed.call_id) == call:
                return claim.event_id
        return None


class _Provider(ScriptedModel):
    """The scripted model; each request that reaches it is an effect."""

    def __init__(self, universe: Universe, script: Script) -> None:
        super().__init__(script)
        self._universe = universe

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        if not may_start():
            raise LateError("the request was not sent: its claim is too old")
        self._universe.effects.append(Effect("request", self._universe.claim_of(None)))
        return await super().send(body, on_delta, may_start=may_start)


@dataclass(slots=True)
class _Tools:
    """Commands that end at once; each that starts is an effect."""

    universe: Universe

    async def check(self) -> tuple[Finding, ...]:
        return ()

    async def settle_orphans(self) -> None:
        return

    async def prepare(self, workspace: WorkspaceRef) -> None:
        return

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        if not may_start():
            raise LateError("too late")
        claim = self.universe.claim_of(call.call_id)
        effect = Effect("command", claim, call.call_id, call.attempt, call.command)
        self.universe.effects.append(effect)
        return ToolResult("ok", call.command.encode(), len(call.command), exit_code=0)
