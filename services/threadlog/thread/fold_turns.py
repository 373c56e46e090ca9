"""Fold rules of turns, and of the edges between steps: `turn`, `verdict`."""

from threadlog.events.envelope import Event
from threadlog.events.step import StepFinished
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import EventId, Seq, turn_id
from threadlog.thread.evolve import evolve
from threadlog.thread.state import (
    Step,
    ThreadState,
    Totals,
    Turn,
    add_usage,
)


def on_turn_started(state: ThreadState, event: Event, body: TurnStarted) -> ThreadState | str:
    """Rule `turn`: only the next number, only queued messages, admitted in the same event."""
    if state.turn is not None:
        return "turn_open"
    number = state.turns + 1
    if body.number != number:
        return "wrong_turn"
    opened = turn_id(state.thread_id, number)
    if event.turn_id != opened or event.event_id != EventId(opened):
        return "wrong_id"
    if state.idle_since_empty_turn:
        return "no_input"
    queued = {q.message_id for q in state.queue}
    admits = body.admits
    if len(set(admits)) != len(admits) or not queued.issuperset(admits):
        return "not_in_queue"
    if event.caused_by != admits[0]:
        return "wrong_cause"
    cause = EventId(opened)
    turn = Turn(
        turn_id=opened,
        number=number,
        started_seq=Seq(state.head + 1),
        cause=cause,
        step=Step(number=1, cause=cause),
        admitted=admits,
    )
    left = tuple(q for q in state.queue if q.message_id not in admits)
    return evolve(state, head=turn.started_seq, turn=turn, turns=number, queue=left)


def on_step_finished(state: ThreadState, event: Event, body: StepFinished) -> ThreadState | str:
    """The step closes once nothing of it is open; a failed one only for good, or when stopped."""
    turn = state.turn
    if turn is None or event.turn_id != turn.turn_id:
        return "no_turn" if turn is None else "wrong_turn"
    step = turn.step
    if body.number != step.number:
        return "wrong_step"
    is_given_up = step.phase == "retry" and turn.cancel is not None
    if step.phase not in ("settled", "failed") and not is_given_up:
        return "step_open"
    if event.caused_by != step.cause:
        return "wrong_cause"
    number = step.number + 1
    closed = evolve(
        turn,
        step=Step(number=number, cause=event.event_id),
        cause=event.event_id,
        steps=turn.steps + 1,
        final=step.phase == "failed" or turn.final,
        error=step.error if step.phase == "failed" else turn.error,
        usage=add_usage(turn.usage, step.usage),
    )
    totals = Totals(state.totals.steps + 1, add_usage(state.totals.usage, step.usage))
    return evolve(state, head=Seq(state.head + 1), turn=closed, totals=totals)


def on_turn_finished(state: ThreadState, event: Event, body: TurnFinished) -> ThreadState | str:
    """Rules `verdict` and law 8: no input since it was decided, nothing open, floor respected."""
    turn = state.turn
    if turn is None or event.turn_id != turn.turn_id:
        return "no_turn" if turn is None else "wrong_turn"
    step = turn.step
    if step.begun:
        return "step_open"
    if body.decided_at < state.inputs.guard_seq:
        return "input_since"
    if (void := _misjudges(turn, body)) is not None:
        return void
    causes = (turn.cause,) if turn.cancel is None else (turn.cause, turn.cancel.event_id)
    if event.caused_by not in causes:
        return "wrong_cause"
    return evolve(
        state,
        head=Seq(state.head + 1),
        turn=None,
        verdict=body.verdict,
        idle_since_empty_turn=turn.steps == 0,
    )


def _misjudges(turn: Turn, body: TurnFinished) -> str | None:
    """Why the verdict contradicts what is on record; None when it does not."""
    if body.steps != turn.steps:
        return "wrong_step"
    if (turn.cancel is not None) != (body.verdict == "cancelled"):
        return "wrong_verdict"
    if turn.cancel is None and turn.floor is not None and body.verdict != turn.floor:
        return "sticky_verdict"
    if body.verdict == "completed" and turn.error is not None:
        return "sticky_verdict"
    return None
