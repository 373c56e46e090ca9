"""What a span of an effect says, from the events that begin and end it.

Guarantee: ids, names of closed sets, numbers, the configured model. No text that a person, a model
or a command wrote, so no word of a prompt, an argument, an output or an error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from threadlog.events.content import Usage
from threadlog.events.envelope import Body, Event, Invalid, Opaque
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepReleased,
    StepStarted,
)
from threadlog.events.tool import ToolFinished, ToolReleased, ToolStarted
from threadlog.ids import EventId
from threadlog.telemetry import semantics as names
from threadlog.telemetry.spans import Kind, Value

_TOOL = "cli"
_FAILURES = ("error", "timeout", "unknown")
_CLIENT: Kind = "client"
_INTERNAL: Kind = "internal"
_OfModel = ModelResponded | ModelAttemptFailed | ModelInterrupted | StepReleased
_OF_MODEL = (ModelResponded, ModelAttemptFailed, ModelInterrupted, StepReleased)
Anything = Body | Opaque | Invalid


@dataclass(frozen=True, slots=True)
class Ending:
    """What ended."""

    operation: str
    kind: Kind
    attributes: Mapping[str, Value]
    is_error: bool


def thread_attributes(service: str, event: Event) -> dict[str, Value]:
    """Who told the span, and what it is about."""
    return {
        names.SERVICE: service,
        names.TENANT: event.tenant_id,
        names.THREAD: event.thread_id,
        names.THREAD_AS_GEN_AI: event.thread_id,
        names.TURN: event.turn_id or "",
    }


def opening(body: Anything) -> Mapping[str, Value] | None:
    """What a claim says of the effect that it begins; None: it is no claim."""
    match body:
        case StepStarted():
            return {
                names.PROVIDER: body.model.provider,
                names.REQUEST_MODEL: body.model.name,
                names.STEP: body.number,
                names.ATTEMPT: body.attempt,
            }
        case ToolStarted():
            return {
                names.TOOL_NAME: _TOOL,
                names.TOOL_CALL_ID: body.call_id,
                names.ATTEMPT: body.attempt,
            }
        case _:
            return None


def claim_of(body: Anything) -> EventId | None:
    """The claim that this closes; None: it closes none."""
    return body.claim if isinstance(body, (*_OF_MODEL, ToolFinished, ToolReleased)) else None


def ending(body: Anything) -> Ending:
    """What the event that closes a claim says of the effect."""
    if isinstance(body, _OF_MODEL):
        operation, kind, said = names.ASK_MODEL, _CLIENT, _of_model(body)
    else:
        assert isinstance(body, ToolFinished | ToolReleased)
        operation, kind, said = names.EXECUTE_TOOL, _INTERNAL, _of_tool(body)
    return Ending(operation, kind, {names.OPERATION: operation, **said}, names.ERROR_TYPE in said)


def _of_model(body: _OfModel) -> dict[str, Value]:
    match body:
        case ModelResponded():
            said: dict[str, Value] = {
                names.OUTCOME: "responded",
                names.RESPONSE_MODEL: body.model.name,
                names.FINISH_REASONS: [body.stop],
            }
        case ModelAttemptFailed():
            said = {names.OUTCOME: "failed", names.ERROR_TYPE: body.error_class}
        case ModelInterrupted():
            said = {names.OUTCOME: "interrupted"}
        case StepReleased():
            return _released(body)
        case _:
            assert_never(body)
    return said | _tokens(body.usage)


def _of_tool(body: ToolFinished | ToolReleased) -> dict[str, Value]:
    if isinstance(body, ToolReleased):
        return _released(body)
    said: dict[str, Value] = {names.OUTCOME: body.outcome}
    if body.exit_code is not None:
        said[names.EXIT_CODE] = body.exit_code
    if body.outcome in _FAILURES:
        said[names.ERROR_TYPE] = body.outcome
    return said


def _released(body: StepReleased | ToolReleased) -> dict[str, Value]:
    """A claim that another worker settled began, as far as anybody knows, and never ended."""
    said: dict[str, Value] = {names.OUTCOME: "released"}
    if body.by == "settlement":
        said[names.ERROR_TYPE] = body.reason
    return said


def _tokens(usage: Usage | None) -> dict[str, Value]:
    """As the conventions count: what was read from a cache and written to it is input, too."""
    if usage is None:
        return {}
    return {
        names.INPUT_TOKENS: usage.input + usage.cache_read + usage.cache_write,
        names.OUTPUT_TOKENS: usage.output,
        names.CACHE_READ_TOKENS: usage.cache_read,
        names.CACHE_WRITE_TOKENS: usage.cache_write,
        names.REASONING_TOKENS: usage.reasoning,
    }
