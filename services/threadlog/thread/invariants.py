"""What must be true of every state the fold can reach. A violation is our own bug."""

from collections.abc import Iterator

from threadlog.limits import INPUT_WINDOW
from threadlog.thread.state import Step, ThreadState


def violations(state: ThreadState) -> tuple[str, ...]:
    """The names of the invariants that this state breaks; empty for every reachable state."""
    return tuple(_of_thread(state)) + (
        () if state.turn is None else tuple(_of_step(state.turn.step))
    )


def _of_thread(state: ThreadState) -> Iterator[str]:
    if len(state.inputs.window) > INPUT_WINDOW:
        yield "window too long"
    if state.inputs.guard_seq > state.head:
        yield "input seq ahead of the head"
    if state.inputs.forgotten_seq > state.head + 1:
        yield "forgotten seq ahead of the head"
    ids = [q.message_id for q in state.queue]
    if len(set(ids)) != len(ids):
        yield "message queued twice"
    turn = state.turn
    if turn is None:
        return
    if turn.number != state.turns:
        yield "open turn is not the last one"
    if turn.step.number != turn.steps + 1:
        yield "step number does not follow the finished steps"
    if set(ids) & {*turn.admitted, *turn.step.admitted}:
        yield "admitted message still queued"
    if turn.interrupted and all(q.delivery != "interrupt" for q in state.queue):
        yield "interrupted by nothing that waits"


def _of_step(step: Step) -> Iterator[str]:
    if (step.phase == "claimed") != (step.claim is not None):
        yield "claim and phase disagree"
    if (step.phase != "open") != step.begun:
        yield "begun and phase disagree"
    is_open = [call for call in step.calls if call.outcome is None]
    if (step.phase == "calls") != bool(is_open):
        yield "open calls and phase disagree"
    if len({c.claim.worker for c in is_open if c.claim is not None}) > 1:
        yield "two workers in one workspace"
    if [call.ordinal for call in step.calls] != list(range(len(step.calls))):
        yield "calls out of order"
    for call in step.calls:
        if call.claim is not None and (call.outcome is not None or call.status != "requested"):
            yield "claim of a call that cannot run"
