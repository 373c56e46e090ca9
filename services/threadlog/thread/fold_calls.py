"""Fold rules of tool calls: `gate`, `occ`, `onews`, `writer`, `late`, `burn`, `files`, `first`."""

from threadlog.events.envelope import Event
from threadlog.events.tool import (
    FileChanged,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.ids import CallId, Seq, WorkerId
from threadlog.limits import DEATHS_MAX
from threadlog.thread.closing import not_my_claim
from threadlog.thread.evolve import evolve
from threadlog.thread.marks import ToolClock
from threadlog.thread.state import Call, Claim, ThreadState, is_stopping


def on_tool_requested(state: ThreadState, event: Event, body: ToolRequested) -> ThreadState | str:
    """Rule `gate`: the call is ready to be claimed, or refused before it could start."""
    call = _open_call(state, event, CallId(event.event_id))
    if isinstance(call, str):
        return call
    if call.status != "new":
        return "repeat"
    if body.ordinal != call.ordinal:
        return "wrong_id"
    if event.caused_by != call.cause:
        return "wrong_cause"
    requested = evolve(
        call,
        status="requested" if body.gate == "free" else "refused",
        effect=body.effect,
        requested_seq=Seq(state.head + 1),
        cause=event.event_id,
    )
    return _with_call(state, requested)


def on_tool_started(state: ThreadState, event: Event, body: ToolStarted) -> ThreadState | str:
    """Rules `occ`, `onews`: one worker at a time in a workspace, none that acts on old news."""
    call = _open_call(state, event, body.call_id)
    if isinstance(call, str):
        return call
    if (void := _unclaimable(state, call, body.attempt)) is not None:
        return void
    worker = event.worker
    if worker is None:
        return "no_worker"
    if any(c.claim is not None and c.claim.worker != worker for c in _calls(state)):
        return "foreign_claim"
    clock = state.tool_clock
    if body.decided_at < (clock.others_seq if clock.worker == worker else clock.seq):
        return "tool_event_since"
    if event.caused_by != call.cause:
        return "wrong_cause"
    claim = Claim(event.event_id, worker, Seq(state.head + 1))
    return _with_call(state, evolve(call, claim=claim), worker)


def _unclaimable(state: ThreadState, call: Call, attempt: int) -> str | None:
    if call.claim is not None:
        return "claimed"
    if call.status != "requested":
        return "not_ready"
    if attempt != call.attempt:
        return "wrong_attempt"
    return "stopping" if is_stopping(state, call) else None


def on_tool_released(state: ThreadState, event: Event, body: ToolReleased) -> ThreadState | str:
    """Rules `release`, `burn`: the claim, perhaps never arrived, opens the next attempt."""
    call = _open_call(state, event, body.call_id)
    if isinstance(call, str):
        return call
    if body.attempt != call.attempt:
        return "late"
    claim = call.claim
    void = _not_burnable(call, event, body) if claim is None else _kept(claim, call, event, body)
    if void is not None:
        return void
    worker = event.worker if claim is None else claim.worker
    released = evolve(
        call,
        claim=None,
        attempt=call.attempt + 1,
        cause=event.event_id,
        files=0,
        deaths=call.deaths + (body.by == "settlement"),
    )
    return _with_call(state, released, worker)


def _not_burnable(call: Call, event: Event, body: ToolReleased) -> str | None:
    """Why a release does not open the next attempt of a call without a claim."""
    if call.status != "requested" or body.by != "writer":
        return "no_claim"
    if event.worker is None:
        return "no_worker"
    return None if event.caused_by == call.cause else "wrong_cause"


def _kept(claim: Claim, call: Call, event: Event, body: ToolReleased) -> str | None:
    """Why a release does not close this claim. Settling repeats no call without limit (law 4)."""
    settles = body.by == "settlement"
    causes = (body.claim, call.cause)
    if (void := not_my_claim(claim, event, body.claim, causes, settles=settles)) is not None:
        return void
    is_last = call.effect == "unsafe" or call.deaths + 1 >= DEATHS_MAX
    return "not_repeatable" if settles and is_last else None


def on_file_changed(state: ThreadState, event: Event, body: FileChanged) -> ThreadState | str:
    """Rule `files`: changes of one attempt are counted, each once and in order."""
    call = _open_call(state, event, body.call_id)
    if isinstance(call, str):
        return call
    if call.claim is None or body.attempt != call.attempt:
        return "late"
    named = body.claim
    if (void := not_my_claim(call.claim, event, named, (named,), settles=False)) is not None:
        return void
    if body.ordinal != call.files + 1:
        return "repeat" if body.ordinal <= call.files else "files_missing"
    return _with_call(state, evolve(call, files=body.ordinal), call.claim.worker)


def on_tool_finished(state: ThreadState, event: Event, body: ToolFinished) -> ThreadState | str:
    """Rules `first`, `writer`, `late`: the call's one outcome, from its writer or a settlement."""
    call = _open_call(state, event, body.call_id)
    if isinstance(call, str):
        return call
    if body.attempt != call.attempt:
        return "late"
    claim = call.claim
    if body.by == "planner":
        void = _still_possible(state, call, event, body)
    elif claim is None:
        void = "late"
    elif body.outcome in ("denied", "not_started"):
        void = "wrong_outcome"
    else:
        void = _bad_outcome(claim, call, event, body)
    if void is not None:
        return void
    settled = evolve(call, outcome=body.outcome, claim=None, cause=event.event_id)
    return _with_call(state, settled, None if claim is None else claim.worker)


def _still_possible(state: ThreadState, call: Call, event: Event, body: ToolFinished) -> str | None:
    """The planner closes only what never started and cannot start any more."""
    if call.claim is not None:
        return "claimed"
    if call.status == "new" or body.outcome not in ("not_started", "denied", "cancelled"):
        return "wrong_outcome"
    if call.status != "refused" and not is_stopping(state, call):
        return "not_stopping"
    return None if event.caused_by == call.cause else "wrong_cause"


def _bad_outcome(claim: Claim, call: Call, event: Event, body: ToolFinished) -> str | None:
    settles = body.by == "settlement"
    named = body.claim
    if named is None:
        return "late"
    if (void := not_my_claim(claim, event, named, (named,), settles=settles)) is not None:
        return void
    if settles:
        return None if body.outcome == "unknown" else "wrong_outcome"
    return None if body.files == call.files else "files_missing"


def _calls(state: ThreadState) -> tuple[Call, ...]:
    return () if state.turn is None else state.turn.step.calls


def _open_call(state: ThreadState, event: Event, call_id: CallId) -> Call | str:
    turn = state.turn
    if turn is None or event.turn_id != turn.turn_id:
        return "late"
    for call in turn.step.calls:
        if call.call_id == call_id:
            return "late" if call.outcome is not None else call
    return "no_call"


def _with_call(state: ThreadState, call: Call, worker: WorkerId | None = None) -> ThreadState:
    """The call is in its place; a tool event of `worker` was accepted (rule `occ`).

    With the last outcome of the step's calls the step is ready to finish.
    """
    turn = state.turn
    assert turn is not None
    step, at, seq = turn.step, call.ordinal, Seq(state.head + 1)
    calls = (*step.calls[:at], call, *step.calls[at + 1 :])
    if call.outcome is not None and all(c.outcome is not None for c in calls):
        step = evolve(step, calls=calls, phase="settled", cause=call.cause)
    else:
        step = evolve(step, calls=calls)
    clock = state.tool_clock
    if worker is not None:
        others = clock.others_seq if clock.worker == worker else clock.seq
        clock = ToolClock(worker, seq, others)
    return evolve(state, head=seq, turn=evolve(turn, step=step), tool_clock=clock)
