"""Makers: each gives, for a state, the event that an honest writer would append in it.

A maker works in every state: what the state lacks (a turn, a call) has a stand-in, so that events
out of place can be made, too. `bent` changes members of an event.
"""

from collections.abc import Callable, Sequence

from tests.helpers.events import WHEN, event_id, make_event
from threadlog import ids
from threadlog.events.codec import decode_body, encode_body
from threadlog.events.content import BlobRef, MessagePart, ModelRef, OutputPart, TextPart, Usage
from threadlog.events.envelope import Body, Event
from threadlog.events.input import CancelRequested, Delivery, MessageReceived
from threadlog.events.step import (
    ErrorClass,
    Manifest,
    ModelAttemptFailed,
    ModelCall,
    ModelInterrupted,
    ModelResponded,
    StepFinished,
    StepReleased,
    StepStarted,
    StopReason,
)
from threadlog.events.thread import Limits, ThreadConfigured, ThreadCreated
from threadlog.events.tool import (
    Effect,
    FileChanged,
    Gate,
    Outcome,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.events.turn import TurnFinished, TurnStarted, Verdict
from threadlog.ids import CallId, EventId, Seq, TurnId, WorkerId
from threadlog.thread.state import Call, Claim, Step, ThreadState, Turn, steering

MODEL = ModelRef(provider="scripted", name="small")
NOBODY = event_id("nobody")
"""An id that no accepted event has."""
COMMAND = '{"command":"true"}'

Maker = Callable[[ThreadState], Event]


def bent(maker: Maker, **changes: object) -> Maker:
    """The maker's event with members of its envelope or body changed; validated as from a log."""

    def make(state: ThreadState) -> Event:
        event = maker(state)
        inner = {name: value for name, value in changes.items() if name not in Event.model_fields}
        outer = {name: value for name, value in changes.items() if name in Event.model_fields}
        data = event.data
        if inner and isinstance(event.body, Body):
            data = encode_body(event.body.model_copy(update=inner))
        body = decode_body(event.type, event.version, data)
        return event.model_copy(update={"data": data, "body": body, **outer})

    return make


# -- the thread and its inputs


def created(title: str | None = "a test") -> Maker:
    return lambda s: _event(s, ThreadCreated(title=title), EventId(ids.derive("new", s.thread_id)))


def configured(
    *,
    model: ModelRef | None = None,
    system_prompt: str | None = None,
    limits: Limits | None = None,
    tools: tuple[str, ...] | None = None,
    key: str | None = None,
) -> Maker:
    def make(s: ThreadState) -> Event:
        body = ThreadConfigured(
            base_seq=s.head, model=model, system_prompt=system_prompt, limits=limits, tools=tools
        )
        return _input(s, body, "thread.configure", key)

    return make


def message(
    delivery: Delivery = "next_turn",
    text: str = "hello",
    *,
    key: str | None = None,
    base_seq: int | None = None,
    content: tuple[MessagePart, ...] = (),
) -> Maker:
    def make(s: ThreadState) -> Event:
        body = MessageReceived(
            base_seq=s.head if base_seq is None else base_seq,
            delivery=delivery,
            content=content or (TextPart(text=text),),
        )
        return _input(s, body, "message.send", key)

    return make


def cancel(
    n: int | None = None,
    *,
    key: str | None = None,
    base_seq: int | None = None,
    turn: TurnId | None = None,
) -> Maker:
    """A cancel of `turn`, None: the open one, or of call `n` of its step."""

    def make(s: ThreadState) -> Event:
        body = CancelRequested(
            base_seq=s.head if base_seq is None else base_seq,
            turn_id=turn or turn_of(s).turn_id,
            cause="user",
            call_id=None if n is None else call_of(s, n).call_id,
        )
        return _input(s, body, "cancel.request", key)

    return make


# -- turns and steps


def turn_started(admits: Sequence[EventId] | None = None) -> Maker:
    """The next turn; `admits` None: the whole queue."""

    def make(s: ThreadState) -> Event:
        number = s.turns + 1
        opened = ids.turn_id(s.thread_id, number)
        queue = tuple(q.message_id for q in s.queue) or (NOBODY,)
        body = TurnStarted(number=number, admits=queue if admits is None else tuple(admits))
        cause = body.admits[0]
        return _event(s, body, EventId(opened), cause=cause).model_copy(update={"turn_id": opened})

    return make


def step_started(worker: str = "p1", *, decided_at: int | None = None) -> Maker:
    """The claim of the step's attempt, admitting all steering messages."""

    def make(s: ThreadState) -> Event:
        turn = turn_of(s)
        step, head = turn.step, Seq(max(s.head, 0) if decided_at is None else decided_at)
        body = StepStarted(
            number=step.number,
            attempt=step.attempt,
            decided_at=head,
            admits=steering(s),
            model=s.config.model or MODEL,
            manifest=_manifest(),
        )
        claim = ids.claim_id(turn.turn_id, step.number, step.attempt, WorkerId(worker), head)
        return _event(s, body, claim, cause=step.cause, worker=worker)

    return make


def responded(
    calls: int = 0,
    *,
    text: str = "done",
    stop: StopReason | None = None,
    usage: Usage | None = None,
    content: tuple[OutputPart, ...] | None = None,
    arguments: str = COMMAND,
) -> Maker:
    def make(s: ThreadState) -> Event:
        step = turn_of(s).step
        body = ModelResponded(
            claim=_claim(step.claim).event_id,
            attempt=step.attempt,
            content=(TextPart(text=text),) if content is None else content,
            calls=tuple(
                ModelCall(provider_call_id=f"call_{n}", name="cli", arguments=arguments)
                for n in range(calls)
            ),
            stop=stop or ("calls" if calls else "end"),
            usage=usage,
            model=s.config.model or MODEL,
        )
        return _closing(s, body, step.claim, actor="model")

    return make


def attempt_failed(
    *,
    retryable: bool = True,
    error_class: ErrorClass = "overloaded",
    delay_ms: int = 0,
    due_at_ms: int = 0,
    usage: Usage | None = None,
) -> Maker:
    def make(s: ThreadState) -> Event:
        step = turn_of(s).step
        body = ModelAttemptFailed(
            claim=_claim(step.claim).event_id,
            attempt=step.attempt,
            error_class=error_class,
            message="no answer",
            retryable=retryable,
            delay_ms=delay_ms,
            due_at_ms=due_at_ms,
            usage=usage,
        )
        return _closing(s, body, step.claim)

    return make


def interrupted(text: str = "so far", *, usage: Usage | None = None) -> Maker:
    def make(s: ThreadState) -> Event:
        step = turn_of(s).step
        body = ModelInterrupted(
            claim=_claim(step.claim).event_id,
            attempt=step.attempt,
            content=(TextPart(text=text),) if text else (),
            cause="interrupt",
            usage=usage,
        )
        return _closing(s, body, step.claim)

    return make


def step_released(*, settles: bool = False, worker: str | None = None) -> Maker:
    """The open claim is given up, or a claim of `worker` that never arrived is."""

    def make(s: ThreadState) -> Event:
        step = turn_of(s).step
        claim = step.claim or _claim(None, worker or "p1")
        body = StepReleased(
            number=step.number,
            attempt=step.attempt,
            claim=claim.event_id,
            by="settlement" if settles else "writer",
            reason="worker_gone" if settles else "late",
        )
        cause = step.cause if step.claim is None else claim.event_id
        return _event(s, body, cause=cause, worker=worker or claim.worker, of=claim.event_id)

    return make


def step_finished() -> Maker:
    def make(s: ThreadState) -> Event:
        turn = turn_of(s)
        step = turn.step
        body = StepFinished(number=step.number, attempts=step.attempt, usage=step.usage)
        return _event(s, body, cause=step.cause, of=EventId(f"{turn.turn_id}{step.number}"))

    return make


def turn_finished(verdict: Verdict | None = None, *, decided_at: int | None = None) -> Maker:
    """The end of the turn; `verdict` None: the one that the state asks for."""

    def make(s: ThreadState) -> Event:
        turn = turn_of(s)
        fitting: Verdict = turn.floor or ("error" if turn.error else "completed")
        body = TurnFinished(
            verdict=verdict or ("cancelled" if turn.cancel else fitting),
            decided_at=s.head if decided_at is None else decided_at,
            steps=turn.steps,
        )
        return _event(s, body, cause=turn.cause, of=EventId(turn.turn_id))

    return make


# -- calls


def requested(
    n: int = 0,
    *,
    gate: Gate = "free",
    effect: Effect = "unsafe",
    command: str = "true",
) -> Maker:
    def make(s: ThreadState) -> Event:
        call = call_of(s, n)
        reason = None if gate == "free" else "invalid_arguments"
        body = ToolRequested(ordinal=n, gate=gate, effect=effect, command=command, reason=reason)
        return _event(s, body, EventId(call.call_id), cause=call.cause, actor="model")

    return make


def tool_started(n: int = 0, worker: str = "t1", *, decided_at: int | None = None) -> Maker:
    def make(s: ThreadState) -> Event:
        call, head = call_of(s, n), Seq(max(s.head, 0) if decided_at is None else decided_at)
        body = ToolStarted(call_id=call.call_id, attempt=call.attempt, decided_at=head)
        claim = ids.claim_id(call.call_id, 0, call.attempt, WorkerId(worker), head)
        return _event(s, body, claim, cause=call.cause, worker=worker)

    return make


def tool_released(n: int = 0, *, settles: bool = False, worker: str | None = None) -> Maker:
    def make(s: ThreadState) -> Event:
        call = call_of(s, n)
        claim = call.claim or _claim(None, worker or "t1")
        body = ToolReleased(
            call_id=call.call_id,
            attempt=call.attempt,
            claim=claim.event_id,
            by="settlement" if settles else "writer",
            reason="worker_gone" if settles else "late",
        )
        cause = call.cause if call.claim is None else claim.event_id
        return _event(s, body, cause=cause, worker=worker or claim.worker, of=claim.event_id)

    return make


def file_changed(n: int = 0, path: str = "a.txt") -> Maker:
    def make(s: ThreadState) -> Event:
        call = call_of(s, n)
        body = FileChanged(
            call_id=call.call_id,
            attempt=call.attempt,
            claim=_claim(call.claim, "t1").event_id,
            ordinal=call.files + 1,
            path=path,
            after=BlobRef(sha256="ab" * 32, bytes=3, media_type="text/plain"),
        )
        event = _closing(s, body, call.claim)
        derived = ids.caused_id(body.claim, body.TYPE, path)
        return event.model_copy(update={"event_id": derived})

    return make


def tool_finished(n: int = 0, outcome: Outcome = "ok", output: str = "output") -> Maker:
    """The outcome that the call's writer appends."""

    def make(s: ThreadState) -> Event:
        call = call_of(s, n)
        body = ToolFinished(
            call_id=call.call_id,
            attempt=call.attempt,
            claim=_claim(call.claim, "t1").event_id,
            by="writer",
            outcome=outcome,
            output=output,
            output_bytes=len(output.encode()),
            exit_code=0 if outcome == "ok" else None,
            files=call.files,
        )
        return _closing(s, body, call.claim, of=EventId(call.call_id))

    return make


def tool_settled(n: int = 0) -> Maker:
    """The outcome `unknown`, of a call whose worker is gone."""
    return bent(
        tool_finished(n, "unknown", ""), by="settlement", worker=None, reason="worker_gone", files=0
    )


def tool_closed(n: int = 0, outcome: Outcome = "not_started") -> Maker:
    """The planner's outcome of a call that never started."""

    def make(s: ThreadState) -> Event:
        call = call_of(s, n)
        body = ToolFinished(
            call_id=call.call_id, attempt=call.attempt, by="planner", outcome=outcome
        )
        return _event(s, body, cause=call.cause, of=EventId(call.call_id))

    return make


# -- records that are not ours


def unknown(
    type_: str = "note.added", *, version: int = 1, critical: bool = False, data: bytes = b"{}"
) -> Maker:
    """An event of a type or version that this reader does not know, or with a body of its own."""

    def make(s: ThreadState) -> Event:
        event = _event(s, ThreadCreated(), EventId(ids.derive("unknown", _fresh(s), type_)))
        return event.model_copy(
            update={
                "type": type_,
                "version": version,
                "critical": critical,
                "data": data,
                "body": decode_body(type_, version, data),
            }
        )

    return make


# -- what the makers share


def turn_of(state: ThreadState) -> Turn:
    """The open turn; a stand-in where none is open."""
    if state.turn is not None:
        return state.turn
    number = max(state.turns, 1)
    return Turn(
        turn_id=ids.turn_id(state.thread_id, number),
        number=number,
        started_seq=Seq(0),
        cause=NOBODY,
        step=Step(number=1, cause=NOBODY),
        admitted=(),
    )


def call_of(state: ThreadState, n: int) -> Call:
    """Call `n` of the step; a stand-in where there is none."""
    calls = turn_of(state).step.calls
    return calls[n] if n < len(calls) else Call(CallId(event_id("no-call")), n, NOBODY)


def _claim(claim: Claim | None, worker: str = "p1") -> Claim:
    return claim or Claim(event_id("no-claim"), WorkerId(worker), Seq(0))


def _event(
    state: ThreadState,
    body: Body,
    name: EventId | None = None,
    *,
    cause: EventId | None = None,
    worker: str | None = None,
    actor: str | None = None,
    of: EventId | None = None,
) -> Event:
    """`name` None: derived from the cause, the body's type and `of`."""
    family = body.TYPE.partition(".")[0]
    runs = worker is not None and family in ("tool", "file")
    source = "gateway" if family == "thread" else "tool_runner" if runs else "planner"
    return make_event(
        body,
        event_id=name or ids.caused_id(cause or "", body.TYPE, of or ""),
        thread=state.thread_id,
        turn_id=turn_of(state).turn_id if cause is not None else None,
        caused_by=cause,
        actor=actor or f"service:{source}",
        source=source,
        worker=None if worker is None else WorkerId(worker),
        occurred_at=WHEN,
    )


def _closing(
    state: ThreadState,
    body: Body,
    claim: Claim | None,
    *,
    actor: str | None = None,
    of: EventId | None = None,
) -> Event:
    closed = _claim(claim)
    return _event(state, body, cause=closed.event_id, worker=closed.worker, actor=actor, of=of)


def _input(state: ThreadState, body: Body, operation: str, key: str | None) -> Event:
    key = key or _fresh(state)
    name = ids.input_id(state.tenant_id, state.thread_id, operation, key)
    event = make_event(
        body, event_id=name, thread=state.thread_id, actor="user:test", idempotency_key=key
    )
    return event


def _fresh(state: ThreadState) -> str:
    """A key that no earlier input of a story has: something was judged in between."""
    last = state.inputs.window[-1][0] if state.inputs.window else ""
    return f"{state.head}-{len(state.inputs.window)}-{last}"


def _manifest() -> Manifest:
    return Manifest(
        from_seq=0,
        tools_sha256="00" * 32,
        request_sha256="11" * 32,
        request_bytes=10,
        renderer="scripted/1",
    )
