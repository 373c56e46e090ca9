"""What should happen next in a thread. Pure: state and a time in, intents out.

Intents are imperative and carry what the acting worker needs from the state. The planner acts on
all but `ClaimCall`, which is the tool-runner's. Deciding twice in one state gives the same intents;
the fold makes the second doing void.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from threadlog.events.content import Usage
from threadlog.events.turn import Verdict
from threadlog.ids import EventId, Seq
from threadlog.thread.state import Call, Claim, Step, ThreadState, Turn, is_stopping, steering


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Open turn `number` and admit the queue."""

    number: int
    admits: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class ClaimStep:
    """Claim attempt `attempt` of the step, then ask the model."""

    turn: Turn
    step: Step
    admits: tuple[EventId, ...]


@dataclass(frozen=True, slots=True)
class RequestCalls:
    """Mark the response's calls as ready, or refuse them; their content is at `responded_seq`."""

    responded: EventId
    responded_seq: Seq
    calls: tuple[Call, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class CloseCalls:
    """Give calls that never started, and must not, their outcome."""

    calls: tuple[Call, ...]
    cancelled: bool


@dataclass(frozen=True, slots=True)
class ClaimCall:
    """Claim the next attempt of the call, then run it."""

    call: Call


@dataclass(frozen=True, slots=True)
class FinishStep:
    """Close the step."""

    number: int
    attempts: int
    usage: Usage | None
    caused_by: EventId


@dataclass(frozen=True, slots=True)
class FinishTurn:
    """Close the turn with this verdict."""

    verdict: Verdict
    cause: str | None
    steps: int
    caused_by: EventId


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Decide again when `wait_ms` have passed: an attempt is due then."""

    wait_ms: int


Intent = (
    StartTurn
    | ClaimStep
    | RequestCalls
    | CloseCalls
    | ClaimCall
    | FinishStep
    | FinishTurn
    | WaitUntil
)


def decide(state: ThreadState, now_ms: int) -> tuple[Intent, ...]:
    """What should happen now; empty when only an outcome or an input can move the thread on.

    Units:   `now_ms` since the epoch, used for due times alone.
    """
    turn = state.turn
    if state.halted is not None:
        return ()
    if turn is None:
        if not state.queue or state.idle_since_empty_turn:
            return ()
        return (StartTurn(state.turns + 1, tuple(q.message_id for q in state.queue)),)
    step = turn.step
    match step.phase:
        case "claimed":
            return ()
        case "calls":
            return tuple(_decide_calls(state, step))
        case "settled" | "failed":
            return (_finish_step(step),)
        case "retry":
            return (_decide_retry(state, turn, step, now_ms),)
        case "open":
            return (_decide_step(state, turn, step),)
        case _:
            assert_never(step.phase)


def _decide_retry(state: ThreadState, turn: Turn, step: Step, now_ms: int) -> Intent:
    """Within a step: the next attempt, whatever bounds the turn; it ends only between steps."""
    if turn.cancel is not None:
        return _finish_step(step)
    wait_ms = min(max(step.due_at_ms - now_ms, 0), step.delay_ms)
    if wait_ms > 0 and not turn.interrupted:
        return WaitUntil(wait_ms)
    return ClaimStep(turn, step, steering(state))


def _decide_step(state: ThreadState, turn: Turn, step: Step) -> Intent:
    """At the edge between steps: the next one, or the end of the turn.

    The sticky verdict stands, whatever ends the turn; only a cancel is said before it.
    """
    admits = steering(state)
    if turn.cancel is not None:
        cancel = turn.cancel
        by = cancel.actor if cancel.cause == "user" else f"{cancel.cause}:{cancel.actor}"
        return FinishTurn("cancelled", by[:200], turn.steps, cancel.event_id)
    if turn.error is not None:
        return FinishTurn(turn.floor or "error", turn.error, turn.steps, turn.cause)
    if turn.final and not admits:
        return FinishTurn(turn.floor or "completed", None, turn.steps, turn.cause)
    if turn.steps >= state.config.steps_max:
        return FinishTurn(turn.floor or "budget", "steps", turn.steps, turn.cause)
    if state.config.model is None:
        return FinishTurn("error", "no_model", turn.steps, turn.cause)
    return ClaimStep(turn, step, admits)


def _finish_step(step: Step) -> FinishStep:
    """In `retry` the attempt in hand is one that nobody made."""
    attempts = step.attempt - 1 if step.phase == "retry" else step.attempt
    return FinishStep(step.number, attempts, step.usage, step.cause)


def _decide_calls(state: ThreadState, step: Step) -> Iterator[Intent]:
    new = tuple(c for c in step.calls if c.outcome is None and c.status == "new")
    if new and step.responded is not None:
        yield RequestCalls(step.responded, step.responded_seq, new, step.stop == "length")
    idle = [c for c in step.calls if c.outcome is None and c.claim is None and c.status != "new"]
    if refused := tuple(c for c in idle if c.status == "refused"):
        yield CloseCalls(refused, cancelled=False)
    waiting = [c for c in idle if c.status == "requested"]
    if stopped := tuple(c for c in waiting if is_stopping(state, c)):
        yield CloseCalls(stopped, cancelled=True)
    for call in _startable(step):
        if not is_stopping(state, call):
            yield ClaimCall(call)


def _startable(step: Step) -> Iterator[Call]:
    """Calls that may start beside those that run: pure ones together, any other one alone."""
    earlier_open = False
    for call in step.calls:
        if call.outcome is not None or call.status == "refused":
            continue
        if call.status == "new":
            return
        alone = call.effect != "pure"
        if alone and earlier_open:
            return
        if call.claim is None:
            yield call
        if alone:
            return
        earlier_open = True


def open_claims(state: ThreadState) -> tuple[tuple[Claim, Call | None], ...]:
    """Every open claim: the step's (with None), or those of its calls."""
    if state.turn is None:
        return ()
    step = state.turn.step
    if step.claim is not None:
        return ((step.claim, None),)
    return tuple((c.claim, c) for c in step.calls if c.claim is not None)
