"""Provider-neutral messages: what a transcript consists of and what adapters render."""

from dataclasses import dataclass

from threadlog.events.content import MessagePart, OutputPart, Text
from threadlog.ids import CallId


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person or program sent."""

    parts: tuple[MessagePart, ...]


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A tool call inside an assistant message, under our own unique id.

    Shapes:  `arguments` is the model's own text, which need not be JSON: an adapter whose wire form
             demands an object renders such arguments as one.
    """

    call_id: CallId
    name: str
    arguments: Text


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model answered; every call in it is followed by its `ToolMessage`.

    Shapes:  `provider` made the native parts; another provider is not shown them.
             `interrupted`: the text broke off on request.
    """

    parts: tuple[OutputPart, ...]
    calls: tuple[MessageCall, ...]
    provider: str
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The outcome of one call, as the model is told it."""

    call_id: CallId
    name: str
    text: Text
    is_error: bool


Message = UserMessage | AssistantMessage | ToolMessage
