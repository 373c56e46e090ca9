"""A step: one model request plus the tool calls its response caused.

`step.started` is a claim: the request may be sent only by its writer, after it was read back.
"""

from typing import ClassVar, Literal

from pydantic import Field

from threadlog.events.content import (
    Count,
    Frozen,
    ModelRef,
    Number,
    Ordinal,
    OutputPart,
    Text,
    Usage,
    Word,
)
from threadlog.events.envelope import Body
from threadlog.ids import EventId
from threadlog.limits import (
    CALLS_PER_STEP_MAX,
    OUTPUT_PARTS_MAX,
    PROVIDER_CALL_ID_CHARS_MAX,
    TOOL_NAME_CHARS_MAX,
)

StopReason = Literal["end", "calls", "length", "refusal", "other"]
ErrorClass = Literal[
    "rate_limited",
    "overloaded",
    "timeout",
    "idle",
    "connection",
    "cut_stream",
    "malformed",
    "empty",
    "too_large",
    "unauthenticated",
    "not_found",
    "bad_request",
    "context_overflow",
    "script_exhausted",
    "refused",
    "shutdown",
    "internal",
]


class Manifest(Frozen):
    """What a model request was made of: a range of the stream and hashes, never a copy.

    Shapes:  the range is every accepted event from `from_seq` up to the claim that carries this,
             the claim's own `admits` included; `system_sha256` None: no system prompt; `renderer`
             names the code that rendered it, `openai-chat/1`.
    """

    from_seq: Count
    system_sha256: str | None = None
    tools_sha256: str
    request_sha256: str
    request_bytes: Count
    renderer: str


class StepStarted(Body):
    """The claim of one attempt of a model request.

    `admits`: steering messages that join at this step. `decided_at`: the seq it was decided at; a
    steer, interrupt, cancel, rewind or configuration since voids it.
    """

    TYPE: ClassVar[str] = "step.started"

    number: Ordinal
    attempt: Ordinal
    decided_at: Count
    admits: tuple[EventId, ...] = ()
    model: ModelRef
    manifest: Manifest


class ModelCall(Frozen):
    """One tool call as the model wrote it; `arguments` is the model's own text, JSON or not."""

    provider_call_id: str = Field(max_length=PROVIDER_CALL_ID_CHARS_MAX)
    name: str = Field(max_length=TOOL_NAME_CHARS_MAX)
    arguments: Text


class ModelResponded(Body):
    """The response arrived; it opens its calls in the fold. `claim`: the `step.started` it closes.

    `usage` None: the provider sent none.
    """

    TYPE: ClassVar[str] = "model.responded"

    claim: EventId
    attempt: Ordinal
    content: tuple[OutputPart, ...] = Field(default=(), max_length=OUTPUT_PARTS_MAX)
    calls: tuple[ModelCall, ...] = Field(default=(), max_length=CALLS_PER_STEP_MAX)
    stop: Word
    usage: Usage | None = None
    model: ModelRef


class ModelAttemptFailed(Body):
    """One attempt failed. With `retryable` the next one is due `delay_ms` later, at `due_at_ms`.

    Units:   milliseconds; `due_at_ms` since the epoch, a reader waits clamp(due - now, 0, delay).
    """

    TYPE: ClassVar[str] = "model.attempt_failed"

    claim: EventId
    attempt: Ordinal
    error_class: Word
    message: str = Field(max_length=2_000)
    retryable: bool
    delay_ms: Count = 0
    due_at_ms: Number = 0
    usage: Usage | None = None


class ModelInterrupted(Body):
    """The response was stopped on request; `content` is what had been delivered so far."""

    TYPE: ClassVar[str] = "model.interrupted"

    claim: EventId
    attempt: Ordinal
    content: tuple[OutputPart, ...] = Field(default=(), max_length=OUTPUT_PARTS_MAX)
    cause: str = Field(max_length=200)
    usage: Usage | None = None


class StepReleased(Body):
    """A claim that will not be used, or whose writer is gone, was given up; the next attempt opens.

    `claim`: the `step.started` concerned, which may never have reached the log.
    """

    TYPE: ClassVar[str] = "step.released"

    number: Ordinal
    attempt: Ordinal
    claim: EventId
    by: Literal["writer", "settlement"]
    reason: Word


class StepFinished(Body):
    """The step is closed: response and all its calls are settled, or it failed for good.

    `usage` sums what all its attempts were billed; None where no attempt reported any.
    """

    TYPE: ClassVar[str] = "step.finished"

    number: Ordinal
    attempts: Ordinal
    usage: Usage | None = None
