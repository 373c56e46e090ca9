"""Replies of Anthropic's messages endpoint, read from bytes cut anywhere into one `ModelReply`.

No I/O. A stream of events and a single JSON body read alike; usage may be missing, and events,
deltas and members that are not known here are passed over. What is not a reply raises ModelError
with its class. Bounded: content by `limits.REPLY_BYTES_MAX`, blocks by `limits.REPLY_PARTS_MAX`,
calls by `limits.CALLS_PER_STEP_MAX`, the body as `reply_body` says.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial

from threadlog.adapters.model_api.anthropic_blocks import AsItCame, Blocks, Json
from threadlog.adapters.model_api.anthropic_usage import later, usage_of
from threadlog.adapters.model_api.json_text import loads, member_texts
from threadlog.adapters.model_api.providers import ANTHROPIC
from threadlog.adapters.model_api.reply_body import (
    ReplyBody,
    answering_model,
    check_content,
    empty,
    stop_beside_calls,
)
from threadlog.events.content import ModelRef, NativePart, OutputPart, TextPart
from threadlog.events.step import StopReason
from threadlog.ports.model import Delta, ModelReply

STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
"""`pause_turn`, and whatever comes later, is other."""


class ReplyReader:
    """One reply while it arrives; `on_delta` is called for each piece of text."""

    def __init__(self, model: ModelRef, on_delta: Callable[[Delta], None]) -> None:
        self._model = model
        self._body = ReplyBody(ANTHROPIC, self._document)
        self._blocks = Blocks(model.provider, on_delta)
        self._stop_reason: str | None = None
        self._counts: Mapping[str, object] = {}

    @property
    def is_done(self) -> bool:
        """The stream said that nothing follows."""
        return self._body.is_done

    @property
    def is_complete(self) -> bool:
        """The model has finished; only the end of the stream may still come."""
        return self.is_done or self._stop_reason is not None

    def feed(self, chunk: bytes) -> None:
        """`chunk`, the next decoded bytes of the body, was read.

        Raises:  ModelError: too_large, malformed, or what the provider says went wrong.
        """
        self._body.feed(chunk)
        check_content(self._blocks.content_bytes)

    def finish(self) -> ModelReply:
        """The reply, now that the body has ended.

        Raises:  ModelError: cut_stream, empty, malformed, or what the provider says went wrong.
        """
        self._body.finish(lambda: self.is_complete)
        content, calls = self._blocks.content(), self._blocks.calls()
        stop = STOPS.get(self._stop_reason or "end_turn", "other")
        stop = stop_beside_calls(stop, has_calls=bool(calls))
        if not (calls or stop in ("length", "refusal") or any(map(_says_something, content))):
            raise empty()
        return ModelReply(content, calls, stop, usage_of(self._counts), self._model)

    def _document(self, document: Json, data: bytes) -> None:
        match document.get("type"):
            case "content_block_start":
                block = _member(document, data, "content_block")
                self._blocks.begin(document.get("index"), *block)
            case "content_block_delta":
                self._blocks.add(document.get("index"), *_member(document, data, "delta"))
            case "message_delta":
                delta = document.get("delta")
                self._stopped(delta if isinstance(delta, dict) else {})
                self._counts = later(self._counts, document.get("usage"))
            case "message_stop":
                self._body.is_done = True
            case "message_start":
                message = document.get("message")
                self._message(message if isinstance(message, dict) else {})
            case "message":
                self._message(document)
            case _:
                pass  # a ping, or what a later version sends

    def _message(self, message: Json) -> None:
        """A message as it starts, or a whole one that was not streamed."""
        self._model = answering_model(self._model, message.get("model"))
        self._counts = later(self._counts, message.get("usage"))
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                as_it_came = partial(json.dumps, block, ensure_ascii=False)
                self._blocks.begin(index, block, as_it_came)
        self._stopped(message)

    def _stopped(self, said: Json) -> None:
        if isinstance(reason := said.get("stop_reason"), str) and reason:
            self._stop_reason = reason


def _member(document: Json, data: bytes, name: str) -> tuple[Json, AsItCame]:
    """An object within an event, and how its JSON is found as it came."""
    value = document.get(name)

    def as_it_came() -> str:
        return member_texts(data.decode("utf-8", "replace")).get(name, "{}")

    return value if isinstance(value, dict) else {}, as_it_came


def _says_something(part: OutputPart) -> bool:
    """Whether a person or the provider could go on from it: thinking alone is no answer."""
    match part:
        case TextPart(text=str(text)):
            return bool(text.strip())
        case NativePart(json_text=str(text)):
            block = loads(text.encode())
            return not (isinstance(block, dict) and block.get("type") == "redacted_thinking")
        case _:
            return False
