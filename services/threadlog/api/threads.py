"""Bodies of requests: what a client sends, closed, so that a misspelt member is an error.

A JSON array is no tuple to a strict model that is given parsed JSON, so those members are not
strict themselves; what is in them is.
"""

from typing import Annotated, Literal

from pydantic import Field

from threadlog.api.parts import Content, Wire
from threadlog.events.content import (
    MessagePart,
    ModelRef,
    Name,
    TextPart,
)
from threadlog.events.input import Delivery
from threadlog.events.thread import Limits, ThinkingLevel, Workspace
from threadlog.ids import UUID_PATTERN, TurnId

TITLE_CHARS_MAX = 200
_TOOLS_MAX = 64


class ModelBody(ModelRef, Wire):
    """Which model is asked, by provider and name."""

    def plain(self) -> ModelRef:
        """The same as it is in an event."""
        return ModelRef(provider=self.provider, name=self.name)


class LimitsBody(Limits, Wire):
    """Bounds of one thread; a member left out stays as it is."""

    def plain(self) -> Limits:
        """The same as they are in an event."""
        return Limits(**self.model_dump())


class WorkspaceBody(Workspace, Wire):
    """Where the tools work. `attached` is for the runtime on a person's own machine."""

    def plain(self) -> Workspace:
        """The same as it is in an event."""
        return Workspace(kind=self.kind, path=self.path)


class SettingsBody(Wire):
    """Settings of a thread; a member left out stays as it is."""

    model: ModelBody | None = None
    thinking: ThinkingLevel | None = None
    system_prompt: str | None = None
    tools: Annotated[tuple[Name, ...], Field(strict=False, max_length=_TOOLS_MAX)] | None = None
    limits: LimitsBody | None = None
    workspace: WorkspaceBody | None = None


class MessageBody(Wire):
    """A message for the inbox. `content`: a text, or parts."""

    content: Content
    delivery: Delivery = "reject"

    def parts(self) -> tuple[MessagePart, ...]:
        """The content as it is in an event."""
        if isinstance(self.content, str):
            return (TextPart(text=self.content),)
        return tuple(body.part() for body in self.content)


class ThreadBody(Wire):
    """A thread to be made, with its first message if there is one."""

    settings: SettingsBody = SettingsBody()
    title: str | None = Field(default=None, max_length=TITLE_CHARS_MAX)
    message: MessageBody | None = None


class CancelBody(Wire):
    """The open turn is to stop. `queue`: what becomes of the messages that wait; there is no
    default. `turn_id` left out: whichever turn is open.
    """

    queue: Literal["keep", "drop"]
    turn_id: TurnId | None = Field(default=None, pattern=f"^{UUID_PATTERN}$")


class CallCancelBody(Wire):
    """One call of the open turn is to stop; the turn goes on."""

    turn_id: TurnId | None = Field(default=None, pattern=f"^{UUID_PATTERN}$")
