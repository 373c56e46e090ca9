"""Content members of parts and messages: taken out, put in, and the blobs they refer to. Pure."""

from collections.abc import Iterable

from threadlog.events.content import (
    BlobRef,
    MessagePart,
    NativePart,
    OutputPart,
    Text,
    TextPart,
    ThinkingPart,
)
from threadlog.thread.messages import AssistantMessage, Message, UserMessage


def printable(text: str) -> str:
    """The text without halves of surrogate pairs, which no event can hold: a path may have them."""
    return text.encode("utf-8", "replace").decode()


def text_of(part: OutputPart) -> Text:
    """The content member of an output part."""
    return part.json_text if isinstance(part, NativePart) else part.text


def with_text(part: OutputPart, text: Text) -> OutputPart:
    """The part with another content member."""
    match part:
        case TextPart():
            return TextPart(text=text)
        case ThinkingPart():
            return ThinkingPart(text=text, signature=part.signature)
        case NativePart():
            return NativePart(provider=part.provider, json_text=text)


def refs_of(messages: Iterable[Message]) -> set[str]:
    """The sha256 of every blob that the messages refer to."""
    found: set[str] = set()
    for message in messages:
        if isinstance(message, UserMessage):
            found.update(ref.sha256 for p in message.parts if (ref := _ref_of(p)) is not None)
        elif isinstance(message, AssistantMessage):
            texts = [text_of(p) for p in message.parts] + [c.arguments for c in message.calls]
            found.update(t.sha256 for t in texts if isinstance(t, BlobRef))
        elif isinstance(message.text, BlobRef):
            found.add(message.text.sha256)
    return found


def _ref_of(part: MessagePart) -> BlobRef | None:
    if isinstance(part, TextPart):
        return part.text if isinstance(part.text, BlobRef) else None
    return part.blob
