"""Bodies of answers. A member is added freely and never changes its meaning. Pure.

Every read says how fresh it is: `as_of_seq` is the head of the thread as it was read, `behind_ms`
for how long the log has held something that the views do not have yet, 0 once they have all.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from threadlog.events.content import Usage
from threadlog.ids import EventId, Seq, ThreadId, TurnId

ThreadStatus = Literal["idle", "queued", "open", "halted"]


class Answer(BaseModel):
    """Base of every answer."""

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class AcceptedBody(Answer):
    """The event is in the log, durable. `receipt` is opaque: give it to a read, which then waits
    until the views have passed the event, and says its seq or why it is void.
    """

    thread_id: ThreadId
    event_id: EventId
    receipt: str


class VerdictBody(Answer):
    """What became of the event of a receipt: a seq, or the reason why it is void."""

    event_id: EventId
    seq: Seq | None
    void: str | None = None


class Fresh(Answer):
    """Base of every read. `receipt`: the verdict on the receipt that was given, if one was."""

    as_of_seq: int | None
    behind_ms: int
    receipt: VerdictBody | None = None


class AmountsBody(Answer):
    """Steps, tokens by kind; `cost_micros` in millionths of a US dollar, null: no price known."""

    steps: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_micros: int | None


class ThreadSummary(Answer):
    """One thread of a list. `head` is the seq of its last event; times are RFC 3339 text."""

    thread_id: ThreadId
    title: str
    status: ThreadStatus
    head: int
    turns: int
    open_turn: TurnId | None
    queued: int
    verdict: str | None
    model: str | None
    usage: AmountsBody
    created_at: str
    updated_at: str


class ThreadAnswer(ThreadSummary, Fresh):
    """One thread."""


class ThreadsBody(Fresh):
    """Threads by last activity, newest first. `next`: the page token of the ones behind them.

    `scanned` counts the threads that a filter has looked at.
    """

    threads: tuple[ThreadSummary, ...]
    next: str | None
    scanned: int


class EventBody(Answer):
    """One event. `seq` null: it is void, for the reason `void`, which is there only then."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    seq: int | None
    event_id: EventId
    type: str
    version: int
    critical: bool
    tenant_id: str
    thread_id: ThreadId
    turn_id: TurnId | None
    caused_by: EventId | None
    actor: str
    source: str
    worker: str | None
    workspace_id: str | None
    idempotency_key: str | None
    occurred_at: str
    traceparent: str | None = None
    tracestate: str | None = None
    void: str | None = None
    payload: dict[str, JsonValue] | None


class EventsBody(Fresh):
    """A page of events: in the order of their seq, or newest first where `before` was given.

    `has_more`: there are others in that direction; go on from `next`, as `since` or `before`.
    """

    events: tuple[EventBody, ...]
    has_more: bool
    next: int | None


class TurnBody(Answer):
    """What came of the turn that took the message. `answer` is the text of its last response."""

    thread_id: ThreadId
    event_id: EventId
    receipt: str
    status: Literal["finished"] = "finished"
    seq: int
    turn_id: TurnId
    verdict: str
    cause: str | None
    answer: str
    steps: int
    usage: Usage | None
