"""Requests of OpenAI's completions endpoint: a request rendered to the exact bytes that are sent.

Pure, and the order of members is ours: equal requests give equal bytes on every machine and with
every SDK. Each message is rendered by itself and the results are joined, so that the prefix of a
growing thread may be kept. Bytes of a renderer that has shipped never change; a change is `/2`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import orjson

from threadlog.adapters.model_api.neutral import (
    NO_OUTPUT,
    PDF,
    Blobs,
    arguments_object,
    check_pairing,
    file_of,
    image_of,
    native_object,
    reply_text,
    shown,
    text_of,
    wire_call_id,
    wire_name,
)
from threadlog.events.content import MessagePart, NativePart, TextPart, ThinkingPart
from threadlog.ports.model import ModelRequest, ToolSpec
from threadlog.thread.messages import (
    AssistantMessage,
    Message,
    MessageCall,
    ToolMessage,
    UserMessage,
)

PROVIDER = "openai"
RENDERER = "openai-chat/1"
_LIMIT_NEW = "+max_completion_tokens"
_NO_USAGE = "-stream_options"
_OWN_MEMBERS = frozenset(["role", "content", "reasoning_content", "tool_calls", "tool_call_id"])


@dataclass(frozen=True, slots=True)
class Dialect:
    """What servers of this wire form differ in.

    Shapes:  `limits_completion`: the token limit is called `max_completion_tokens`, as OpenAI's
             own reasoning models demand; foreign servers know `max_tokens`. `asks_usage`: the
             request says `stream_options`, which a few servers refuse.
    """

    limits_completion: bool = False
    asks_usage: bool = True

    @property
    def renderer(self) -> str:
        """The name that stands in manifests: it alone says how to render the same bytes again."""
        limit = _LIMIT_NEW if self.limits_completion else ""
        return RENDERER + limit + ("" if self.asks_usage else _NO_USAGE)


PLAIN = Dialect()


def dialect_of(renderer: str) -> Dialect | None:
    """The dialect that a manifest's renderer names, None when it is of another wire form."""
    for limits_completion in (False, True):
        for asks_usage in (True, False):
            dialect = Dialect(limits_completion=limits_completion, asks_usage=asks_usage)
            if dialect.renderer == renderer:
                return dialect
    return None


def render(request: ModelRequest, dialect: Dialect = PLAIN) -> bytes:
    """The body of the request; streaming is always asked for."""
    check_pairing(request.messages)
    messages = [_message(message, request) for message in request.messages]
    if request.system_prompt and request.system_prompt.strip():
        messages.insert(0, orjson.dumps({"role": "system", "content": request.system_prompt}))
    head = orjson.dumps({"model": request.model.name})[:-1]
    tail = orjson.dumps(_settings(request, dialect))[1:]
    return head + b',"messages":[' + b",".join(messages) + b"]," + tail


def _settings(request: ModelRequest, dialect: Dialect) -> dict[str, object]:
    settings: dict[str, object] = {}
    if request.tools:
        settings["tools"] = [_tool(tool) for tool in request.tools]
    if request.thinking is not None:
        settings["reasoning_effort"] = request.thinking
    if request.output_tokens_max is not None:
        limit = "max_completion_tokens" if dialect.limits_completion else "max_tokens"
        settings[limit] = request.output_tokens_max
    settings["stream"] = True
    if dialect.asks_usage:
        settings["stream_options"] = {"include_usage": True}
    return settings


def _tool(tool: ToolSpec) -> dict[str, object]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": orjson.Fragment(tool.parameters),
    }
    return {"type": "function", "function": function}


def _message(message: Message, request: ModelRequest) -> bytes:
    match message:
        case UserMessage():
            return orjson.dumps({"role": "user", "content": _user(message, request.blobs)})
        case AssistantMessage():
            return _assistant(message, request)
        case ToolMessage():
            text = shown(text_of(message.text, request.blobs), NO_OUTPUT)
            call_id = wire_call_id(message.call_id)
            return orjson.dumps({"role": "tool", "tool_call_id": call_id, "content": text})
        case _:
            assert_never(message)


def _user(message: UserMessage, blobs: Blobs) -> str | list[dict[str, object]]:
    """One text where text is all there is, since small servers take nothing else; else blocks."""
    blocks = [_part(part, blobs) for part in message.parts]
    texts = [block for block in blocks if isinstance(block, str) and block.strip()]
    if not any(isinstance(block, dict) for block in blocks):
        return "\n\n".join(texts) or "[no text]"
    return [
        {"type": "text", "text": block} if isinstance(block, str) else block
        for block in blocks
        if isinstance(block, dict) or block.strip()
    ]


def _part(part: MessagePart, blobs: Blobs) -> str | dict[str, object]:
    if isinstance(part, TextPart):
        return text_of(part.text, blobs)
    if part.kind == "image":
        image = image_of(part, blobs)
        if isinstance(image, str):
            return image
        return {"type": "image_url", "image_url": {"url": f"data:{image[0]};base64,{image[1]}"}}
    file = file_of(part, blobs)
    if isinstance(file, str):
        return file
    data = {"filename": file[0], "file_data": f"data:{PDF};base64,{file[1]}"}
    return {"type": "file", "file": data}


def _assistant(message: AssistantMessage, request: ModelRequest) -> bytes:
    """Text, own thinking, own native members and calls; `content` is null only beside calls."""
    blobs = request.blobs
    texts = "".join(text_of(p.text, blobs) for p in message.parts if isinstance(p, TextPart))
    has_text = bool(texts.strip()) or message.interrupted or not message.calls
    content = reply_text(texts, is_interrupted=message.interrupted) if has_text else None
    shape: dict[str, object] = {"role": "assistant", "content": content}
    thinking = _thinking(message, blobs) if message.provider == request.model.provider else ""
    if thinking.strip():
        shape["reasoning_content"] = thinking
    if message.calls:
        shape["tool_calls"] = [_call(call, blobs) for call in message.calls]
    return b",".join([orjson.dumps(shape)[:-1], *_native(message, request)]) + b"}"


def _thinking(message: AssistantMessage, blobs: Blobs) -> str:
    """The provider's own reasoning text, verbatim; none of it when a part is gone."""
    texts = [part.text for part in message.parts if isinstance(part, ThinkingPart)]
    if any(not isinstance(text, str) and text.sha256 not in blobs for text in texts):
        return ""
    return "".join(text_of(text, blobs) for text in texts)


def _native(message: AssistantMessage, request: ModelRequest) -> Iterator[bytes]:
    """The members of the provider's own blocks, byte for byte as it sent them."""
    taken = set(_OWN_MEMBERS)
    for part in message.parts:
        if not isinstance(part, NativePart) or part.provider != request.model.provider:
            continue
        text = text_of(part.json_text, request.blobs).strip()
        members = native_object(text)
        if members is not None and not taken & members.keys():
            taken |= members.keys()
            yield text[1:-1].strip().encode()


def _call(call: MessageCall, blobs: Blobs) -> dict[str, object]:
    arguments = arguments_object(text_of(call.arguments, blobs))
    function = {"name": wire_name(call.name), "arguments": arguments}
    return {"id": wire_call_id(call.call_id), "type": "function", "function": function}
