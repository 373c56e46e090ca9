"""What a caller asks for, and what it gets back."""

from dataclasses import dataclass, field

from threadlog.events.content import MessagePart, ModelRef
from threadlog.events.input import Delivery
from threadlog.events.thread import Limits, ThinkingLevel, Workspace
from threadlog.ids import EventId, Position, Seq, ThreadId


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """Settings of a thread; None leaves one as it is, or at its default in a new thread."""

    model: ModelRef | None = None
    thinking: ThinkingLevel | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    limits: Limits | None = None
    workspace: Workspace | None = None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message for the inbox. Long texts are moved to the blob store."""

    content: tuple[MessagePart, ...]
    delivery: Delivery = "next_turn"


@dataclass(frozen=True, slots=True)
class NewThread:
    """A thread to be made."""

    settings: ThreadSettings = field(default_factory=ThreadSettings)
    title: str | None = None
    message: NewMessage | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """The command's events are in the log, durable; whether they are valid is for the fold to say.

    Shapes:  `event_id` is the message's where there is one, else the command's first event's;
             `position` is the last event's: where the views pass it, the verdict is there.
             `intent` is a digest of what was asked for, empty where it is not known: two requests
             with one key may race, and only one of them is in force.
    """

    thread_id: ThreadId
    event_id: EventId
    position: Position
    intent: bytes = field(default=b"", kw_only=True)


@dataclass(frozen=True, slots=True)
class Accepted(Appended):
    """The command's event is in the log and was judged valid."""

    seq: Seq
