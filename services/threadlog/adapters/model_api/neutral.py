"""What every wire form makes of the same neutral content, so that providers are told the same.

Pure: equal content, equal text. Nothing here is empty: servers refuse blank blocks, so what is
blank or gone is said in brackets.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence

import orjson

from threadlog.events.content import BlobRef, FilePart, ImagePart, Text
from threadlog.ids import CallId
from threadlog.thread.messages import AssistantMessage, Message, ToolMessage, UserMessage

Blobs = Mapping[str, bytes]

INTERRUPTED = "[interrupted: the reply was stopped here on request]"
NO_TEXT = "[no text]"
NO_OUTPUT = "[no output]"
PDF = "application/pdf"
IMAGE_TYPES = frozenset(["image/png", "image/jpeg", "image/gif", "image/webp"])
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS_MAX = 64


def text_of(text: Text, blobs: Blobs) -> str:
    """The text itself, or `[unavailable: …]` when its blob could not be loaded."""
    if isinstance(text, str):
        return text
    content = blobs.get(text.sha256)
    return unavailable("text", text) if content is None else content.decode("utf-8", "replace")


def unavailable(what: str, blob: BlobRef) -> str:
    """What stands in for content that is gone; depends on the reference alone."""
    return f"[unavailable: {what}, {blob.media_type}, {blob.bytes} bytes, sha256 {blob.sha256}]"


def shown(text: str, blank: str) -> str:
    """`text`, or `blank` when it has nothing to show."""
    return text if text.strip() else blank


def reply_text(texts: str, *, is_interrupted: bool) -> str:
    """The text of an assistant message, never blank, with a mark where it broke off."""
    if not is_interrupted:
        return shown(texts, NO_TEXT)
    return f"{texts}\n\n{INTERRUPTED}" if texts.strip() else INTERRUPTED


def image_of(part: ImagePart, blobs: Blobs) -> tuple[str, str] | str:
    """(media type, base64) of an image that every provider takes, else text that says why not."""
    media_type = base_type(part.blob)
    content = blobs.get(part.blob.sha256)
    if content is None:
        return unavailable("image", part.blob)
    if media_type not in IMAGE_TYPES or not content:
        return f"[image, {part.blob.media_type}, {len(content)} bytes: it cannot be shown]"
    return media_type, base64.b64encode(content).decode()


def file_of(part: FilePart, blobs: Blobs) -> tuple[str, str] | str:
    """(name, base64) of a PDF, else text: the file's own, or what is known of a binary one."""
    label = f"file {orjson.dumps(part.name).decode()}"
    content = blobs.get(part.blob.sha256)
    if content is None:
        return unavailable(label, part.blob)
    if base_type(part.blob) == PDF and content:
        return shown(part.name, "file.pdf"), base64.b64encode(content).decode()
    head = f"[{label}, {part.blob.media_type}, {len(content)} bytes"
    if b"\0" in content:
        return f"{head}: a binary file, which cannot be shown]"
    try:
        return f"{head}]\n{content.decode()}"
    except UnicodeDecodeError:
        return f"{head}: a binary file, which cannot be shown]"


def base_type(blob: BlobRef) -> str:
    """The media type without parameters, in lower case."""
    return blob.media_type.partition(";")[0].strip().lower()


def wire_call_id(call_id: CallId) -> str:
    """Our call id as providers accept it: `call_` and 32 hex digits."""
    return f"call_{call_id.replace('-', '')}"


def wire_name(name: str) -> str:
    """A tool name that providers accept; a model may have called a tool by any text at all."""
    return _UNFIT.sub("_", name[:_NAME_CHARS_MAX]) or "_"


def arguments_object(text: str) -> str:
    """The model's own arguments when they are a JSON object, else an object that holds them."""
    if not text.strip():
        return "{}"
    try:
        is_object = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        is_object = False
    return text if is_object else orjson.dumps({"_invalid": text}).decode()


def native_object(text: str) -> dict[str, object] | None:
    """The JSON object of a provider's own block, or None when it is none and cannot be shown."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and value else None


def check_pairing(messages: Sequence[Message]) -> None:
    """Every call has exactly one result, right behind its message, and nothing else has one.

    Raises:  AssertionError: the transcript is wrong, which is our own bug (DESIGN law 5).
    """
    seen: set[CallId] = set()
    opened: set[CallId] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            _expect(message.call_id in opened, f"a result without its call: {message.call_id}")
            opened.discard(message.call_id)
            continue
        _expect(not opened, f"calls without their result: {sorted(opened)}")
        for call_id in _calls(message):
            _expect(call_id not in seen, f"two calls with one id: {call_id}")
            seen.add(call_id)
            opened.add(call_id)
    _expect(not opened, f"calls without their result: {sorted(opened)}")


def _calls(message: UserMessage | AssistantMessage) -> Iterator[CallId]:
    if isinstance(message, AssistantMessage):
        for call in message.calls:
            yield call.call_id


def _expect(is_true: bool, finding: str) -> None:
    if not is_true:
        raise AssertionError(finding)
