"""Strict stand-ins for what the two providers accept: each refuses what the real one refuses.

A body that passes raises nothing; a `WireError` names the first thing a server would refuse.
"""

import base64
import json
import re
from collections.abc import Sequence

Json = dict[str, object]
CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DATA_URL = re.compile(r"data:(?P<type>[a-z]+/[a-z+.-]+);base64,(?P<data>.+)")
IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
FOREIGN_MEMBERS = {"reasoning_content", "reasoning_details", "refusal"}
LEVELS = {"none", "low", "medium", "high"}


class WireError(AssertionError):
    """What a provider would answer 400 to."""


def validate_completions(body: bytes) -> Json:
    """`body` is a request that OpenAI's completions endpoint accepts."""
    document = _strict(body)
    known = {"model", "messages", "tools", "reasoning_effort", "stream", "stream_options"}
    _members(
        document, {"model", "messages", "stream"}, known | {"max_tokens", "max_completion_tokens"}
    )
    _need(document.get("reasoning_effort", "low") in LEVELS, "unknown reasoning effort")
    _need(not {"max_tokens", "max_completion_tokens"} <= document.keys(), "two limits")
    _need(document["stream"] is True, "not a stream")
    _need(
        document.get("stream_options", {"include_usage": True}) == {"include_usage": True}, "usage"
    )
    for tool in _list(document, "tools") if "tools" in document else []:
        _members(tool, {"type", "function"})
        function = _object(tool, "function")
        _members(function, {"name", "description", "parameters"})
        _need(bool(TOOL_NAME.fullmatch(_text(function, "name"))), "a tool's name")
        _object(function, "parameters")
    _completions_messages(_list(document, "messages"))
    return document


def _completions_messages(messages: Sequence[Json]) -> None:
    opened: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        role = _text(message, "role")
        if role == "tool":
            _members(message, {"role", "tool_call_id", "content"})
            call_id = _text(message, "tool_call_id")
            _need(call_id in opened, f"a result without its call: {call_id}")
            opened.remove(call_id)
            _text(message, "content")
            continue
        _need(not opened, f"calls without results: {opened}")
        match role:
            case "system":
                _need(place == 0, "a system message that is not the first")
                _members(message, {"role", "content"})
                _text(message, "content")
            case "user":
                _members(message, {"role", "content"})
                _completions_content(message)
            case "assistant":
                opened = _completions_assistant(message)
                _need(not seen & set(opened), "an id that was used before")
                seen |= set(opened)
            case _:
                raise WireError(f"unknown role {role}")
    _need(not opened, f"calls without results: {opened}")


def _completions_assistant(message: Json) -> list[str]:
    _members(message, {"role", "content"}, FOREIGN_MEMBERS | {"role", "content", "tool_calls"})
    if message["content"] is None:
        _need("tool_calls" in message, "an assistant message without content or calls")
    else:
        _text(message, "content")
    if "reasoning_content" in message:
        _text(message, "reasoning_content")
    ids = []
    for call in _list(message, "tool_calls") if "tool_calls" in message else []:
        _members(call, {"id", "type", "function"})
        function = _object(call, "function")
        _members(function, {"name", "arguments"})
        _need(bool(TOOL_NAME.fullmatch(_text(function, "name"))), "the name of a call")
        arguments = json.loads(_text(function, "arguments"))
        _need(isinstance(arguments, dict), "arguments that are no object")
        ids.append(_text(call, "id"))
        _need(bool(CALL_ID.fullmatch(ids[-1])), f"the id of a call: {ids[-1]}")
    _need(len(set(ids)) == len(ids), "two calls with one id")
    return ids


def _completions_content(message: Json) -> None:
    if isinstance(message["content"], str):
        _text(message, "content")
        return
    for part in _list(message, "content"):
        kind = _text(part, "type")
        _members(part, {"type", kind})
        match kind:
            case "text":
                _text(part, "text")
            case "image_url":
                _data_url(_text(_object(part, "image_url"), "url"), IMAGES)
            case "file":
                file = _object(part, "file")
                _members(file, {"filename", "file_data"})
                _text(file, "filename")
                _data_url(_text(file, "file_data"), {"application/pdf"})
            case _:
                raise WireError(f"unknown part {kind}")


def validate_messages(body: bytes) -> Json:
    """`body` is a request that Anthropic's messages endpoint accepts."""
    document = _strict(body)
    known = {
        "model",
        "max_tokens",
        "messages",
        "stream",
        "system",
        "tools",
        "tool_choice",
        "thinking",
    }
    _members(document, {"model", "max_tokens", "messages"}, known)
    limit = document["max_tokens"]
    _need(isinstance(limit, int) and limit > 0, f"max_tokens: {limit!r}")
    _need(document.get("stream", True) is True, "not a stream")
    if "tool_choice" in document:
        _members(_object(document, "tool_choice"), {"type"})
        _need(_object(document, "tool_choice")["type"] in ("auto", "none"), "a tool choice")
        _need("tools" in document, "a tool choice without tools")
    if "system" in document:
        _text(document, "system")
    names = []
    for tool in _list(document, "tools") if "tools" in document else []:
        _members(tool, {"name", "input_schema"}, {"name", "input_schema", "description"})
        _object(tool, "input_schema")
        names.append(_text(tool, "name"))
        _need(bool(TOOL_NAME.fullmatch(names[-1])), "a tool's name")
    _need(len(set(names)) == len(names), "two tools of one name")
    messages = _list(document, "messages")
    roles = [_text(message, "role") for message in messages]
    wanted = ["user", "assistant"] * len(roles)
    _need(roles == wanted[: len(roles)], f"roles do not alternate from user on: {roles}")
    _need(roles[-1] == "user", "the last message is the model's own")
    _blocks(messages, has_tools=bool(names))
    if "thinking" in document:
        _thinking(document, messages)
    return document


def _thinking(document: Json, messages: Sequence[Json]) -> None:
    thinking = _object(document, "thinking")
    _members(thinking, {"type", "budget_tokens"})
    _need(thinking["type"] == "enabled", "a kind of thinking")
    budget, limit = thinking["budget_tokens"], document["max_tokens"]
    _need(isinstance(budget, int) and isinstance(limit, int), "a budget that is no number")
    assert isinstance(budget, int)
    assert isinstance(limit, int)
    _need(1_024 <= budget < limit, "a budget out of range")
    if _list(messages[-1], "content")[0]["type"] == "tool_result":
        first = _list(messages[-2], "content")[0]["type"]
        _need(first in ("thinking", "redacted_thinking"), "a call without the thinking before it")


def _blocks(messages: Sequence[Json], *, has_tools: bool) -> None:
    opened: list[str] = []
    seen: set[str] = set()
    for message in messages:
        _members(message, {"role", "content"})
        blocks = _list(message, "content")
        kinds = [_text(block, "type") for block in blocks]
        if message["role"] == "assistant":
            for block in blocks:
                _assistant_block(block)
            opened = [_text(block, "id") for block in blocks if block["type"] == "tool_use"]
            _need(len(set(opened)) == len(opened), "two calls with one id")
            _need(not seen & set(opened), "an id that was used before")
            _need(has_tools or not opened, "calls without tools")
            seen |= set(opened)
            continue
        results = [_text(b, "tool_use_id") for b in blocks if b["type"] == "tool_result"]
        _need(sorted(results) == sorted(opened), f"calls {opened}, results {results}")
        _need(kinds[: len(results)] == ["tool_result"] * len(results), "results not in front")
        for block in blocks:
            _user_block(block)
    _need(messages[-1]["role"] == "user", "calls without results")


def _assistant_block(block: Json) -> None:
    match block["type"]:
        case "text":
            _members(block, {"type", "text"})
            _text(block, "text")
        case "thinking":
            _members(block, {"type", "thinking", "signature"})
            _need(bool(block["signature"]), "thinking without a signature")
        case "redacted_thinking":
            _members(block, {"type", "data"})
        case "tool_use":
            _members(block, {"type", "id", "name", "input"})
            _need(bool(CALL_ID.fullmatch(_text(block, "id"))), "the id of a call")
            _need(bool(TOOL_NAME.fullmatch(_text(block, "name"))), "the name of a call")
            _object(block, "input")
        case kind:
            raise WireError(f"unknown block {kind}")


def _user_block(block: Json) -> None:
    match block["type"]:
        case "text":
            _members(block, {"type", "text"})
            _text(block, "text")
        case "tool_result":
            known = {"type", "tool_use_id", "content", "is_error"}
            _members(block, {"type", "tool_use_id", "content"}, known)
            _text(block, "content")
            _need(block.get("is_error", True) is True, "is_error")
        case "image" | "document":
            _members(block, {"type", "source"}, {"type", "source", "title"})
            source = _object(block, "source")
            _members(source, {"type", "media_type", "data"})
            types = IMAGES if block["type"] == "image" else {"application/pdf"}
            _need(source["media_type"] in types, "a media type")
            _base64(_text(source, "data"))
        case kind:
            raise WireError(f"unknown block {kind}")


def _data_url(url: str, types: set[str]) -> None:
    found = DATA_URL.fullmatch(url)
    _need(found is not None and found["type"] in types, f"a data address: {url[:40]}")
    assert found is not None
    _base64(found["data"])


def _base64(data: str) -> None:
    _need(bool(base64.b64decode(data, validate=True)), "no data")


def _strict(body: bytes) -> Json:
    def pairs(found: list[tuple[str, object]]) -> Json:
        _need(len({name for name, _ in found}) == len(found), "a member named twice")
        return dict(found)

    document = json.loads(body, object_pairs_hook=pairs)
    _need(isinstance(document, dict), "no object")
    assert isinstance(document, dict)
    _text(document, "model")
    return document


def _members(value: Json, needed: set[str], known: set[str] | None = None) -> None:
    _need(needed <= value.keys(), f"missing members: {needed - value.keys()}")
    unknown = value.keys() - (known or needed)
    _need(not unknown, f"unknown members: {unknown}")


def _text(value: Json, name: str) -> str:
    text = value.get(name)
    _need(isinstance(text, str) and bool(text.strip()), f"{name} is blank or no text: {text!r}")
    assert isinstance(text, str)
    return text


def _list(value: Json, name: str) -> list[Json]:
    items = value.get(name)
    _need(isinstance(items, list) and bool(items), f"{name} is empty or no list: {items!r}")
    assert isinstance(items, list)
    _need(all(isinstance(item, dict) for item in items), f"{name} holds other than objects")
    return items


def _object(value: Json, name: str) -> Json:
    item = value.get(name)
    _need(isinstance(item, dict), f"{name} is no object: {item!r}")
    assert isinstance(item, dict)
    return item


def _need(is_true: bool, finding: str) -> None:
    if not is_true:
        raise WireError(finding)
