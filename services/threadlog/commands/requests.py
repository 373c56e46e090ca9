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
class Accepted:
    """The command's event is in the log and was judged valid.

    Shapes:  `event_id` is the message's where there is one, else the command's first event's.
    """

    thread_id: ThreadId
    event_id: EventId
    position: Position
    seq: Seq
