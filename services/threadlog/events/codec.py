"""Encoding and decoding: bodies, events, structured CloudEvents lines.

Decoding never trusts its input and never raises for a body: an unknown type or newer version
becomes `Opaque`, a body that does not fit its schema becomes `Invalid`, and the bytes are kept.
What `strict_json` refuses, or is no object, is `Invalid` under any type: so a reader that does
not know a type voids the same garbage as one that does, and what the gateway takes can be read.

A body of a known type is parsed by its schema. That parser lets the last of two equal members win
and skips what the schema does not know, so a body that is not spelled byte for byte as our own
writer spells what was understood goes through `strict_json`, too; ours skip that second reading.
"""

import base64
import json
from collections.abc import Iterator, Mapping

import orjson
from pydantic import ValidationError

from threadlog.errors import RecordError, RejectedError
from threadlog.events import strict_json
from threadlog.events.catalog import schema_urn
from threadlog.events.envelope import Body, Event, Invalid, Opaque
from threadlog.events.trace import drop_malformed
from threadlog.events.upcast import lookup, upcast
from threadlog.limits import EVENT_BYTES_MAX, JSON_DEPTH_MAX, JSON_MEMBERS_MAX

_OPAQUE = Opaque()
ATTRIBUTES = {
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
    "traceparent": "traceparent",
    "tracestate": "tracestate",
}
"""Envelope field to CloudEvents attribute."""
_SOURCE_PREFIX = "threadlog://"
_SEQ_DIGITS = 20
_ATTRIBUTES_MAX = 64
"""Members of a line beside those of its data; what is not ours is read and ignored."""
_NOT_JSON = "not JSON"


def encode_body(body: Body) -> bytes:
    """The body's JSON: members in the order of the schema, members that are None left out."""
    return body.__pydantic_serializer__.to_json(body, exclude_none=True)


def decode_body(event_type: str, version: int, data: bytes) -> Body | Opaque | Invalid:
    """What `data` says in the newest version known here. Total: it never raises.

    Shapes:  `Opaque` for an unknown type or newer version, `Invalid` for a body that does not fit.
    """
    cls = lookup(event_type, version)
    if cls is None:
        problem = _problem(data)
        return _OPAQUE if problem is None else Invalid(problem=problem)
    # Shorter data has too few bytes for too many members.
    if len(data) > 2 * JSON_MEMBERS_MAX and strict_json.has_too_many(data):
        return Invalid(problem=_NOT_JSON)
    try:
        body = cls.model_validate_json(data)
    except ValidationError as error:
        return Invalid(problem=_first_of(error))
    # What is spelled as our own writer spells it has no second member, no other and no long number.
    if encode_body(body) != data and (problem := _problem(data)) is not None:
        return Invalid(problem=problem)
    return upcast(body)


def decode_event(fields: Mapping[str, object], data: bytes | None) -> Event:
    """The event with these envelope fields and this body. `data` None: the record had no value.

    A trace that is malformed is left out.

    Raises:  RecordError: the envelope is unusable; the record is void for everyone.
    """
    event_type, version = fields.get("type"), fields.get("version")
    if not isinstance(event_type, str) or not isinstance(version, int):
        raise RecordError("no usable envelope: type and version")
    if not isinstance(data, bytes):
        raise RecordError("no value")
    try:
        members = {**fields, "body": decode_body(event_type, version, data), "data": data}
        if "traceparent" in members or "tracestate" in members:
            drop_malformed(members)
        return Event.model_validate(members)
    except ValidationError as error:
        raise RecordError(f"no usable envelope: {_first_of(error)}") from error


def to_cloud_event(event: Event, seq: int | None = None) -> bytes:
    """The event as one line of structured CloudEvents JSON, without a line feed.

    Shapes:  `sequence` is the seq as 20 digits, absent when `seq` is None; `data` is the body's
             bytes as they are in the log, `data_base64` the same where they would break the line.
    """
    attributes: dict[str, object] = {"specversion": "1.0"}
    for field, name in ATTRIBUTES.items():
        if (value := getattr(event, field)) is not None:
            attributes[name] = value
    attributes["source"] = f"{_SOURCE_PREFIX}{event.source}"
    attributes["dataschema"] = schema_urn(event.type, event.version)
    attributes["partitionkey"] = event.key
    attributes["datacontenttype"] = "application/json"
    if event.critical:
        attributes["critical"] = True
    if seq is not None:
        attributes["sequence"] = f"{seq:0{_SEQ_DIGITS}d}"
    head = orjson.dumps(attributes)[:-1]
    if _fits_in_line(event):
        return b'%s,"data":%s}' % (head, event.data)
    return b'%s,"data_base64":"%s"}' % (head, base64.b64encode(event.data))


def from_cloud_event(line: bytes) -> tuple[Event, int | None]:
    """The event on this line, and its seq when the line says one. Inverse of `to_cloud_event`.

    Raises:  RecordError: it is no CloudEvent of ours, too large, or its attributes disagree.
    """
    if len(line) > EVENT_BYTES_MAX * 2:
        raise RecordError("line too long")
    attributes, data = _split(line)
    event_type, version = _schema(attributes)
    source = attributes.get("source")
    if not isinstance(source, str) or not source.startswith(_SOURCE_PREFIX):
        raise RecordError("source is not ours")
    fields = {field: attributes[name] for field, name in ATTRIBUTES.items() if name in attributes}
    fields["source"] = source.removeprefix(_SOURCE_PREFIX)
    fields["type"], fields["version"] = event_type, version
    fields["critical"] = attributes.get("critical", False)
    event = decode_event(fields, data)
    if attributes.get("partitionkey") != event.key:
        raise RecordError("partitionkey does not name tenant and thread")
    sequence = attributes.get("sequence")
    return event, None if sequence is None else _number(sequence, _SEQ_DIGITS)


def _schema(attributes: Mapping[str, object]) -> tuple[str, int]:
    """The type and version that the line names, twice and alike."""
    event_type, urn = attributes.get("type"), attributes.get("dataschema")
    if attributes.get("specversion") != "1.0":
        raise RecordError("not a CloudEvent 1.0")
    if not isinstance(event_type, str) or not isinstance(urn, str):
        raise RecordError("type or dataschema is missing")
    version = _number(urn.rpartition(":")[2], 7)
    if urn != schema_urn(event_type, version):
        raise RecordError("dataschema does not name the type")
    return event_type, version


def _number(text: object, digits_max: int) -> int:
    """The number that these decimal digits write."""
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= digits_max:
        return int(text)
    raise RecordError("not decimal digits")


def _first_of(error: ValidationError) -> str:
    """Where and what the first problem is; nothing of the input itself."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['type']}"[:200]


def _problem(data: bytes) -> str | None:
    """Why `data` is no body of any type."""
    if strict_json.is_too_deep(data):
        return "nested too deep"
    try:
        is_object = isinstance(strict_json.parse(data), dict)
    except RejectedError:
        return _NOT_JSON
    return None if is_object else "no object"


def _fits_in_line(event: Event) -> bool:
    """Whether the data can stand in a line as it is, and will be found there byte for byte."""
    data = event.data
    if b"\n" in data or b"\r" in data or data != data.strip():
        return False
    return not isinstance(event.body, Invalid) or _problem(data) is None


def _split(line: bytes) -> tuple[dict[str, object], bytes]:
    """The top-level members of a JSON object, `data` apart as its own bytes."""
    members: dict[str, object] = {}
    data: list[bytes] = []
    try:
        text = line.decode().strip(" \t\r\n")
        if strict_json.is_too_deep(line, JSON_DEPTH_MAX + 1):
            raise RecordError("nested too deep")
        if strict_json.has_too_many(line, JSON_MEMBERS_MAX + _ATTRIBUTES_MAX):
            raise RecordError("too many members")
        for name, value, raw in _members_of(text):
            if name in members:
                raise RecordError("repeated member")
            members[name] = value
            if name == "data":
                data.append(raw.encode())
            elif name == "data_base64":
                data.append(base64.b64decode(str(value), validate=True))
    except (ValueError, IndexError) as error:
        raise RecordError("not a JSON object") from error
    members.pop("data", None)
    if len(data) != 1:
        raise RecordError("one of data and data_base64 is wanted")
    return members, data[0]


def _members_of(text: str) -> Iterator[tuple[str, object, str]]:
    """Name, value and the value's own text of each member of a JSON object.

    Raises:  ValueError, IndexError: the text is not one JSON object.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
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


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
