"""The state of one thread: structure only, a few KiB at any age, immutable.

Content stays in events and is read by range. Every member here is the fold's own conclusion from
accepted events; nothing is set from outside.
"""

from dataclasses import dataclass, field
from typing import Literal

from threadlog.events.catalog import CATALOG_DIGEST
from threadlog.events.content import COUNT_MAX, MICROS_MAX, ModelRef, Usage
from threadlog.events.input import Delivery
from threadlog.events.thread import Workspace
from threadlog.events.tool import Effect, Outcome
from threadlog.events.turn import Verdict
from threadlog.ids import (
    NO_SEQ,
    CallId,
    EventId,
    Seq,
    TenantId,
    ThreadId,
    TurnId,
    WorkerId,
)
from threadlog.limits import CALL_TIMEOUT_MS, STEPS_PER_TURN_MAX
from threadlog.thread.marks import Halted, Inputs, ToolClock

FOLD_VERSION = f"1+{CATALOG_DIGEST}"
"""Names the rules and the catalog; a snapshot made under another one is folded again."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An open claim: who is about to cause the effect, or is causing it."""

    event_id: EventId
    worker: WorkerId
    seq: Seq


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the current step.

    Shapes:  `cause` is the accepted event that the next claim, or an outcome without a claim,
             follows from. `files` counts the accepted `file.changed` of the attempt. `outcome`
             None: the call is open.
    """

    call_id: CallId
    ordinal: int
    cause: EventId
    status: Literal["new", "requested", "refused"] = "new"
    effect: Effect = "unsafe"
    requested_seq: Seq = NO_SEQ
    attempt: int = 1
    claim: Claim | None = None
    files: int = 0
    deaths: int = 0
    cancelled: bool = False
    outcome: Outcome | None = None


StepPhase = Literal["open", "claimed", "retry", "failed", "calls", "settled"]


@dataclass(frozen=True, slots=True)
class Step:
    """The current step of the open turn.

    Shapes:  `phase`: `open` no attempt was accepted yet; `claimed` a request may be under way;
             `retry` the attempt failed or was released, `attempt` is the next one; `failed` for
             good; `calls` open calls; `settled` ready for `step.finished`. `cause` is the accepted
             event that the next claim or `step.finished` follows from. `begun`: a claim was
             accepted. `admitted`: the messages that joined at this step.
    Units:   `due_at_ms` since the epoch, `delay_ms` the wait it came from.
    """

    number: int
    cause: EventId
    phase: StepPhase = "open"
    attempt: int = 1
    claim: Claim | None = None
    begun: bool = False
    admitted: tuple[EventId, ...] = ()
    failures: int = 0
    deaths: int = 0
    error: str | None = None
    due_at_ms: int = 0
    delay_ms: int = 0
    responded: EventId | None = None
    responded_seq: Seq = NO_SEQ
    stop: str | None = None
    usage: Usage | None = None
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """The first accepted cancel of the turn."""

    event_id: EventId
    actor: str
    cause: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The open turn.

    Shapes:  `floor` is the sticky verdict (law 8): with it the turn is never `completed`.
             `steps` counts finished steps. `final`: the last step asked for nothing more.
             `interrupted`: a queued message with delivery `interrupt` waits for what runs.
             `cause` is the accepted event that `turn.finished` follows from.
    """

    turn_id: TurnId
    number: int
    started_seq: Seq
    cause: EventId
    step: Step
    admitted: tuple[EventId, ...]
    steps: int = 0
    floor: Verdict | None = None
    error: str | None = None
    cancel: Cancel | None = None
    interrupted: bool = False
    final: bool = False
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Queued:
    """A message in the inbox."""

    message_id: EventId
    delivery: Delivery
    seq: Seq


@dataclass(frozen=True, slots=True)
class Config:
    """Settings in force. `system_seq`: the event that holds the system prompt, NO_SEQ for none."""

    model: ModelRef | None = None
    thinking: str | None = None
    system_seq: Seq = NO_SEQ
    tools: tuple[str, ...] = ("cli",)
    output_tokens_max: int | None = None
    call_timeout_ms: int = CALL_TIMEOUT_MS
    steps_max: int = STEPS_PER_TURN_MAX
    workspace: Workspace = field(default=Workspace(kind="managed"))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the thread. Units: steps; the billed usage of all finished steps."""

    steps: int = 0
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ThreadState:
    """Everything that decides what may happen next in one thread.

    Shapes:  `head` is the seq of the last accepted event. `turns` counts accepted `turn.started`.
             `idle_since_empty_turn`: the last turn ended without a step, so none starts before a
             new input. `opaque` counts accepted events of unknown types.
    """

    tenant_id: TenantId
    thread_id: ThreadId
    head: Seq = NO_SEQ
    turn: Turn | None = None
    queue: tuple[Queued, ...] = ()
    inputs: Inputs = field(default=Inputs())
    tool_clock: ToolClock = field(default=ToolClock())
    config: Config = field(default=Config())
    turns: int = 0
    verdict: Verdict | None = None
    idle_since_empty_turn: bool = False
    totals: Totals = field(default=Totals())
    opaque: int = 0
    halted: Halted | None = None


def add_usage(a: Usage | None, b: Usage | None) -> Usage | None:
    """The sum; None is "nothing was reported". A sum with an unknown price has an unknown price.

    Units:   what no counter can hold stays at the largest value that it can.
    """
    if a is None or b is None:
        return a if b is None else b
    cost: int | None = None
    if a.cost_micros is not None and b.cost_micros is not None:
        cost = min(a.cost_micros + b.cost_micros, MICROS_MAX)
    return Usage(
        input=min(a.input + b.input, COUNT_MAX),
        output=min(a.output + b.output, COUNT_MAX),
        cache_read=min(a.cache_read + b.cache_read, COUNT_MAX),
        cache_write=min(a.cache_write + b.cache_write, COUNT_MAX),
        reasoning=min(a.reasoning + b.reasoning, COUNT_MAX),
        cost_micros=cost,
        price_version=a.price_version if a.price_version == b.price_version else None,
    )


def steering(state: ThreadState) -> tuple[EventId, ...]:
    """The queued messages that join the open turn at its next step; interrupts come first."""
    first = [q.message_id for q in state.queue if q.delivery == "interrupt"]
    return (*first, *(q.message_id for q in state.queue if q.delivery == "next_step"))


def is_stopping(state: ThreadState, call: Call | None = None) -> bool:
    """Whether what runs in the open turn (or this call of it) must stop and nothing may start."""
    turn = state.turn
    if turn is None:
        return False
    return turn.cancel is not None or turn.interrupted or (call is not None and call.cancelled)
