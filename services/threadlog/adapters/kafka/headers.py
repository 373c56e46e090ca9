"""Events as Kafka records: the CloudEvents Kafka binding, binary mode, and its reading.

What is read is never trusted and never raises: a record that is not one of ours becomes a `Record`
without an event, whose `problem` names the rule it breaks and nothing of its content.
"""

from functools import lru_cache
from typing import NamedTuple

from threadlog.errors import RecordError
from threadlog.events.catalog import schema_urn
from threadlog.events.codec import decode_event
from threadlog.events.envelope import Event
from threadlog.ids import Position
from threadlog.limits import EVENT_BYTES_MAX
from threadlog.ports.log import KEY_DISAGREES, Record

Headers = dict[str, str | bytes | None] | list[tuple[str, str | bytes | None]]
"""As the client declares them; it gives a list."""

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
    "occurred_at": "time",
    "type": "type",
    "traceparent": "traceparent",
    "tracestate": "tracestate",
}
"""Envelope field to CloudEvents attribute, as in the structured form; a test compares them."""
_NAMED = tuple((field, f"ce_{name}") for field, name in ATTRIBUTES.items())
_FIELDS = {name: field for field, name in _NAMED} | {
    "ce_source": "source",
    "ce_specversion": "specversion",
    "ce_dataschema": "dataschema",
    "ce_partitionkey": "partitionkey",
    "ce_critical": "critical",
}
_TRACE = ("traceparent", "tracestate")
"""Of these two a wrong one is passed over: nothing depends on it."""
_SOURCE_PREFIX = "threadlog://"
_ALWAYS: tuple[tuple[str, bytes], ...] = (
    ("ce_specversion", b"1.0"),
    ("content-type", b"application/json"),
)
_HEADERS_MAX = 64
_KEY_BYTES_MAX = 256
"""More than any key of ours; a longer one is not even told."""
_SCHEMA_CHARS_MAX = 128
"""Longer than that of any valid type: what is remembered of schemas stays small."""
_VERSION_DIGITS_MAX = 7


class Encoded(NamedTuple):
    """A record as it is produced, and its size: key, value, names and values of headers."""

    key: bytes
    headers: list[tuple[str, bytes]]
    value: bytes
    record_bytes: int


def encode(event: Event) -> Encoded:
    """The event as a record. Raises UnicodeEncodeError for text that is no Unicode."""
    key = event.key.encode()
    headers = [
        (name, value.encode())
        for field, name in _NAMED
        if (value := getattr(event, field)) is not None
    ]
    headers.append(("ce_source", f"{_SOURCE_PREFIX}{event.source}".encode()))
    headers.append(("ce_dataschema", schema_urn(event.type, event.version).encode()))
    headers.append(("ce_partitionkey", key))
    headers.extend(_ALWAYS)
    if event.critical:
        headers.append(("ce_critical", b"true"))
    size = len(key) + len(event.data) + sum(len(name) + len(raw) for name, raw in headers)
    return Encoded(key, headers, event.data, size)


def decode(
    position: Position,
    key: bytes | None,
    headers: Headers | None,
    value: bytes | None,
    appended_ms: int = 0,
) -> Record:
    """The record at `position`, with the event it holds or the rule it breaks. Never raises."""
    text = ""
    try:
        text = _key(key)
        fields = _read(headers or [], len(key or b"") + len(value or b""))
        event = _event(text, fields, value)
        return Record(position, text, event, appended_ms=appended_ms)
    except RecordError as error:
        return Record(position, text, None, str(error))


def _key(key: bytes | None) -> str:
    if key is None:
        raise RecordError("no key")
    if len(key) > _KEY_BYTES_MAX:
        raise RecordError("key too long")
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise RecordError("key is not UTF-8") from None


def _read(headers: Headers, size: int) -> dict[str, object]:
    """Our headers' text by envelope field, each there at most once; others are passed over."""
    if len(headers) > _HEADERS_MAX:
        raise RecordError("too many headers")
    fields: dict[str, object] = {}
    for name, raw in headers.items() if isinstance(headers, dict) else headers:
        size += len(name) + len(raw or b"")
        field = _FIELDS.get(name)
        if field is None:
            continue
        if field in _TRACE:
            _read_trace(fields, field, raw)
            continue
        if field in fields:
            raise RecordError(f"repeated header {name}")
        if not isinstance(raw, bytes):
            raise RecordError(f"header {name} has no value")
        try:
            fields[field] = raw.decode()
        except UnicodeDecodeError:
            raise RecordError(f"header {name} is not UTF-8") from None
    if size > EVENT_BYTES_MAX:
        raise RecordError("record too large")
    return fields


def _read_trace(fields: dict[str, object], field: str, raw: object) -> None:
    """The text is among the fields; one that is no text, or the second one, is malformed."""
    is_text = isinstance(raw, bytes) and raw.isascii() and field not in fields
    fields[field] = raw.decode() if is_text and isinstance(raw, bytes) else None


def _event(key: str, fields: dict[str, object], value: bytes | None) -> Event:
    """The event of these header texts, which must agree with each other and with the key."""
    if fields.pop("specversion", None) != "1.0":
        raise RecordError("not a CloudEvent 1.0")
    source = fields.get("source")
    if not isinstance(source, str) or not source.startswith(_SOURCE_PREFIX):
        raise RecordError("source is not ours")
    fields["source"] = source[len(_SOURCE_PREFIX) :]
    event_type, schema = fields.get("type"), fields.pop("dataschema", None)
    if not isinstance(event_type, str) or not isinstance(schema, str):
        raise RecordError("type or dataschema is missing")
    if len(schema) > _SCHEMA_CHARS_MAX:
        raise RecordError("dataschema too long")
    fields["version"] = _version(event_type, schema)
    critical = fields.pop("critical", "false")
    if critical not in ("true", "false"):
        raise RecordError("critical is neither true nor false")
    fields["critical"] = critical == "true"
    if fields.pop("partitionkey", None) != key:
        raise RecordError(KEY_DISAGREES)
    if f"{fields.get('tenant_id')}/{fields.get('thread_id')}" != key:
        raise RecordError(KEY_DISAGREES)
    return decode_event(fields, value)


@lru_cache(maxsize=512)
def _version(event_type: str, schema: str) -> int:
    """The version that `schema` names, when it names this type."""
    digits = schema.rpartition(":")[2]
    if digits.isascii() and digits.isdecimal() and len(digits) <= _VERSION_DIGITS_MAX:
        version = int(digits)
        if schema_urn(event_type, version) == schema:
            return version
    raise RecordError("dataschema does not name the type")
