"""Encoding and decoding: bodies, events, structured CloudEvents lines.

Decoding never trusts its input and never raises for a body: an unknown type or newer version
becomes `Opaque`, a body that does not fit its schema becomes `Invalid`, and the bytes are kept.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from threadlog.errors import RecordError
from threadlog.events.catalog import SCHEMA_PREFIX, schema_urn
from threadlog.events.envelope import Body, Event, Invalid, Opaque
from threadlog.events.upcast import lookup, upcast
from threadlog.limits import EVENT_BYTES_MAX, JSON_DEPTH_MAX

_OPAQUE = Opaque()
_MEMBERS = {
    "event_id": "id",
    "thread_id": "subject",
    "tenant_id": "tenantid",
    "turn_id": "correlationid",
    "caused_by": "causationid",
    "actor": "actor",
    "worker": "worker",
    "workspace_id": "workspaceid",
    "idempotency_key": "idempotencykey",
    "source": "source",
    "occurred_at": "time",
    "type": "type",
}
"""Envelope field to CloudEvents attribute."""


def encode_body(body: Body) -> bytes:
    """The body's JSON: members in the order of the schema, members that are None left out."""
    return body.__pydantic_serializer__.to_json(body, exclude_none=True)


def decode_body(event_type: str, version: int, data: bytes) -> Body | Opaque | Invalid:
    """What `data` says in the newest version known here. Total: it never raises.

    Shapes:  `Opaque` for an unknown type or newer version, `Invalid` for a body that does not fit.
    """
    cls = lookup(event_type, version)
    if cls is None:
        return _OPAQUE
    try:
        return upcast(cls.model_validate_json(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return Invalid(problem=f"{'.'.join(map(str, first['loc']))}: {first['type']}"[:200])


def decode_event(fields: Mapping[str, Any], data: bytes) -> Event:
    """The event with these envelope fields and this body.

    Raises:  RecordError: the envelope is unusable; the record is void for everyone.
    """
    try:
        body = decode_body(fields["type"], fields["version"], data)
        return Event(body=body, data=data, **fields)
    except (ValidationError, KeyError, TypeError) as error:
        raise RecordError(f"no usable envelope: {type(error).__name__}") from error


def to_cloud_event(event: Event, seq: int | None = None) -> bytes:
    """The event as one line of structured CloudEvents JSON, without a line feed.

    Shapes:  `sequence` is the seq as 20 digits, absent when `seq` is None; `data` is the body's
             bytes as they are in the log.
    """
    attributes: dict[str, Any] = {"specversion": "1.0"}
    for field, name in _MEMBERS.items():
        if (value := getattr(event, field)) is not None:
            attributes[name] = value
    attributes["source"] = f"threadlog://{event.source}"
    attributes["dataschema"] = schema_urn(event.type, event.version)
    attributes["partitionkey"] = event.key
    attributes["datacontenttype"] = "application/json"
    if event.critical:
        attributes["critical"] = True
    if seq is not None:
        attributes["sequence"] = f"{seq:020d}"
    return b'%s,"data":%s}' % (orjson.dumps(attributes)[:-1], event.data)


def from_cloud_event(line: bytes) -> tuple[Event, int | None]:
    """The event on this line, and its seq when the line says one. Inverse of `to_cloud_event`.

    Raises:  RecordError: it is no CloudEvent of ours, too large, or its attributes disagree.
    """
    if len(line) > EVENT_BYTES_MAX * 2:
        raise RecordError("line too long")
    attributes, data = _split(line)
    urn = attributes.get("dataschema")
    source = attributes.get("source")
    if not isinstance(urn, str) or not isinstance(source, str):
        raise RecordError("dataschema or source is missing")
    event_type, _, version = urn.removeprefix(SCHEMA_PREFIX).rpartition(":")
    if event_type != attributes.get("type") or not version.isascii() or not version.isdecimal():
        raise RecordError("dataschema does not name the type")
    fields = {field: attributes[name] for field, name in _MEMBERS.items() if name in attributes}
    fields["source"] = source.removeprefix("threadlog://")
    fields["version"] = int(version[:9])
    fields["critical"] = attributes.get("critical", False)
    event = decode_event(fields, data)
    if attributes.get("partitionkey") != event.key:
        raise RecordError("partitionkey does not name tenant and thread")
    sequence = attributes.get("sequence")
    if sequence is None:
        return event, None
    if not isinstance(sequence, str) or not sequence.isascii() or not sequence.isdecimal():
        raise RecordError("sequence is not decimal digits")
    return event, int(sequence[:20])


def _split(line: bytes) -> tuple[dict[str, Any], bytes]:
    """The top-level members of a JSON object, `data` apart as its own bytes."""
    members: dict[str, Any] = {}
    data: bytes | None = None
    try:
        text = line.decode("utf-8").strip()
        if _depth(text) > JSON_DEPTH_MAX:
            raise RecordError("nested too deep")
        for name, value, raw in _members_of(text):
            if name in members:
                raise RecordError("repeated member")
            members[name] = value
            if name == "data":
                data = raw.encode()
    except (ValueError, IndexError) as error:
        raise RecordError("not a JSON object") from error
    members.pop("data", None)
    if data is None:
        raise RecordError("data is missing")
    return members, data


def _members_of(text: str) -> Iterator[tuple[str, Any, str]]:
    """Name, value and the value's own text of each member of a JSON object.

    Raises:  ValueError, IndexError: the text is not one JSON object.
    """
    decoder = json.JSONDecoder()
    at, separator = 0, "{"
    while text[at] == separator:
        at = _skip(text, at + 1)
        if separator == "{" and text[at] == "}":
            break
        name, at = decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] != ":" or not isinstance(name, str):
            raise ValueError("a member is a string, a colon and a value")
        start = _skip(text, at + 1)
        value, at = decoder.raw_decode(text, start)
        yield name, value, text[start:at]
        at, separator = _skip(text, at), ","
    if text[at:] != "}":
        raise ValueError("the object does not end there")


def _skip(text: str, at: int) -> int:
    """The index of the next character that is no JSON white space."""
    while text[at] in " \t\r\n":
        at += 1
    return at


def _depth(text: str) -> int:
    """An upper bound of the nesting depth: brackets inside strings count too."""
    depth = deepest = 0
    for char in text:
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest
