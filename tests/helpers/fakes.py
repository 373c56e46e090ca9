"""Whole ports that a test drives by hand: a model, tools, and a log that fails on request.

Nothing here answers by itself: the test sees each request, and says what comes of it and when.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.adapters.model_api.scripted import render
from threadlog.errors import (
    LateError,
    LogUnavailableError,
    ModelError,
    RefusedError,
    RejectedError,
    TransientError,
)
from threadlog.events.content import BlobRef, ModelRef, OutputPart, TextPart, Usage
from threadlog.events.envelope import Event
from threadlog.events.step import ErrorClass, ModelCall, StopReason
from threadlog.ids import Position, Seq, TenantId, ThreadId
from threadlog.ports.log import Log, Receipt, Record
from threadlog.ports.model import Delta, ModelReply, ModelRequest, always
from threadlog.ports.tools import Finding, ToolCall, ToolResult, WorkspaceRef
from threadlog.ports.views import StoredEvent

DEADLINE_S = 15.0
MODEL = ModelRef(provider="scripted", name="small")


def reply(
    text: str = "",
    *calls: tuple[str, str],
    stop: StopReason | None = None,
    usage: Usage | None = None,
    content: tuple[OutputPart, ...] | None = None,
) -> ModelReply:
    """A reply; `calls` are (name, arguments)."""
    parts: tuple[OutputPart, ...] = (TextPart(text=text),) if text else ()
    return ModelReply(
        content=parts if content is None else content,
        calls=tuple(
            ModelCall(provider_call_id=f"call_{n}", name=name, arguments=arguments)
            for n, (name, arguments) in enumerate(calls)
        ),
        stop=stop or ("calls" if calls else "end"),
        usage=usage,
        model=MODEL,
    )


def cli(command: str) -> tuple[str, str]:
    """A call of the tool with this command line (which needs no escaping)."""
    return "cli", f'{{"command":"{command}"}}'


@dataclass(slots=True, eq=False)
class Exchange:
    """One request that was sent, waiting for the test."""

    body: bytes
    on_delta: Callable[[Delta], None]
    outcome: "asyncio.Future[ModelReply]"
    was_stopped: bool = False

    def answer(self, answer: ModelReply) -> None:
        self.outcome.set_result(answer)

    def fail(
        self,
        error_class: ErrorClass = "overloaded",
        *,
        retryable: bool = True,
        retry_after_ms: int | None = None,
    ) -> None:
        self.outcome.set_exception(
            ModelError(
                "no answer",
                error_class=error_class,
                retryable=retryable,
                retry_after_ms=retry_after_ms,
            )
        )


def _already() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class StepModel:
    """The model port; `sent` holds every request that reached the provider."""

    renderer = "fake/1"

    def __init__(self) -> None:
        self.rendered: list[ModelRequest] = []
        self.sent: list[Exchange] = []
        self.may_end = _already()
        """What was told to stop ends once it is set."""
        self._fresh: asyncio.Queue[Exchange] = asyncio.Queue()

    def render(self, request: ModelRequest) -> bytes:
        self.rendered.append(request)
        return render(request)

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        if not may_start():
            raise LateError("the request was not sent: its claim is too old")
        exchange = Exchange(body, on_delta, asyncio.get_running_loop().create_future())
        self.sent.append(exchange)
        self._fresh.put_nowait(exchange)
        try:
            return await exchange.outcome
        except asyncio.CancelledError:
            exchange.was_stopped = True
            await self.may_end.wait()
            raise

    async def asked(self) -> Exchange:
        """The next request, once it is sent."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._fresh.get()


@dataclass(slots=True, eq=False)
class Run:
    """One command that was started, waiting for the test."""

    call: ToolCall
    workspace: WorkspaceRef
    outcome: "asyncio.Future[ToolResult]"
    was_killed: bool = False

    def finish(self, result: ToolResult | None = None) -> None:
        self.outcome.set_result(result or ToolResult("ok", b"fine", 4, exit_code=0))


@dataclass(slots=True)
class StepTools:
    """The tools port; `refusal`: why no workspace can be used, None when each can.

    `asked`: every attempt, started or not; it may start once `set_up`, which it is until cleared.
    `may_end`: what was told to stop ends once it is set.
    """

    refusal: str | None = None
    runs: list[Run] = field(default_factory=list)
    prepared: list[WorkspaceRef] = field(default_factory=list)
    settled: int = 0
    asked: list[ToolCall] = field(default_factory=list)
    set_up: asyncio.Event = field(default_factory=_already)
    may_end: asyncio.Event = field(default_factory=_already)
    _fresh: "asyncio.Queue[Run]" = field(default_factory=asyncio.Queue)

    async def check(self) -> tuple[Finding, ...]:
        return ()

    async def settle_orphans(self) -> None:
        self.settled += 1

    async def prepare(self, workspace: WorkspaceRef) -> None:
        self.prepared.append(workspace)
        if self.refusal is not None:
            raise RefusedError(self.refusal)

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        self.asked.append(call)
        await self.set_up.wait()
        if not may_start():
            raise LateError("too late")
        run = Run(call, workspace, asyncio.get_running_loop().create_future())
        self.runs.append(run)
        self._fresh.put_nowait(run)
        try:
            return await run.outcome
        except asyncio.CancelledError:
            run.was_killed = True
            await self.may_end.wait()
            raise

    async def started(self) -> Run:
        """The next command, once it runs."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._fresh.get()


Fault = Literal[
    "refused",
    "lost",
    "full",
    "late",
    "unacknowledged",
    "doubled",
    "slow",
    "slowly_lost",
    "slowly_late",
    "unsaid",
]


class FaultyLog:
    """A log that another one stands behind; `faults` are what befalls the next appends.

    `lost`: it fails and nothing was appended; `full`: the same, as of a full device; `refused`: it
    can never be appended; `late`: it fails and comes in with `deliver_late`; `unacknowledged`: it
    fails although it was appended; `doubled`: it is appended twice; `slow`: it waits for `hurry`,
    and so do `slowly_lost` and `slowly_late` before they fail; `unsaid`: it is appended and read
    back, and its acknowledgement waits for `hurry`.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.faults: deque[Fault | None] = deque()
        self.asked: list[Sequence[Event]] = []
        self._late: list[Sequence[Event]] = []
        self._hurry = asyncio.Event()
        self._gate = asyncio.Event()
        self._gate.set()

    def hold(self) -> None:
        """Nothing is read back from now on."""
        self._gate.clear()

    def let_go(self) -> None:
        """What was held comes, and everything behind it."""
        self._gate.set()

    def hurry(self) -> None:
        """Appends that are slow go on."""
        self._hurry.set()

    async def deliver_late(self) -> None:
        """The appends that were late are in the log."""
        late, self._late = self._late, []
        for events in late:
            await self._log.append(events)

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        self.asked.append(events)
        fault = self.faults.popleft() if self.faults else None
        if fault in ("slow", "slowly_lost", "slowly_late"):
            await self._hurry.wait()
        if fault in ("late", "slowly_late"):
            self._late.append(events)
        if fault in ("late", "lost", "slowly_late", "slowly_lost"):
            raise TransientError("no answer")
        if fault == "full":
            raise LogUnavailableError("no space is left")
        if fault == "refused":
            raise RejectedError("too large")
        receipts = await self._log.append([*events, *events] if fault == "doubled" else events)
        if fault == "unacknowledged":
            raise TransientError("no answer")
        if fault == "unsaid":
            await self._hurry.wait()
        return receipts[: len(events)]

    async def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        async for batch in self._log.subscribe(after):
            await self._gate.wait()
            yield batch

    async def end(self) -> Position:
        return await self._log.end()


class SlowBlobs(MemoryBlobs):
    """A blob store that stores nothing before `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def put(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        await self.gate.wait()
        return await super().put(tenant, contents)


class SlowViews(MemoryViews):
    """Views that give no event before `gate` is set."""

    def __init__(self, log: MemoryLog, snapshots: MemorySnapshots) -> None:
        super().__init__(log, snapshots)
        self.gate = asyncio.Event()

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        await self.gate.wait()
        return await super().events(tenant, thread, first=first, last=last, limit=limit)


class TickingClock:
    """A clock whose monotonic time follows a list: one entry a look, the last one for ever."""

    def __init__(self, *mono_ms: int) -> None:
        self._left = deque(mono_ms)

    def now_ms(self) -> int:
        return 1_790_000_000_000

    def mono_ms(self) -> int:
        return self._left.popleft() if len(self._left) > 1 else self._left[0]
