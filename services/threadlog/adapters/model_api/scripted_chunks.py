"""Scripted replies in the wire form of OpenAI's completions endpoint, streamed and whole."""

import orjson

from threadlog.adapters.model_api.script import ScriptReply
from threadlog.adapters.model_api.scripted import pieces
from threadlog.events.content import Usage
from threadlog.events.step import StopReason

Json = dict[str, object]
DONE = b"data: [DONE]\n\n"
_FINISH: dict[StopReason, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "other": "other",
}


def whole_reply(entry: ScriptReply, number: int, model: str, *, has_usage: bool) -> Json:
    """The body of an answer that is not streamed."""
    message: Json = {"role": "assistant", "content": entry.text or None}
    if entry.thinking:
        message["reasoning_content"] = entry.thinking
    if entry.calls:
        message["tool_calls"] = [_call(call) for call in _calls(entry, number)]
    choice = {"index": 0, "message": message, "finish_reason": _FINISH[entry.stop_reason()]}
    reply = _envelope("chat.completion", number, model) | {"choices": [choice]}
    tokens = entry.tokens()
    return reply | {"usage": _usage(tokens)} if has_usage and tokens else reply


def chunks_of(
    entry: ScriptReply, number: int, model: str, *, has_usage: bool, is_one: bool
) -> list[bytes]:
    """The events of a streamed answer; `is_one`: everything but usage in a single chunk."""
    if is_one:
        message = whole_reply(entry, number, model, has_usage=False)["choices"]
        assert isinstance(message, list)
        delta = message[0]["message"]
        calls = delta.get("tool_calls", [])
        delta["tool_calls"] = [{"index": n} | call for n, call in enumerate(calls)]
        deltas: list[tuple[Json, str | None]] = [(delta, _FINISH[entry.stop_reason()])]
    else:
        deltas = [(delta, None) for delta in _deltas(entry, number)]
        deltas.append(({}, _FINISH[entry.stop_reason()]))
    head = _envelope("chat.completion.chunk", number, model)
    events = [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in deltas
    ]
    tokens = entry.tokens()
    if has_usage and tokens:
        events.append(head | {"choices": [], "usage": _usage(tokens)})
    return [b"data: " + orjson.dumps(event) + b"\n\n" for event in events] + [DONE]


def _deltas(entry: ScriptReply, number: int) -> list[Json]:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in pieces(entry.thinking)]
    deltas += [{"content": piece} for piece in pieces(entry.text)]
    for index, call in enumerate(_calls(entry, number)):
        begun = _call(call | {"arguments": ""})
        deltas.append({"tool_calls": [{"index": index} | begun]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(call["arguments"])
        ]
    return deltas


def _calls(entry: ScriptReply, number: int) -> list[dict[str, str]]:
    return [
        {"id": call.provider_call_id, "name": call.name, "arguments": str(call.arguments)}
        for call in entry.model_calls(number)
    ]


def _call(call: dict[str, str]) -> Json:
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


def _envelope(kind: str, number: int, model: str) -> Json:
    return {"id": f"scripted-{number}", "object": kind, "created": 0, "model": model}


def _usage(tokens: Usage) -> Json:
    prompt = tokens.input + tokens.cache_read + tokens.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.output,
        "total_tokens": prompt + tokens.output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cache_read,
            "cache_write_tokens": tokens.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
