"""One event on the wire of the gateway: an object with the envelope's own names. Pure.

The payload travels as its own bytes, so that what a client keeps of an event is what is in the log.
Source: SURFACES 5, left column.
"""

import json
from collections.abc import Mapping

import orjson

from threadlog.errors import RecordError
from threadlog.events.codec import decode_event
from threadlog.events.envelope import Event, Invalid
from threadlog.ids import Seq

_NAMES = (
    "event_id",
    "type",
    "version",
    "critical",
    "tenant_id",
    "thread_id",
    "turn_id",
    "caused_by",
    "actor",
    "source",
    "worker",
    "workspace_id",
    "idempotency_key",
    "occurred_at",
)
_TRACE = ("traceparent", "tracestate")
"""Only where the event has them."""


def event_object(event: Event, seq: Seq | None, void: str | None = None) -> bytes:
    """The event as one line of JSON. `seq` None: it is void, for the reason `void`."""
    head: dict[str, object] = {"seq": seq}
    for name in _NAMES:
        head[name] = getattr(event, name)
    for name in _TRACE:
        if (value := getattr(event, name)) is not None:
            head[name] = value
    if void is not None:
        head["void"] = void
    return b'%s,"payload":%s}' % (orjson.dumps(head)[:-1], _payload(event))


def event_of(line: str) -> tuple[Event, Seq | None, str | None]:
    """The event of this object, its seq, and why it is void. Inverse of `event_object`.

    Raises:  RecordError: it is no such object.
    """
    marker = ',"payload":'
    head, found, payload = line.partition(marker)
    try:
        members = json.loads(f"{head}}}")
    except ValueError as error:
        raise RecordError("not an event") from error
    if not found or not isinstance(members, Mapping) or not payload.endswith("}"):
        raise RecordError("not an event")
    fields = {name: members[name] for name in _NAMES + _TRACE if members.get(name) is not None}
    seq, void = members.get("seq"), members.get("void")
    event = decode_event(fields, payload[:-1].encode())
    return event, None if seq is None else Seq(int(seq)), void


def _payload(event: Event) -> bytes:
    """The body's bytes in one line; of what is no body of its type, nothing is shown."""
    if isinstance(event.body, Invalid):
        return b"null"
    # A foreign writer may have put white space between members; in a string there is none raw.
    return event.data.replace(b"\r", b" ").replace(b"\n", b" ")
