"""Replies of OpenAI's completions endpoint, read from bytes cut anywhere into one `ModelReply`.

No I/O. A stream of events, a single JSON body and everything in one chunk all read alike; usage
may be missing. What is not a reply raises ModelError with its class. Bounded: content by
`limits.REPLY_BYTES_MAX`, turns between text and thinking by `limits.REPLY_PARTS_MAX`, the body as
`reply_body` says.
"""

import json
from collections.abc import Callable
from typing import Literal

from threadlog import limits
from threadlog.adapters.model_api.call_assembly import CallAssembly
from threadlog.adapters.model_api.failures import failure_of_error, too_large
from threadlog.adapters.model_api.json_text import whole
from threadlog.adapters.model_api.openai_usage import usage_of
from threadlog.adapters.model_api.providers import OPENAI
from threadlog.adapters.model_api.reply_body import (
    ReplyBody,
    answering_model,
    check_content,
    empty,
    stop_beside_calls,
)
from threadlog.events.content import ModelRef, NativePart, OutputPart, TextPart, ThinkingPart, Usage
from threadlog.events.step import StopReason
from threadlog.ports.model import Delta, ModelReply

Kind = Literal["text", "thinking"]
STOPS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "refusal",
}
_KEPT = "reasoning_details"
"""The one foreign member that its provider wants back as it was (a list that streams in pieces)."""


class ReplyReader:
    """One reply while it arrives; `on_delta` is called for each piece of text."""

    def __init__(self, model: ModelRef, on_delta: Callable[[Delta], None]) -> None:
        self._model = model
        self._on_delta = on_delta
        self._body = ReplyBody(OPENAI, self._document)
        self._content_bytes = 0
        self._parts: list[tuple[Kind, list[str]]] = []
        self._calls = CallAssembly()
        self._details: list[object] = []
        self._finish_reason: str | None = None
        self._usage: Usage | None = None

    @property
    def is_done(self) -> bool:
        """The stream said that nothing follows."""
        return self._body.is_done

    @property
    def is_complete(self) -> bool:
        """The model has finished; only usage may still come."""
        return self.is_done or self._finish_reason is not None

    def feed(self, chunk: bytes) -> None:
        """`chunk`, the next decoded bytes of the body, was read.

        Raises:  ModelError: too_large, malformed, or what the provider says went wrong.
        """
        self._body.feed(chunk)
        check_content(self._content_bytes)

    def finish(self) -> ModelReply:
        """The reply, now that the body has ended.

        Raises:  ModelError: cut_stream, empty, malformed, or what the provider says went wrong.
        """
        self._body.finish(lambda: self.is_complete)
        return self._reply()

    def _document(self, document: dict[str, object], _: bytes) -> None:
        """One chunk of the stream, or the whole reply: they differ in one member's name."""
        if document.get("object") == "error":
            raise failure_of_error(document, OPENAI)
        self._model = answering_model(self._model, document.get("model"))
        self._usage = usage_of(document.get("usage")) or self._usage
        choices = document.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
                self._choice(choice)

    def _choice(self, choice: dict[str, object]) -> None:
        message = choice.get("delta") or choice.get("message")
        if isinstance(message, dict):
            self._piece("thinking", message.get("reasoning_content") or message.get("reasoning"))
            self._piece("text", message.get("content"))
            self._piece("text", message.get("refusal"))
            if message.get("tool_calls"):
                self._content_bytes += self._calls.add(message["tool_calls"])
            if isinstance(details := message.get(_KEPT), list):
                self._details += details
        self._usage = usage_of(choice.get("usage")) or self._usage
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self._finish_reason = reason

    def _piece(self, kind: Kind, value: object) -> None:
        if isinstance(value, list):  # content as parts, of which only the text is ours to show
            value = "".join(
                item["text"]
                for item in value
                if isinstance(item, dict) and isinstance(item.get("text"), str)
            )
        if not isinstance(value, str) or not value:
            return
        self._content_bytes += len(value.encode("utf-8", "surrogatepass"))
        if not self._parts or self._parts[-1][0] != kind:
            if len(self._parts) == limits.REPLY_PARTS_MAX:
                raise too_large(f"the reply was cut at {limits.REPLY_PARTS_MAX} parts")
            self._parts.append((kind, []))
        self._parts[-1][1].append(value)
        self._on_delta(Delta(kind, whole(value)))

    def _reply(self) -> ModelReply:
        calls = self._calls.build()
        parts = [(kind, whole("".join(pieces))) for kind, pieces in self._parts]
        stop = self._stop(has_calls=bool(calls))
        has_text = any(kind == "text" and text.strip() for kind, text in parts)
        if not (has_text or calls or stop in ("length", "refusal")):
            raise empty()
        content: list[OutputPart] = [
            TextPart(text=text) if kind == "text" else ThinkingPart(text=text)
            for kind, text in parts
        ]
        if self._details:
            json_text = whole(json.dumps({_KEPT: self._details}, ensure_ascii=False))
            content.append(NativePart(provider=self._model.provider, json_text=json_text))
        return ModelReply(tuple(content), calls, stop, self._usage, self._model)

    def _stop(self, *, has_calls: bool) -> StopReason:
        if self._finish_reason == "error":
            error = {"message": "the provider ended the reply with an error"}
            raise failure_of_error(error, OPENAI)
        stop: StopReason = STOPS.get(self._finish_reason or "stop", "other")
        return stop_beside_calls(stop, has_calls=has_calls)
