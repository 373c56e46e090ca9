"""A whole recorded turn, as readers see it: two steps, two calls of one response, an answer."""

from collections.abc import Sequence

from tests.helpers.events import event_id, make_event, thread_id
from threadlog.events.content import BlobRef, ModelRef, TextPart, Usage
from threadlog.events.envelope import Body, Event
from threadlog.events.input import MessageReceived
from threadlog.events.step import Manifest, ModelCall, ModelResponded, StepFinished, StepStarted
from threadlog.events.thread import ThreadConfigured, ThreadCreated, Workspace
from threadlog.events.tool import FileChanged, ToolFinished, ToolRequested, ToolStarted
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import CallId, EventId, Position, Seq, TurnId
from threadlog.ports.views import StoredEvent

MODEL = ModelRef(provider="scripted", name="demo")
TURN = TurnId(event_id("turn"))
_MANIFEST = Manifest(
    from_seq=0,
    tools_sha256="0" * 64,
    request_sha256="1" * 64,
    request_bytes=10,
    renderer="scripted/1",
)
_BLOB = BlobRef(sha256="2" * 64, bytes=1_723, media_type="text/plain")


def call(name: str) -> CallId:
    """The id of the call `name`."""
    return CallId(event_id(name))


def stored(events: Sequence[Event]) -> list[StoredEvent]:
    """The events as accepted ones, numbered from 0."""
    return [StoredEvent(Position(n + 1), Seq(n), event) for n, event in enumerate(events)]


def happened(name: str, body: Body, cause: str | None = None, *, actor: str = "user:x") -> Event:
    """An event named `name`, caused by the one named `cause`, of the turn if it is in one."""
    is_input = isinstance(body, ThreadCreated | ThreadConfigured | MessageReceived)
    return make_event(
        body,
        event_id=EventId(event_id(name)),
        thread=thread_id(),
        caused_by=None if cause is None else event_id(cause),
        turn_id=None if is_input else TURN,
        actor=actor,
    )


def started(number: int) -> StepStarted:
    """The claim of a step."""
    return StepStarted(number=number, attempt=1, decided_at=3, model=MODEL, manifest=_MANIFEST)


def responded(claim: str, text: str, *calls: str) -> ModelResponded:
    """A response with calls of the tool."""
    return ModelResponded(
        claim=event_id(claim),
        attempt=1,
        content=(TextPart(text=text),),
        calls=tuple(
            ModelCall(provider_call_id=f"p{n}", name="cli", arguments=f'{{"command":"{line}"}}')
            for n, line in enumerate(calls)
        ),
        stop="calls" if calls else "end",
        usage=Usage(input=1_200, output=30),
        model=MODEL,
    )


def requested(ordinal: int, command: str) -> ToolRequested:
    """A call that may start."""
    return ToolRequested(ordinal=ordinal, gate="free", effect="unsafe", command=command)


def finished(name: str, outcome: str = "ok", output: str = "", *, code: int = 0) -> ToolFinished:
    """The outcome of the call `name`."""
    return ToolFinished.model_validate(
        {
            "call_id": call(name),
            "attempt": 1,
            "claim": event_id(f"{name} started"),
            "by": "writer",
            "outcome": outcome,
            "output": output,
            "exit_code": code,
            "duration_ms": 1_234,
        }
    )


def whole_turn() -> list[StoredEvent]:
    """Message, step with two calls (the second ends first), step with the answer."""
    text = MessageReceived(
        base_seq=-1, delivery="next_turn", content=(TextPart(text="repair\nit"),)
    )
    workspace = Workspace(kind="attached", path="/srv/project")
    began = ToolStarted(call_id=call("first"), attempt=1, decided_at=6)
    began_2 = ToolStarted(call_id=call("second"), attempt=1, decided_at=6)
    changed = FileChanged(
        call_id=call("second"),
        attempt=1,
        claim=event_id("second started"),
        ordinal=1,
        path="a.py",
        after=_BLOB,
    )
    return stored(
        [
            happened("created", ThreadCreated()),
            happened(
                "configured",
                ThreadConfigured(base_seq=-1, model=MODEL, workspace=workspace),
                "created",
            ),
            happened("message", text),
            happened("turn", TurnStarted(number=1, admits=(event_id("message"),)), "message"),
            happened("step 1", started(1), "turn"),
            happened("responded 1", responded("step 1", "I look.", "ls", "make"), "step 1"),
            happened("first", requested(0, "ls"), "responded 1"),
            happened("second", requested(1, "make"), "responded 1"),
            happened("first started", began, "first"),
            happened("second started", began_2, "second"),
            happened("changed", changed, "second started"),
            happened(
                "second finished", finished("second", "error", "boom\n", code=2), "second started"
            ),
            happened("first finished", finished("first", "ok", "a.py\nb.py\n"), "first started"),
            happened("step 1 finished", StepFinished(number=1, attempts=1), "first finished"),
            happened("step 2", started(2), "step 1 finished"),
            happened("responded 2", responded("step 2", "Done."), "step 2"),
            happened("step 2 finished", StepFinished(number=2, attempts=1), "responded 2"),
            happened(
                "finished",
                TurnFinished(verdict="completed", decided_at=15, steps=2),
                "step 2 finished",
            ),
        ]
    )
