"""What came of one model request, and the event that says so."""

from dataclasses import dataclass

from threadlog.clock import Clock
from threadlog.errors import ModelError
from threadlog.events.content import ModelRef, OutputPart, Usage
from threadlog.events.envelope import Body
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelCall,
    ModelInterrupted,
    ModelResponded,
    StopReason,
)
from threadlog.ids import EventId
from threadlog.planner.retry import retry_delay_ms
from threadlog.runtime.content import printable
from threadlog.thread.state import Step


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete response, large texts already in the blob store."""

    content: tuple[OutputPart, ...]
    calls: tuple[ModelCall, ...]
    stop: StopReason
    usage: Usage | None
    model: ModelRef


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed."""

    error: ModelError


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The request was stopped; `content` is what had come so far."""

    content: tuple[OutputPart, ...]
    cause: str


Result = Answered | Failed | Interrupted


def result_body(result: Result, claim: EventId, step: Step, clock: Clock) -> Body:
    """The body of the event that closes `claim`, the open claim of `step`, with this result."""
    match result:
        case Answered():
            return ModelResponded(
                claim=claim,
                attempt=step.attempt,
                content=result.content,
                calls=result.calls,
                stop=result.stop,
                usage=result.usage,
                model=result.model,
            )
        case Interrupted():
            return ModelInterrupted(
                claim=claim, attempt=step.attempt, content=result.content, cause=result.cause
            )
        case Failed():
            return _failed(result.error, claim, step, clock)


def _failed(error: ModelError, claim: EventId, step: Step, clock: Clock) -> ModelAttemptFailed:
    delay_ms = retry_delay_ms(error, step.failures + 1, claim)
    return ModelAttemptFailed(
        claim=claim,
        attempt=step.attempt,
        error_class=error.error_class,
        message=printable(str(error))[:2_000],
        retryable=delay_ms is not None,
        delay_ms=delay_ms or 0,
        due_at_ms=clock.now_ms() + (delay_ms or 0),
    )
