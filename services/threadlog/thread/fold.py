"""The fold: which events are valid in which state, and what follows from them.

Pure and total. Every reader judges every record alike, from any snapshot: an event that may not
happen in this state is void, for a stated reason; it stays in the log and gets no seq. The rules
and what breaks without each are in `docs/architecture.md`; their ids stand beside the code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Never

from threadlog.events.envelope import Body, Event, Invalid, Opaque
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepFinished,
    StepReleased,
    StepStarted,
)
from threadlog.events.thread import ThreadConfigured, ThreadCreated
from threadlog.events.tool import (
    FileChanged,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import NO_SEQ, Seq
from threadlog.thread import fold_calls, fold_inputs, fold_steps, fold_turns
from threadlog.thread.evolve import evolve
from threadlog.thread.marks import Halted
from threadlog.thread.state import ThreadState

Rule = Callable[[ThreadState, Event, Never], ThreadState | str]
"""The state after the event, its `head` moved by one; or the reason why the event is void. The
third argument is the event's body, of the type that the rule is for."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The fold's word on one event: the state after it, and its seq or the reason it is void."""

    state: ThreadState
    seq: Seq | None
    void: str | None


_RULES: dict[type[Body], Rule] = {
    ThreadConfigured: fold_inputs.on_thread_configured,
    MessageReceived: fold_inputs.on_message_received,
    CancelRequested: fold_inputs.on_cancel_requested,
    TurnStarted: fold_turns.on_turn_started,
    TurnFinished: fold_turns.on_turn_finished,
    StepStarted: fold_steps.on_step_started,
    ModelResponded: fold_steps.on_model_responded,
    ModelAttemptFailed: fold_steps.on_model_attempt_failed,
    ModelInterrupted: fold_steps.on_model_interrupted,
    StepReleased: fold_steps.on_step_released,
    StepFinished: fold_turns.on_step_finished,
    ToolRequested: fold_calls.on_tool_requested,
    ToolStarted: fold_calls.on_tool_started,
    ToolReleased: fold_calls.on_tool_released,
    FileChanged: fold_calls.on_file_changed,
    ToolFinished: fold_calls.on_tool_finished,
}
_INPUTS = (ThreadConfigured, MessageReceived, CancelRequested)


def judge(state: ThreadState, event: Event) -> Judgement:
    """The state after `event`, and its seq or why it is void. Equal arguments, equal answer.

    Shapes:  `event` belongs to the stream that `state` is the state of; its position in the log is
             not asked for: call it once for each record, in log order. An unknown type takes a
             seq, so that old and new readers count alike; a critical one halts the thread, also as
             its first record: what follows cannot be judged.
    Source:  DESIGN laws 2 and 7, section 4 (bad records, unknown types).
    """
    body = event.body
    kind = type(body)
    if state.halted is not None:
        return Judgement(state, None, "halted")
    if kind is Opaque and event.critical:
        halted = Halted(event.event_id, event.type, event.version)
        return Judgement(evolve(state, halted=halted), None, "halted")
    if kind is ThreadCreated:
        if state.head != NO_SEQ:
            return Judgement(state, None, "repeat")
        return _accepted(evolve(state, head=Seq(0)))
    if state.head == NO_SEQ:
        return Judgement(state, None, "no_thread")
    if isinstance(body, Invalid):
        return Judgement(state, None, "invalid")
    if isinstance(body, Opaque):
        return _accepted(evolve(state, head=Seq(state.head + 1), opaque=state.opaque + 1))
    if kind in _INPUTS:
        return _judge_input(state, event, body)
    after = _follow(state, event, body)
    return Judgement(state, None, after) if isinstance(after, str) else _accepted(after)


def fold(state: ThreadState, event: Event) -> ThreadState:
    """The state after `event`; unchanged when the event is void (but for remembered input ids)."""
    return judge(state, event).state


def _accepted(after: ThreadState) -> Judgement:
    return Judgement(after, after.head, None)


def _follow(state: ThreadState, event: Event, body: Body) -> ThreadState | str:
    """The rule for the body's own type, asked."""
    return _RULES[type(body)](state, event, body)  # type: ignore[arg-type]  # paired by the table


def _judge_input(state: ThreadState, event: Event, body: Body) -> Judgement:
    """Rules `seen` and `window`: an input is judged once; a void one is remembered too."""
    if (void := fold_inputs.known(state, event)) is not None:
        return Judgement(state, None, void)
    after = _follow(state, event, body)
    if isinstance(after, str):
        known_at = Seq(state.head + 1)
        return Judgement(fold_inputs.remember(state, event.event_id, known_at), None, after)
    return _accepted(fold_inputs.remember(after, event.event_id, after.head))
