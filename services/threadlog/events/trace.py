"""The trace that an event belongs to, as the W3C writes it: `traceparent` and `tracestate`. Pure.

Two optional members of the envelope, which no rule of the fold ever looks at. What is malformed is
as if it were not there: it voids no event and fails no request. Only version 00 is read, for its
form alone is known.

Source:  W3C Trace Context 3.2 and 3.3; CloudEvents distributed tracing extension.
"""

import hashlib
import re
from collections.abc import MutableMapping
from typing import NamedTuple

from threadlog.ids import TurnId
from threadlog.limits import TRACESTATE_CHARS_MAX, TRACESTATE_MEMBERS_MAX

PARENT_PATTERN = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
_PARENT = re.compile(PARENT_PATTERN[:-1], re.ASCII)
_SIMPLE = r"[a-z][a-z0-9_\-*/]{0,255}"
_TENANT = r"[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13}"
_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER = re.compile(rf"(?P<key>{_SIMPLE}|{_TENANT})={_VALUE}", re.ASCII)
_SAMPLED = 1
_TRACE_CHARS, _SPAN_CHARS = 32, 16


class TraceParent(NamedTuple):
    """A span of a trace. `trace_id` has 32 hex digits and `span_id` 16, neither all zero."""

    trace_id: str
    span_id: str
    is_sampled: bool

    def text(self) -> str:
        """The member of the envelope, or header, that says it."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def parse_parent(text: object) -> TraceParent | None:
    """The span that this text names; None: it names none."""
    if not isinstance(text, str) or not _PARENT.fullmatch(text):
        return None
    _, trace_id, span_id, flags = text.split("-")
    if not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def is_state(text: object) -> bool:
    """Whether this is a well-formed `tracestate` with at least one member."""
    if not isinstance(text, str) or len(text) > TRACESTATE_CHARS_MAX:
        return False
    members = [part for each in text.split(",") if (part := each.strip(" \t"))]
    if not 0 < len(members) <= TRACESTATE_MEMBERS_MAX:
        return False
    keys = [found["key"] for each in members if (found := _MEMBER.fullmatch(each))]
    return len(keys) == len(members) == len(set(keys))


def drop_malformed(fields: MutableMapping[str, object]) -> None:
    """What is malformed is not among the fields any more; a state says nothing without a parent."""
    if parse_parent(fields.get("traceparent")) is None:
        fields.pop("traceparent", None)
        fields.pop("tracestate", None)
    elif "tracestate" in fields and not is_state(fields["tracestate"]):
        del fields["tracestate"]


def turn_root(turn: TurnId, *, is_sampled: bool) -> TraceParent:
    """The span of a turn: a trace of its own, the same for whoever derives it, also years later."""
    digest = hashlib.sha256(f"turn {turn}".encode()).hexdigest()
    return TraceParent(digest[:_TRACE_CHARS], digest[-_SPAN_CHARS:], is_sampled)


def span_of(cause: str) -> str:
    """The id of the span that began with this event."""
    return hashlib.sha256(f"span {cause}".encode()).hexdigest()[:_SPAN_CHARS]
