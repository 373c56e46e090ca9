"""Requests of Anthropic's messages endpoint: a request rendered to the exact bytes of its body.

Pure and deterministic like `openai_wire`; nothing here sends. Roles alternate, results stand in
the user message right behind their calls, and thinking goes back only to the provider that signed
it. Bytes of a renderer that has shipped never change; a change is `/2`.
"""

from collections.abc import Iterator
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
from threadlog.events.content import FilePart, MessagePart, NativePart, TextPart, ThinkingPart
from threadlog.events.thread import ThinkingLevel
from threadlog.ports.model import ModelRequest
from threadlog.thread.messages import AssistantMessage, MessageCall, ToolMessage, UserMessage

PROVIDER = "anthropic"
RENDERER = "anthropic-messages/1"
OUTPUT_TOKENS_DEFAULT = 16_384
"""The endpoint demands a limit; thinking counts towards it."""
THINKING_TOKENS: dict[ThinkingLevel, int] = {
    "none": 0,
    "low": 2_048,
    "medium": 6_144,
    "high": 12_288,
}
_THINKING_TOKENS_MIN = 1_024
_EARLIER = "[the earlier part of this thread is not shown]"
_GO_ON = "[go on]"
_BLANK = "[no text]"

Block = tuple[str, bytes]
"""The type of a block and its JSON."""
Group = tuple[str, list[Block]]
"""A role and the blocks of all neighbouring messages of that role."""


def render(request: ModelRequest) -> bytes:
    """The body of the request; streaming is always asked for."""
    check_pairing(request.messages)
    groups = _groups(request)
    limit = request.output_tokens_max or OUTPUT_TOKENS_DEFAULT
    body: dict[str, object] = {"model": request.model.name, "max_tokens": limit}
    if request.system_prompt and request.system_prompt.strip():
        body["system"] = request.system_prompt
    body |= _tools(request)
    budget = _thinking_tokens(request, limit)
    if budget and _may_think(groups):
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    head = orjson.dumps(body)[:-1]
    return head + b',"messages":[' + b",".join(map(_joined, groups)) + b'],"stream":true}'


def _joined(group: Group) -> bytes:
    role, blocks = group
    content = b",".join(block for _, block in blocks)
    return b'{"role":"%b","content":[%b]}' % (role.encode(), content)


def _groups(request: ModelRequest) -> list[Group]:
    """Alternating roles that begin and end with the user, as the endpoint demands."""
    groups: list[Group] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", list(_assistant(message, request))
        elif isinstance(message, ToolMessage):
            role, blocks = "user", [_result(message, request.blobs)]
        else:
            role, blocks = "user", _user(message, request.blobs)
        if groups and groups[-1][0] == role:
            groups[-1][1].extend(blocks)
        else:
            groups.append((role, blocks))
    if not groups or groups[0][0] != "user":
        groups.insert(0, ("user", [_text(_EARLIER)]))
    if groups[-1][0] != "user":
        groups.append(("user", [_text(_GO_ON)]))
    return groups


def _tools(request: ModelRequest) -> dict[str, object]:
    """The tools; where none are allowed any more, calls of the past still need their names."""
    if request.tools:
        return {
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": orjson.Fragment(tool.parameters),
                }
                for tool in request.tools
            ]
        }
    names = {
        wire_name(call.name): None
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
    if not names:
        return {}
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    return {"tools": tools, "tool_choice": {"type": "none"}}


def _thinking_tokens(request: ModelRequest, limit: int) -> int:
    """The budget, which must leave room below the limit; 0: no thinking is asked for."""
    if request.thinking is None:
        return 0
    budget = min(THINKING_TOKENS[request.thinking], limit - _THINKING_TOKENS_MIN)
    return budget if budget >= _THINKING_TOKENS_MIN else 0


def _may_think(groups: list[Group]) -> bool:
    """Between a call and its answer, thinking needs the thinking that led to the call.

    Another provider's calls have none that could be shown.
    """
    if groups[-1][1][0][0] != "tool_result":
        return True
    return groups[-2][1][0][0] in ("thinking", "redacted_thinking")


def _block(kind: str, **members: object) -> Block:
    return kind, orjson.dumps({"type": kind, **members})


def _text(text: str) -> Block:
    return _block("text", text=text)


def _user(message: UserMessage, blobs: Blobs) -> list[Block]:
    blocks = [block for part in message.parts for block in _part(part, blobs)]
    return blocks or [_text(_BLANK)]


def _part(part: MessagePart, blobs: Blobs) -> Iterator[Block]:
    if isinstance(part, TextPart):
        text = text_of(part.text, blobs)
        if text.strip():
            yield _text(text)
        return
    data = file_of(part, blobs) if isinstance(part, FilePart) else image_of(part, blobs)
    if isinstance(data, str):
        yield _text(data)
    elif isinstance(part, FilePart):
        yield _block("document", source=_source(PDF, data[1]), title=data[0])
    else:
        yield _block("image", source=_source(*data))


def _source(media_type: str, data: str) -> dict[str, object]:
    return {"type": "base64", "media_type": media_type, "data": data}


def _assistant(message: AssistantMessage, request: ModelRequest) -> Iterator[Block]:
    """Own blocks in their order, then the calls; never nothing."""
    has_text = False
    for part in message.parts:
        match part:
            case TextPart():
                text = text_of(part.text, request.blobs)
                if text.strip():
                    has_text = True
                    yield _text(text)
            case ThinkingPart():
                if message.provider == request.model.provider:
                    yield from _thinking(part, request.blobs)
            case NativePart():
                if part.provider == request.model.provider:
                    yield from _native(part, request.blobs)
            case _:
                assert_never(part)
    if message.interrupted or not (has_text or message.calls):
        yield _text(reply_text("", is_interrupted=message.interrupted))
    for call in message.calls:
        yield _call(call, request.blobs)


def _thinking(part: ThinkingPart, blobs: Blobs) -> Iterator[Block]:
    """The block as it was signed; without its signature or its text it would be refused."""
    is_there = isinstance(part.text, str) or part.text.sha256 in blobs
    if part.signature and is_there:
        text = text_of(part.text, blobs)
        yield _block("thinking", thinking=text, signature=part.signature)


def _native(part: NativePart, blobs: Blobs) -> Iterator[Block]:
    text = text_of(part.json_text, blobs)
    block = native_object(text)
    if block is not None and isinstance(kind := block.get("type"), str):
        yield kind, text.encode()


def _call(call: MessageCall, blobs: Blobs) -> Block:
    arguments = orjson.Fragment(arguments_object(text_of(call.arguments, blobs)))
    name, call_id = wire_name(call.name), wire_call_id(call.call_id)
    return _block("tool_use", id=call_id, name=name, input=arguments)


def _result(message: ToolMessage, blobs: Blobs) -> Block:
    content = shown(text_of(message.text, blobs), NO_OUTPUT)
    call_id = wire_call_id(message.call_id)
    error = {"is_error": True} if message.is_error else {}
    return _block("tool_result", tool_use_id=call_id, content=content, **error)
