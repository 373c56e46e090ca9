"""Bodies of the thread routes: what a client sends and what it gets.

A JSON array is no tuple to a strict model that is given parsed JSON, so those members are not
strict themselves; what is in them is.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from threadlog.events.content import MessagePart, ModelRef
from threadlog.events.input import Delivery
from threadlog.events.thread import Limits, ThinkingLevel, Workspace
from threadlog.ids import CallId, EventId, ThreadId, TurnId


class Wire(BaseModel):
    """Base of every body: immutable, strict, closed."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


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

    turn_id: TurnId
    call_id: CallId | None = None


class AcceptedBody(Wire):
    """The event is in the log and was judged valid. `receipt` is opaque."""

    thread_id: ThreadId
    event_id: EventId
    receipt: str
    seq: int


class ProblemBody(Wire):
    """What went wrong (RFC 9457). `code` is stable; `retryable`: it may work later."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
