"""A script served in the wire form of Anthropic's messages endpoint, as strict as the real one.

Every body is validated before it is answered: what the provider would refuse is refused with 400.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import orjson

from tests.helpers.foreign_server import EVENTS, Foreign, Received, head, speaking_server
from tests.helpers.wire_validators import WireError, validate_messages
from threadlog.adapters.model_api.script import Script, ScriptPlayer, ScriptReply
from threadlog.adapters.model_api.scripted import pieces
from threadlog.errors import ModelError
from threadlog.events.content import Usage
from threadlog.events.step import StopReason

Json = dict[str, object]
MODEL_NAME = "claude-scripted"
JSON = {"content-type": "application/json"}
_STOPS: Mapping[StopReason, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "other": "pause_turn",
}
_STATUS: Mapping[str, tuple[int, str]] = {
    "rate_limited": (429, "rate_limit_error"),
    "overloaded": (529, "overloaded_error"),
    "timeout": (504, "timeout_error"),
    "unauthenticated": (401, "authentication_error"),
    "not_found": (404, "not_found_error"),
    "bad_request": (400, "invalid_request_error"),
    "context_overflow": (413, "request_too_large"),
    "script_exhausted": (400, "script_exhausted"),
    "refused": (402, "billing_error"),
    "internal": (500, "api_error"),
}


@dataclass(frozen=True, slots=True)
class Answered:
    """What goes out. `missing_bytes`: so many more were announced."""

    chunks: list[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    missing_bytes: int = 0
    delay_ms: int = 0


@contextlib.asynccontextmanager
async def messages_server(script: Script) -> AsyncIterator[Foreign]:
    """The server answers at `url`, which has no `/v1` at its end, until the block is left."""
    player = ScriptPlayer(script)

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        said = _answer(request, player)
        length = sum(map(len, said.chunks)) + said.missing_bytes
        writer.write(head(said.status, {"content-length": str(length), **said.headers}))
        for chunk in said.chunks:
            if said.delay_ms:
                await asyncio.sleep(said.delay_ms / 1_000 / len(said.chunks))
            writer.write(chunk)
            await writer.drain()
        if said.missing_bytes:
            writer.close()

    async with speaking_server(answer) as server:
        server.url = server.url.removesuffix("/v1")
        yield server


def _answer(request: Received, player: ScriptPlayer) -> Answered:
    target = request.target.partition("?")[0]
    if target == "/v1/models":
        entry = {"type": "model", "id": MODEL_NAME, "display_name": MODEL_NAME}
        entry["created_at"] = "2026-01-01T00:00:00Z"
        page: Json = {"data": [entry], "has_more": False}
        return Answered([orjson.dumps(page | {"first_id": MODEL_NAME, "last_id": MODEL_NAME})])
    if target != "/v1/messages":
        return refusal(404, "not_found_error", "no such address")
    if "anthropic-version" not in request.headers:
        return refusal(400, "invalid_request_error", "anthropic-version: header is required")
    try:
        body = validate_messages(request.body)
    except WireError as error:
        return refusal(400, "invalid_request_error", str(error))
    messages = body["messages"]
    assert isinstance(messages, list)
    number = sum(message["role"] == "assistant" for message in messages)
    try:
        entry_chosen = player.reply(number, request.body)
    except ModelError as error:
        return _failure(error)
    events = events_of(entry_chosen, number, str(body["model"]))
    return Answered(events, headers=EVENTS, delay_ms=entry_chosen.delay_ms)


def refusal(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Answered:
    """An error as the provider words it."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Answered([orjson.dumps(body)], status, {**JSON, **(headers or {})})


def _failure(error: ModelError) -> Answered:
    match error.error_class:
        case "malformed":
            return Answered([b"<!doctype html><title>Not the page you look for</title>"])
        case "empty":
            return Answered([*_framed([], "end_turn", None, 0, "m")], headers=EVENTS)
        case "cut_stream":
            begun = _framed([], "end_turn", None, 0, "m")[0]
            return Answered([begun, b'event: ping\ndata: {"ty'], headers=EVENTS, missing_bytes=9)
        case kind:
            wait_ms = error.retry_after_ms
            wish = {} if wait_ms is None else {"retry-after-ms": str(wait_ms)}
            return refusal(*_STATUS[kind], str(error), wish)


def events_of(entry: ScriptReply, number: int, model: str) -> list[bytes]:
    """The events of a streamed answer, one after another as the endpoint sends them."""
    blocks: list[tuple[Json, list[Json]]] = []
    if entry.thinking:
        begun: Json = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((begun, _deltas("thinking_delta", "thinking", pieces(entry.thinking))))
    if entry.text:
        begun = {"type": "text", "text": ""}
        blocks.append((begun, _deltas("text_delta", "text", pieces(entry.text))))
    for call in entry.model_calls(number):
        begun = {"type": "tool_use", "id": call.provider_call_id, "name": call.name, "input": {}}
        parts = ["", *pieces(str(call.arguments))]
        blocks.append((begun, _deltas("input_json_delta", "partial_json", parts)))
    return _framed(blocks, _STOPS[entry.stop_reason()], entry.tokens(), number, model)


def _deltas(kind: str, member: str, texts: list[str]) -> list[Json]:
    return [{"type": kind, member: text} for text in texts]


def _framed(
    blocks: list[tuple[Json, list[Json]]], stop: str, tokens: Usage | None, number: int, model: str
) -> list[bytes]:
    message: Json = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    ended: Json = {"delta": {"stop_reason": stop, "stop_sequence": None}}
    if tokens is not None:
        counts = {
            "input_tokens": tokens.input,
            "cache_creation_input_tokens": tokens.cache_write,
            "cache_read_input_tokens": tokens.cache_read,
        }
        message["usage"] = counts | {"output_tokens": 1}
        details = {"thinking_tokens": tokens.reasoning}
        ended["usage"] = counts | {
            "output_tokens": tokens.output,
            "output_tokens_details": details,
        }
    events = [event("message_start", message=message), event("ping")]
    for index, (begun, deltas) in enumerate(blocks):
        events.append(event("content_block_start", index=index, content_block=begun))
        events += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(event("content_block_stop", index=index))
    return [*events, event("message_delta", **ended), event("message_stop")]


def event(kind: str, **members: object) -> bytes:
    """One event, named as its type is."""
    return f"event: {kind}\ndata: ".encode() + orjson.dumps({"type": kind} | members) + b"\n\n"
