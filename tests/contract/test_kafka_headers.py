"""Events as records: our headers are CloudEvents to others, and nothing unfit becomes an event."""

from datetime import datetime

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.helpers.events import TRACE, created, event_id, make_event, message, thread_id
from tests.helpers.kafka import RawHeaders
from threadlog import ids
from threadlog.adapters.kafka.headers import ATTRIBUTES, decode, encode
from threadlog.events import codec
from threadlog.events.catalog import BODIES
from threadlog.events.envelope import Event, Invalid, Opaque
from threadlog.events.thread import ThreadCreated
from threadlog.ids import Position, TenantId
from threadlog.limits import EVENT_BYTES_MAX
from threadlog.ports.log import Record

AT = Position(7)
FULL = make_event(
    ThreadCreated(title="ünicode \U0001f600"),
    turn_id=ids.turn_id(thread_id(), 1),
    caused_by=event_id("cause"),
    actor="user:é\U0001f600",
    worker=ids.WorkerId("planner-1"),
    workspace_id=ids.WorkspaceId("ws ö"),
    idempotency_key="schlüssel \x00 %41",
).model_copy(update=TRACE)


def decoded(event: Event, **changes: bytes | str | None) -> Record:
    """`event` as a record, with headers replaced, or left out where None."""
    key, headers, value, _ = encode(event)
    texts: dict[str, str | bytes | None] = {**dict(headers), **changes}
    kept: RawHeaders = [(name, raw) for name, raw in texts.items() if raw is not None]
    return decode(AT, key, kept, value)


def refused(record: Record, rule: str) -> None:
    assert record.event is None
    assert record.problem is not None
    assert rule in record.problem
    assert record.position == AT


@pytest.mark.parametrize("event", [FULL, created(), message("a")], ids=["full", "created", "bare"])
def test_an_event_survives(event: Event) -> None:
    key, headers, value, size = encode(event)
    assert decode(AT, key, list(headers), value) == Record(AT, event.key, event)
    assert size == len(key) + len(value) + sum(len(name) + len(raw) for name, raw in headers)
    assert len(dict(headers)) == len(headers)


def test_the_attributes_are_those_of_the_structured_form() -> None:
    assert {**ATTRIBUTES, "source": "source"} == codec.ATTRIBUTES


def test_there_is_no_seq_on_the_wire() -> None:
    names = [name for name, _ in encode(FULL).headers]
    assert "ce_sequence" not in names
    assert dict(encode(FULL).headers)["ce_critical"] == b"true"
    bare = FULL.model_copy(update={"critical": False})
    assert "ce_critical" not in dict(encode(bare).headers)
    assert decoded(bare).event == bare
    assert decoded(bare, ce_critical=b"false").event == bare


# -- others read ours, and we read theirs


def test_the_cloudevents_package_reads_ours() -> None:
    key, headers, value, _ = encode(FULL)
    read = from_binary(KafkaMessage(dict(headers), key, value), JSONFormat(), CloudEvent)
    assert (read.get_id(), read.get_type()) == (FULL.event_id, FULL.type)
    assert (read.get_source(), read.get_subject()) == ("threadlog://gateway", FULL.thread_id)
    assert read.get_time() == datetime.fromisoformat(FULL.occurred_at)
    assert read.get_dataschema() == "urn:threadlog:schema:thread.created:1"
    assert read.get_datacontenttype() == "application/json"
    for field in ("tenant_id", "turn_id", "caused_by", "actor", "worker", "workspace_id"):
        assert read.get_extension(ATTRIBUTES[field]) == getattr(FULL, field)
    assert read.get_extension("idempotencykey") == FULL.idempotency_key
    assert read.get_extension("partitionkey") == FULL.key
    assert read.get_extension("critical") == "true"
    assert read.get_data() == {"title": "ünicode \U0001f600"}


def test_we_read_what_the_cloudevents_package_writes() -> None:
    attributes: dict[str, object] = {
        name: getattr(FULL, field) for field, name in ATTRIBUTES.items()
    }
    attributes |= {
        "time": datetime.fromisoformat(FULL.occurred_at),
        "source": "threadlog://gateway",
        "specversion": "1.0",
        "dataschema": "urn:threadlog:schema:thread.created:1",
        "datacontenttype": "application/json",
        "partitionkey": FULL.key,
        "critical": "true",
    }
    written = to_binary(CloudEvent(attributes, {"title": "ünicode \U0001f600"}), JSONFormat())
    key = written.key.encode() if isinstance(written.key, str) else written.key
    read = decode(AT, key, list(written.headers.items()), written.value).event
    assert read is not None
    same = FULL.model_copy(update={"occurred_at": read.occurred_at, "data": read.data})
    assert read == same
    assert datetime.fromisoformat(read.occurred_at) == datetime.fromisoformat(FULL.occurred_at)


# -- C67, C68: nothing is trusted

ELSEWHERE = str(ids.derive("elsewhere"))


def test_C68_a_null_value_is_void_and_an_empty_one_an_unfit_body() -> None:
    key, headers, _, _ = encode(FULL)
    refused(decode(AT, key, list(headers), None), "no value")
    empty = decode(AT, key, list(headers), b"").event
    assert empty is not None
    assert isinstance(empty.body, Invalid)


def test_C68_an_unknown_version_is_kept_with_its_bytes() -> None:
    record = decoded(FULL, ce_dataschema=b"urn:threadlog:schema:thread.created:99")
    assert record.event is not None
    assert (record.event.version, record.event.body) == (99, Opaque())
    assert record.event.critical


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"ce_tenantid": b"mallory"}, "not those of the record key"),
        ({"ce_subject": ELSEWHERE.encode()}, "not those of the record key"),
        ({"ce_partitionkey": b"mallory/" + ELSEWHERE.encode()}, "not those of the record key"),
        ({"ce_partitionkey": None}, "not those of the record key"),
        ({"ce_tenantid": None}, "not those of the record key"),
        ({"ce_subject": None}, "not those of the record key"),
    ],
)
def test_C67_tenant_thread_and_key_agree_or_the_record_is_void(
    changes: dict[str, bytes | None], rule: str
) -> None:
    refused(decoded(FULL, **changes), rule)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        *(({f"ce_{name}": None}, "") for name in ("id", "type", "time", "actor", "source")),
        ({"ce_specversion": None}, "CloudEvent 1.0"),
        ({"ce_specversion": b"0.3"}, "CloudEvent 1.0"),
        ({"ce_source": b"https://example.com/planner"}, "source is not ours"),
        ({"ce_source": b"threadlog://"}, "source"),
        ({"ce_dataschema": None}, "dataschema"),
        ({"ce_dataschema": b"urn:threadlog:schema:turn.started:1"}, "dataschema"),
        ({"ce_dataschema": b"urn:threadlog:schema:thread.created:01"}, "dataschema"),
        ({"ce_dataschema": "urn:threadlog:schema:thread.created:\u0661".encode()}, "dataschema"),
        ({"ce_dataschema": b"urn:threadlog:schema:thread.created:0"}, "version"),
        ({"ce_dataschema": b"x" * 4_096}, "dataschema too long"),
        ({"ce_critical": b"True"}, "critical"),
        ({"ce_critical": b""}, "critical"),
        ({"ce_actor": b"\xff\xfe"}, "ce_actor is not UTF-8"),
        ({"ce_id": b"not-an-id"}, "event_id"),
        ({"ce_causationid": b"not-an-id"}, "caused_by"),
        ({"ce_idempotencykey": b"k" * 257}, "idempotency_key"),
        ({"x-padding": b"p" * EVENT_BYTES_MAX}, "too large"),
    ],
)
def test_C67_an_unfit_envelope_is_void(changes: dict[str, bytes | None], rule: str) -> None:
    refused(decoded(FULL, **changes), rule)


def test_C67_a_repeated_header_is_void_and_a_foreign_one_is_not() -> None:
    key, headers, value, _ = encode(FULL)
    twice: RawHeaders = [*headers, ("ce_id", FULL.event_id.encode())]
    refused(decode(AT, key, twice, value), "repeated header ce_id")
    null: RawHeaders = [(n, None if n == "ce_actor" else raw) for n, raw in headers]
    refused(decode(AT, key, null, value), "header ce_actor has no value")
    foreign: RawHeaders = [*headers, ("traceparent", b"\xff"), ("traceparent", None)]
    assert decode(AT, key, foreign, value).event == FULL
    many: RawHeaders = [*headers, *((f"x-{n}", b"") for n in range(64))]
    refused(decode(AT, key, many, value), "too many headers")


@pytest.mark.parametrize(
    ("key", "told", "rule"),
    [
        (None, "", "no key"),
        (b"", "", "not those of the record key"),
        (b"\xff/" + FULL.thread_id.encode(), "", "key is not UTF-8"),
        (b"k" * 257, "", "key too long"),
        (
            f"other/{FULL.thread_id}".encode(),
            f"other/{FULL.thread_id}",
            "not those of the record key",
        ),
    ],
)
def test_C67_a_foreign_key_is_void(key: bytes | None, told: str, rule: str) -> None:
    _, headers, value, _ = encode(FULL)
    record = decode(AT, key, list(headers), value)
    refused(record, rule)
    assert record.key == told


def test_C67_no_headers_at_all_and_no_content_in_the_reason() -> None:
    secret = "hunter2-hunter2"
    for record in (
        decode(AT, FULL.key.encode(), None, secret.encode()),
        decode(AT, secret.encode(), [], secret.encode()),
        *(
            decoded(FULL, **{name: secret.encode()})
            for name, _ in encode(FULL).headers
            if "ce_trace" not in name
            and name not in ("ce_actor", "ce_worker", "ce_workspaceid", "ce_idempotencykey")
            and name not in ("ce_time", "content-type")
        ),
    ):
        assert record.problem is not None
        assert secret not in record.problem
        assert len(record.problem) < 250


def test_a_record_too_large_is_refused_whole() -> None:
    event = FULL.model_copy(update={"data": b" " * EVENT_BYTES_MAX})
    key, headers, value, size = encode(event)
    assert size > EVENT_BYTES_MAX
    refused(decode(AT, key, list(headers), value), "too large")


def test_every_type_goes_through() -> None:
    for body in BODIES:
        event = FULL.model_copy(update={"type": body.TYPE, "tenant_id": TenantId("other")})
        assert decoded(event).key == f"other/{FULL.thread_id}"
        read = decoded(event).event
        assert read is not None
        assert read.type == body.TYPE
