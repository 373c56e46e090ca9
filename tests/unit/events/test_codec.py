"""Structured CloudEvents lines: round trips, an outside oracle, and lines that lie."""

import json

import pytest
from cloudevents.core.formats.json import JSONFormat

from tests.helpers.events import TRACE, make_event
from tests.helpers.samples import ONE_OF_EACH
from tests.helpers.thread_events import bent, message, unknown
from tests.helpers.threads import Story
from threadlog.errors import RecordError
from threadlog.events.catalog import BODIES, CATALOG
from threadlog.events.codec import decode_event, from_cloud_event, to_cloud_event
from threadlog.events.envelope import Event, Invalid, Opaque
from threadlog.events.thread import ThreadCreated
from threadlog.ids import WorkerId, WorkspaceId
from threadlog.limits import EVENT_BYTES_MAX, JSON_DEPTH_MAX

ROOT = ONE_OF_EACH["message.received"]


def line_of(event: Event, **changes: object) -> bytes:
    """The event's line with top-level members set, or removed where the value is None."""
    members = json.loads(to_cloud_event(event, 7))
    members |= changes
    return json.dumps({k: v for k, v in members.items() if v is not None}).encode()


def test_the_sample_has_every_type() -> None:
    assert set(ONE_OF_EACH) == {body.TYPE for body in BODIES}


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_line_reads_back_as_the_event_and_its_seq(event: Event) -> None:
    for seq in (None, 0, 12_345):
        line = to_cloud_event(event, seq)
        again, read_seq = from_cloud_event(line)
        assert (again, read_seq) == (event, seq)
        assert again.data == event.data
        assert to_cloud_event(again, seq) == line
        assert b"\n" not in line


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_the_cloudevents_package_reads_the_same(event: Event) -> None:
    theirs = JSONFormat().read(None, to_cloud_event(event, 3))
    attributes = theirs.get_attributes()
    assert attributes["specversion"] == "1.0"
    assert theirs.get_id() == event.event_id
    assert theirs.get_type() == event.type
    assert theirs.get_source() == f"threadlog://{event.source}"
    assert theirs.get_subject() == event.thread_id
    assert theirs.get_dataschema() == f"urn:threadlog:schema:{event.type}:{event.version}"
    assert theirs.get_datacontenttype() == "application/json"
    assert theirs.get_data() == json.loads(event.data)
    assert attributes["partitionkey"] == f"{event.tenant_id}/{event.thread_id}"
    assert attributes["sequence"] == "00000000000000000003"
    assert attributes.get("critical") is True
    assert attributes.get("causationid") == event.caused_by


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_what_the_cloudevents_package_has_rewritten_reads_as_the_same_event(event: Event) -> None:
    rewritten = JSONFormat().write(JSONFormat().read(None, to_cloud_event(event, 3)))
    again, seq = from_cloud_event(rewritten)
    assert seq == 3
    assert again.body == event.body
    unread = {"data", "occurred_at"}  # their JSON has spaces, their times no trailing zeros
    assert again.model_dump(exclude=unread) == event.model_dump(exclude=unread)


def test_every_member_of_the_envelope_is_on_the_line() -> None:
    full = make_event(
        ThreadCreated(),
        turn_id=ONE_OF_EACH["turn.started"].turn_id,
        caused_by=ROOT.event_id,
        worker=WorkerId("w-1"),
        workspace_id=WorkspaceId("ws"),
        idempotency_key="k",
    ).model_copy(update=TRACE)
    assert all(getattr(full, name) is not None for name in Event.model_fields)
    again, _ = from_cloud_event(to_cloud_event(full))
    assert again == full


# -- bytes that are not ours to change

INNER = JSON_DEPTH_MAX - 1
ODD_BODIES = {
    "a number of 17 digits": b'{"n":12345678901234567}',
    "escapes and order of members": b'{"b":"\\u00e9\\/","a":[1.50,-0,1e3]}',
    "members of the future": b'{"title":"t","colour":{"r":1}}',
    "a repeated member": b'{"title":"a","title":"b"}',
    "spaces": b'{ "title" : "t" }',
    "line feeds": b'{\n  "title": "t"\r\n}',
    "space around": b' {"title":"t"} ',
    "nothing": b"",
    "no JSON": b"\x00\xff{]",
    "half a pair of surrogates": b'{"title":"\\ud800"}',
    "not a number": b'{"title":NaN}',
    "too deep": b'{"a":' + b"[" * 500 + b"]" * 500 + b"}",
    "as deep as it may be": b'{"a":' + b"[" * INNER + b"]" * INNER + b"}",
}


@pytest.mark.parametrize("data", ODD_BODIES.values(), ids=ODD_BODIES)
@pytest.mark.parametrize("kind", ["thread.created", "note.added"])
def test_a_body_travels_byte_for_byte_on_one_line(data: bytes, kind: str) -> None:
    story = Story()
    event = unknown(kind, data=data)(story.state)
    line = to_cloud_event(event)
    assert b"\n" not in line
    assert b"\r" not in line
    json.loads(line, parse_constant=pytest.fail)
    again, _ = from_cloud_event(line)
    assert again == event
    assert again.data == data
    theirs = JSONFormat().read(None, line).get_data()
    assert theirs == (data if b"data_base64" in line else json.loads(data))


def test_F09_an_unknown_type_is_passed_on_byte_equal() -> None:
    data = b'{"of":"another year","n":1.0,"x":[],"n2":1e2}'
    event = unknown("note.added", version=3, data=data)(Story().state)
    assert isinstance(event.body, Opaque)
    again, _ = from_cloud_event(to_cloud_event(event, 1))
    assert (again.type, again.version, again.data) == ("note.added", 3, data)


# -- lines that are no events (C67 to C69 and others)

HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "white space": b"  \t ",
    "null": b"null",
    "a list": b"[]",
    "an empty object": b"{}",
    "half an object": b'{"specversion":"1.0"',
    "an object and more": to_cloud_event(ROOT) + b"x",
    "two objects": to_cloud_event(ROOT) * 2,
    "a comma too many": to_cloud_event(ROOT)[:-1] + b",}",
    "a name that is no string": b"{1:2}",
    "a member without a colon": b'{"a" 1}',
    "not UTF-8": to_cloud_event(ROOT).replace(b"hello", b"\xff\xfe").replace(b"a\\nb", b"\xff\xfe"),
    "UTF-16": to_cloud_event(ROOT).decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + to_cloud_event(ROOT),
    "too long": b'{"data":"' + b"x" * (2 * EVENT_BYTES_MAX) + b'"}',
    "not a number": line_of(ROOT).replace(b'"specversion"', b'"x":NaN,"specversion"'),
    "a number of 5,000 digits": line_of(ROOT)[:-1] + b',"x":' + b"9" * 5_000 + b"}",
    "a repeated member": line_of(ROOT)[:-1] + b',"actor":"user:other"}',
    "data twice": line_of(ROOT)[:-1] + b',"data":{}}',
    "data in two forms": line_of(ROOT)[:-1] + b',"data_base64":"e30="}',
    "no data": line_of(ROOT, data=None),
    "data_base64 that is none": line_of(ROOT, data=None, data_base64="*"),
    "data_base64 that is no text": line_of(ROOT, data=None, data_base64=[1]),
    "nested too deep": b'{"a":' + b"[" * 3_000 + b"]" * 3_000 + b"}",
    "nested too deep behind brackets in a text": b'{"x":"'
    + b"]" * 5_000
    + b'","data":'
    + b"[" * 3_000
    + b"]" * 3_000
    + b"}",
    "nested too deep and never closed": b'{"a":' + b"[" * 100_000,
    "quotes that never close": b'{"a":"' + b'\\"' * 100_000,
    "another spec": line_of(ROOT, specversion="0.3"),
    "no spec": line_of(ROOT, specversion=None),
    "no id": line_of(ROOT, id=None),
    "an id in upper case": line_of(ROOT, id=ROOT.event_id.upper()),
    "an id that is no id": line_of(ROOT, id="../x"),
    "no type": line_of(ROOT, type=None),
    "a type that is no text": line_of(ROOT, type=7),
    "a type with another schema": line_of(ROOT, type="turn.started"),
    "no schema": line_of(ROOT, dataschema=None),
    "a foreign schema": line_of(ROOT, dataschema="urn:other:message.received:1"),
    "a schema without a version": line_of(
        ROOT, dataschema="urn:threadlog:schema:message.received:"
    ),
    "version 0": line_of(ROOT, dataschema="urn:threadlog:schema:message.received:0"),
    "version -1": line_of(ROOT, dataschema="urn:threadlog:schema:message.received:-1"),
    "version 01": line_of(ROOT, dataschema="urn:threadlog:schema:message.received:01"),
    "version 00000000011": line_of(
        ROOT, dataschema="urn:threadlog:schema:message.received:00000000011"
    ),
    "a version of other digits": line_of(
        ROOT, dataschema="urn:threadlog:schema:message.received:\u0661"
    ),
    "no source": line_of(ROOT, source=None),
    "a foreign source": line_of(ROOT, source="https://example.org"),
    "a source that is no text": line_of(ROOT, source=["threadlog://x"]),
    "c67 a partition key of another tenant": line_of(ROOT, partitionkey=f"other/{ROOT.thread_id}"),
    "c67 a partition key of another thread": line_of(ROOT, partitionkey="local/x"),
    "c67 no partition key": line_of(ROOT, partitionkey=None),
    "c67 another tenant than in the key": line_of(ROOT, tenantid="other"),
    "a tenant that is none": line_of(ROOT, tenantid="Other"),
    "c67 another thread than in the key": line_of(ROOT, subject=ROOT.event_id),
    "a sequence that is a number": line_of(ROOT, sequence=7),
    "a sequence with a sign": line_of(ROOT, sequence="-7"),
    "a sequence of 21 digits": line_of(ROOT, sequence="0" * 21),
    "critical as a number": line_of(ROOT, critical=1),
    "no time": line_of(ROOT, time=None),
    "a time that is a number": line_of(ROOT, time=-1),
    "a time without end": line_of(ROOT, time="2" * 65),
    "no actor": line_of(ROOT, actor=""),
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(RecordError):
        from_cloud_event(line)


def test_what_a_line_says_beside_is_ignored() -> None:
    """C70: foreign attributes count for nothing."""
    again, seq = from_cloud_event(line_of(ROOT, attempt=99, backoffuntil="2099", tenant="x"))
    assert (again.body, seq) == (ROOT.body, 7)


@pytest.mark.parametrize(
    "time", ["", "-1", "9223372036854775807", "9999-12-31T23:59:59+23:59", "yesterday"]
)
def test_c69_a_time_is_text_that_nobody_reads(time: str) -> None:
    event = bent(message(), occurred_at=time)(Story().state)
    assert from_cloud_event(to_cloud_event(event)) == (event, None)


# -- envelopes from a log

FIELDS: dict[str, object] = {
    name: getattr(ROOT, name) for name in Event.model_fields if name not in ("body", "data")
}


def test_an_envelope_reads_as_the_event() -> None:
    assert decode_event(FIELDS, ROOT.data) == ROOT


@pytest.mark.parametrize(
    ("changes", "data"),
    [
        ({}, None),
        ({"type": None}, b"{}"),
        ({"type": ["message.received"]}, b"{}"),
        ({"type": "Message"}, b"{}"),
        ({"version": None}, b"{}"),
        ({"version": "1"}, b"{}"),
        ({"version": True}, b"{}"),
        ({"version": 1.0}, b"{}"),
        ({"event_id": "x\n"}, b"{}"),
        ({"tenant_id": "local/x"}, b"{}"),
        ({"thread_id": ""}, b"{}"),
        ({"critical": None}, b"{}"),
        ({"actor": "\ud800"}, b"{}"),
        ({"colour": "red"}, b"{}"),
    ],
)
def test_an_envelope_that_is_none_is_refused(
    changes: dict[str, object], data: bytes | None
) -> None:
    with pytest.raises(RecordError):
        decode_event({**FIELDS, **changes}, data)


def test_c68_a_record_without_a_body_is_void_and_a_version_99_is_kept() -> None:
    empty = decode_event(FIELDS, b"")
    assert isinstance(empty.body, Invalid)
    with pytest.raises(RecordError, match="no value"):
        decode_event(FIELDS, None)
    newer = decode_event({**FIELDS, "version": 99}, ROOT.data)
    assert isinstance(newer.body, Opaque)
    assert newer.data == ROOT.data


def test_a_problem_names_the_place_and_never_the_content() -> None:
    secret = "do not print me"
    body = decode_event({**FIELDS}, json.dumps({"base_seq": secret}).encode()).body
    assert isinstance(body, Invalid)
    assert body.problem.startswith("base_seq: ")
    assert secret not in body.problem
    with pytest.raises(RecordError) as caught:
        decode_event({**FIELDS, "event_id": secret}, ROOT.data)
    assert secret not in str(caught.value)


def test_the_catalog_is_keyed_by_type_and_version() -> None:
    assert all(CATALOG[body.TYPE, body.VERSION] is body for body in BODIES)
    assert len(CATALOG) == len(BODIES)
