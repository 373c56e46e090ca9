"""Bodies of the thread routes: what a client sends and what it gets.

A JSON array is no tuple to a strict model that is given parsed JSON, so those members are not
strict themselves; what is in them is.
"""

from typing import Annotated

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, model_validator

from threadlog.events.content import MessagePart, ModelRef
from threadlog.events.input import Delivery
from threadlog.events.thread import Limits, ThinkingLevel, Workspace
from threadlog.ids import UUID_PATTERN, CallId, EventId, ThreadId, TurnId


class Wire(BaseModel):
    """Base of every body: immutable, strict, closed."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        """Half a surrogate pair is no text: what holds one could not be written to the log."""
        try:
            pydantic_core.to_json(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("not UTF-8 text") from error
        return value


class SettingsBody(Wire):
    """Settings of a thread; a member left out stays as it is."""

    model: ModelRef | None = None
    thinking: ThinkingLevel | None = None
    system_prompt: str | None = None
    tools: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    limits: Limits | None = None
    workspace: Workspace | None = None


class MessageBody(Wire):
    """A message for the inbox."""

    content: tuple[MessagePart, ...] = Field(min_length=1, strict=False)
    delivery: Delivery = "reject"


class ThreadBody(Wire):
    """A thread to be made, with its first message if there is one."""

    settings: SettingsBody = SettingsBody()
    title: str | None = Field(default=None, max_length=200)
    message: MessageBody | None = None


class CancelBody(Wire):
    """The open turn, or one call of it, is to stop."""

    turn_id: TurnId = Field(pattern=f"^{UUID_PATTERN}$")
    call_id: CallId | None = Field(default=None, pattern=f"^{UUID_PATTERN}$")


class AcceptedBody(Wire):
    """The event is in the log and was judged valid. `receipt` is opaque."""

    thread_id: ThreadId
    event_id: EventId
    receipt: str
    seq: int


class InfoBody(Wire):
    """Who answers. `models`: a hash of each provider's configuration, equal in equal processes."""

    version: str
    models: dict[str, str] = {}


class ProblemBody(Wire):
    """What went wrong (RFC 9457). `code` is stable; `retryable`: it may work later."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
