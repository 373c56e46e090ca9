"""One response's body as JSON documents: streamed as events or sent whole, however it is cut.

No I/O. What is neither raises ModelError with its class. Bounded: decoded bytes in all by
`limits.REPLY_WIRE_BYTES_MAX`, what is kept of them by `limits.REPLY_BYTES_MAX`, events by
`limits.REPLY_EVENTS_MAX`. What the documents mean is their reader's business.
"""

from collections.abc import Callable
from typing import Literal

from threadlog import limits
from threadlog.adapters.model_api.failures import failure_of_error, malformed, too_large
from threadlog.adapters.model_api.json_text import loads, whole
from threadlog.adapters.model_api.providers import ProviderFacts
from threadlog.adapters.model_api.sse import EventData
from threadlog.errors import ModelError
from threadlog.events.content import ModelRef
from threadlog.events.step import StopReason

OnDocument = Callable[[dict[str, object], bytes], None]
"""Takes a document and its bytes."""
_MODEL_CHARS_MAX = 200
_BOM = b"\xef\xbb\xbf"


class ReplyBody:
    """The documents of one body while it arrives."""

    def __init__(self, facts: ProviderFacts, on_document: OnDocument) -> None:
        self._facts = facts
        self._on_document = on_document
        self._events = EventData()
        self._form: Literal["unknown", "json", "events"] = "unknown"
        self._body = bytearray()
        self._wire_bytes = 0
        self._events_count = 0
        self.is_done = False
        """The stream said that nothing follows; later events are not read."""

    def feed(self, chunk: bytes) -> None:
        """`chunk`, the next decoded bytes of the body, was read.

        Raises:  ModelError: too_large, malformed, or what the provider says went wrong.
        """
        self._wire_bytes += len(chunk)
        if self._wire_bytes > limits.REPLY_WIRE_BYTES_MAX:
            raise too_large(f"the reply was cut at {limits.REPLY_WIRE_BYTES_MAX} bytes")
        if self._form == "unknown":
            self._body += chunk
            chunk = self._begin()
        if self._form == "json":
            self._body += chunk
        elif self._form == "events":
            for data in self._events.feed(chunk):
                self._event(data)
        check_content(len(self._body) + self._events.held_bytes)

    def finish(self, is_complete: Callable[[], bool]) -> None:
        """The body has ended, and every document of it was read.

        Raises:  ModelError: malformed; cut_stream where the stream ended and `is_complete`, asked
                 afterwards, denies; or what the provider says went wrong.
        """
        if self._form == "json":
            self._document(bytes(self._body))
        elif self._form == "events":
            self._last_event()
            if not self._events_count:
                raise malformed("the provider answered with text that is no reply")
            if not is_complete():
                raise ModelError(
                    "the stream ended before the reply did",
                    error_class="cut_stream",
                    retryable=True,
                )

    def _begin(self) -> bytes:
        """What the body's first character says it is; its bytes once that is known."""
        begun = bytes(self._body).removeprefix(_BOM).lstrip()
        self._body.clear()
        if not begun or begun == _BOM[: len(begun)]:
            self._body += begun
            return b""
        if begun.startswith(b"<"):
            raise malformed(
                f"the provider answered with a web page: check {self._facts.url_name}, which "
                f"{self._facts.url_end}"
            )
        self._form = "json" if begun.startswith((b"{", b"[")) else "events"
        return begun

    def _event(self, data: bytes) -> None:
        self._events_count += 1
        if self._events_count > limits.REPLY_EVENTS_MAX:
            raise too_large(f"the reply was cut at {limits.REPLY_EVENTS_MAX} events")
        if self.is_done:
            return
        if data.strip() == b"[DONE]":
            self.is_done = True
        elif data.strip():
            self._document(data)

    def _last_event(self) -> None:
        """What stood before the end counts, unless it is only the beginning of an event."""
        for data in self._events.finish():
            try:
                self._event(data)
            except ModelError as error:
                if error.error_class != "malformed":
                    raise

    def _document(self, data: bytes) -> None:
        document = loads(data)
        if not isinstance(document, dict):
            raise malformed("a piece of the reply is not an object")
        if document.get("error"):
            raise failure_of_error(document["error"], self._facts)
        self._on_document(document, data)


def check_content(content_bytes: int) -> None:
    """So much of a reply may be kept.

    Raises:  ModelError: too_large.
    """
    if content_bytes > limits.REPLY_BYTES_MAX:
        raise too_large(f"the reply was cut at {limits.REPLY_BYTES_MAX} bytes")


def answering_model(asked: ModelRef, name: object) -> ModelRef:
    """The model that the provider says has answered; the one asked where it says none."""
    if isinstance(name, str) and 0 < len(name) <= _MODEL_CHARS_MAX:
        return ModelRef(provider=asked.provider, name=whole(name))
    return asked


def stop_beside_calls(stop: StopReason, *, has_calls: bool) -> StopReason:
    """Calls that are there count, whatever the reason says, except where they may be cut."""
    if has_calls:
        return stop if stop in ("length", "refusal") else "calls"
    return "end" if stop == "calls" else stop


def empty() -> ModelError:
    """The model said nothing at all; another try may bring something."""
    return ModelError("the reply holds neither text nor calls", error_class="empty", retryable=True)
