"""Fold rules of inputs: `window`, `seen`, and what each input does to the thread."""

from threadlog.events.envelope import Event
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.thread import ThreadConfigured
from threadlog.ids import EventId, Seq
from threadlog.limits import INPUT_WINDOW, QUEUE_MAX
from threadlog.thread.evolve import evolve
from threadlog.thread.marks import Inputs
from threadlog.thread.state import Cancel, Config, Queued, ThreadState


def known(state: ThreadState, event: Event) -> str | None:
    """Why this input is not judged again: `stale` or `repeat`; None when it is new.

    `stale`: its gateway looked its id up before the newest forgotten input was judged, so it may be
    a copy of one that is forgotten. The gateway looks again and appends with a newer `base_seq`.
    Where the newest forgotten one was void and nothing was accepted since, no view can be newer,
    and a copy is judged in the same state as before: void again.
    """
    base_seq: int = event.body.base_seq  # type: ignore[union-attr]  # only inputs come here
    if base_seq < min(state.inputs.forgotten_seq, state.head):
        return "stale"
    event_id = event.event_id
    return "repeat" if any(event_id == seen for seen, _ in state.inputs.window) else None


def remember(state: ThreadState, event_id: EventId, known_at: Seq) -> ThreadState:
    """The id is among the last judged ones; a view whose head is at `known_at` knows it."""
    inputs = state.inputs
    window = (*inputs.window, (event_id, known_at))
    forgotten = inputs.forgotten_seq
    if len(window) > INPUT_WINDOW:
        forgotten = max(forgotten, window[0][1])
        window = window[1:]
    return evolve(state, inputs=Inputs(window, forgotten, inputs.guard_seq))


def on_message_received(
    state: ThreadState, event: Event, body: MessageReceived
) -> ThreadState | str:
    """The message joins the queue; `reject` only where no turn is open or about to open."""
    turn = state.turn
    is_due = bool(state.queue) and not state.idle_since_empty_turn
    if body.delivery == "reject" and (turn is not None or is_due):
        return "turn_open"
    if len(state.queue) >= QUEUE_MAX:
        return "queue_full"
    seq = Seq(state.head + 1)
    if turn is not None and body.delivery == "interrupt":
        turn = evolve(turn, interrupted=True)
    inputs = state.inputs
    if body.delivery in ("next_step", "interrupt"):
        inputs = evolve(inputs, guard_seq=seq)
    return evolve(
        state,
        head=seq,
        turn=turn,
        queue=(*state.queue, Queued(event.event_id, body.delivery, seq)),
        inputs=inputs,
        idle_since_empty_turn=False,
    )


def on_thread_configured(
    state: ThreadState, event: Event, body: ThreadConfigured
) -> ThreadState | str:
    """Settings change; a step claimed before it was decided without them (rule `occ`)."""
    old = state.config
    seq = Seq(state.head + 1)
    limits = body.limits
    config = Config(
        model=body.model or old.model,
        thinking=body.thinking or old.thinking,
        system_seq=old.system_seq if body.system_prompt is None else seq,
        tools=old.tools if body.tools is None else body.tools,
        output_tokens_max=(limits and limits.output_tokens_max) or old.output_tokens_max,
        call_timeout_ms=(limits and limits.call_timeout_ms) or old.call_timeout_ms,
        steps_max=(limits and limits.steps_max) or old.steps_max,
        workspace=body.workspace or old.workspace,
    )
    return evolve(
        state,
        head=seq,
        config=config,
        inputs=evolve(state.inputs, guard_seq=seq),
        idle_since_empty_turn=False,
    )


def on_cancel_requested(
    state: ThreadState, event: Event, body: CancelRequested
) -> ThreadState | str:
    """Rule `writer`: a cancel marks what must stop; it settles nothing."""
    turn = state.turn
    if turn is None:
        return "no_turn"
    if body.turn_id != turn.turn_id:
        return "wrong_turn"
    seq = Seq(state.head + 1)
    inputs = evolve(state.inputs, guard_seq=seq)
    if body.call_id is None:
        if turn.cancel is not None:
            return "already_cancelled"
        cancel = Cancel(event.event_id, event.actor, body.cause)
        return evolve(state, head=seq, turn=evolve(turn, cancel=cancel), inputs=inputs)
    for call in turn.step.calls:
        if call.call_id == body.call_id:
            break
    else:
        return "no_call"
    if call.outcome is not None:
        return "late"
    if call.cancelled:
        return "already_cancelled"
    calls = tuple(evolve(c, cancelled=True) if c is call else c for c in turn.step.calls)
    step = evolve(turn.step, calls=calls)
    return evolve(state, head=seq, turn=evolve(turn, step=step), inputs=inputs)
