"""Fold rules of steps: claims of model requests and what closes them (`occ`, `atresp`, `burn`)."""

from threadlog.events.content import Usage
from threadlog.events.envelope import Event
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepReleased,
    StepStarted,
)
from threadlog.events.turn import Verdict
from threadlog.ids import EventId, Seq, call_id
from threadlog.limits import DEATHS_MAX
from threadlog.thread.closing import not_my_claim
from threadlog.thread.evolve import evolve
from threadlog.thread.state import (
    Call,
    Claim,
    Step,
    StepPhase,
    ThreadState,
    Turn,
    add_usage,
    steering,
)


def on_step_started(state: ThreadState, event: Event, body: StepStarted) -> ThreadState | str:
    """Rule `occ`: the claim is void if an input it does not know of came since it was decided."""
    turn = state.turn
    if turn is None or event.turn_id != turn.turn_id:
        return "no_turn" if turn is None else "wrong_turn"
    if (void := _unclaimable(turn, body)) is not None:
        return void
    if body.decided_at < state.inputs.guard_seq:
        return "input_since"
    admits = body.admits
    if len(set(admits)) != len(admits) or not set(steering(state)).issuperset(admits):
        return "not_in_queue"
    if event.worker is None:
        return "no_worker"
    step = turn.step
    if event.caused_by != step.cause:
        return "wrong_cause"
    left = tuple(q for q in state.queue if q.message_id not in admits)
    claimed = evolve(
        step,
        phase="claimed",
        claim=Claim(event.event_id, event.worker, Seq(state.head + 1)),
        begun=True,
        admitted=step.admitted + admits,
    )
    interrupted = any(q.delivery == "interrupt" for q in left)
    turn = evolve(turn, step=claimed, interrupted=interrupted, final=False)
    return evolve(state, head=Seq(state.head + 1), turn=turn, queue=left)


def _unclaimable(turn: Turn, body: StepStarted) -> str | None:
    step = turn.step
    if body.number != step.number:
        return "wrong_step"
    if body.attempt != step.attempt:
        return "wrong_attempt"
    if step.phase not in ("open", "retry"):
        return "claimed"
    return "stopping" if turn.cancel is not None else None


def on_model_responded(state: ThreadState, event: Event, body: ModelResponded) -> ThreadState | str:
    """Rule `atresp`: the response opens its calls at once, so that nothing overtakes them."""
    turn = _claimed_turn(state, event, body.claim, body.attempt)
    if isinstance(turn, str):
        return turn
    responded = event.event_id
    calls = tuple(
        Call(call_id=call_id(responded, n), ordinal=n, cause=responded)
        for n in range(len(body.calls))
    )
    step = evolve(
        turn.step,
        phase="calls" if calls else "settled",
        claim=None,
        cause=responded,
        responded=responded,
        responded_seq=Seq(state.head + 1),
        stop=body.stop,
        usage=add_usage(turn.step.usage, body.usage),
        calls=calls,
    )
    floor: Verdict | None = turn.floor
    if body.stop == "length":
        floor = "max_tokens"
    elif body.stop == "refusal" and not calls:
        floor = floor or "blocked"
    return _with_turn(state, evolve(turn, step=step, floor=floor, final=not calls))


def on_model_attempt_failed(
    state: ThreadState, event: Event, body: ModelAttemptFailed
) -> ThreadState | str:
    """The attempt failed: the next one is due, or the step failed for good."""
    turn = _claimed_turn(state, event, body.claim, body.attempt)
    if isinstance(turn, str):
        return turn
    step = evolve(
        _next_attempt(turn.step, event.event_id, body.usage),
        phase="retry" if body.retryable else "failed",
        failures=turn.step.failures + (body.error_class != "shutdown"),
        error=body.error_class,
        due_at_ms=body.due_at_ms,
        delay_ms=body.delay_ms,
    )
    if not body.retryable:
        step = evolve(step, attempt=turn.step.attempt)
    return _with_turn(state, evolve(turn, step=step))


def on_model_interrupted(
    state: ThreadState, event: Event, body: ModelInterrupted
) -> ThreadState | str:
    """What had been delivered is the response; the step ends with it."""
    turn = _claimed_turn(state, event, body.claim, body.attempt)
    if isinstance(turn, str):
        return turn
    step = evolve(
        turn.step,
        phase="settled",
        claim=None,
        cause=event.event_id,
        responded=event.event_id,
        responded_seq=Seq(state.head + 1),
        usage=add_usage(turn.step.usage, body.usage),
    )
    return _with_turn(state, evolve(turn, step=step))


def on_step_released(state: ThreadState, event: Event, body: StepReleased) -> ThreadState | str:
    """Rules `release`, `burn`: the claim, perhaps never arrived, opens the next attempt."""
    turn = state.turn
    if turn is None or event.turn_id != turn.turn_id:
        return "no_turn" if turn is None else "wrong_turn"
    step = turn.step
    if body.number != step.number:
        return "wrong_step"
    if body.attempt != step.attempt:
        return "late"
    claim = step.claim
    if claim is None:
        if (void := _not_burnable(step, event, body)) is not None:
            return void
        burnt = evolve(step, attempt=step.attempt + 1, cause=event.event_id)
        return _with_turn(state, evolve(turn, step=burnt))
    settles = body.by == "settlement"
    causes = (body.claim, step.cause)
    if (void := not_my_claim(claim, event, body.claim, causes, settles=settles)) is not None:
        return void
    step = _next_attempt(step, event.event_id, None)
    if settles:
        step = evolve(step, deaths=step.deaths + 1)
        if step.deaths >= DEATHS_MAX:
            step = evolve(step, phase="failed", error="internal", attempt=body.attempt)
    return _with_turn(state, evolve(turn, step=step))


def _not_burnable(step: Step, event: Event, body: StepReleased) -> str | None:
    """Why a release does not open the next attempt of a step without a claim."""
    if step.phase not in ("open", "retry") or body.by != "writer":
        return "no_claim"
    if event.worker is None:
        return "no_worker"
    return None if event.caused_by == step.cause else "wrong_cause"


def _with_turn(state: ThreadState, turn: Turn) -> ThreadState:
    return evolve(state, head=Seq(state.head + 1), turn=turn)


def _next_attempt(step: Step, cause: EventId, usage: Usage | None) -> Step:
    phase: StepPhase = "retry"
    return evolve(
        step,
        phase=phase,
        claim=None,
        cause=cause,
        attempt=step.attempt + 1,
        usage=add_usage(step.usage, usage),
        due_at_ms=0,
        delay_ms=0,
    )


def _claimed_turn(state: ThreadState, event: Event, claim_id: EventId, attempt: int) -> Turn | str:
    """The open turn, whose step's claim this event of its writer closes; or why it does not."""
    turn = state.turn
    if turn is None or event.turn_id != turn.turn_id:
        return "late"
    claim = turn.step.claim
    if claim is None or attempt != turn.step.attempt:
        return "late"
    void = not_my_claim(claim, event, claim_id, (claim_id,), settles=False)
    return turn if void is None else void
