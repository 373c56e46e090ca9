"""Bodies: strict in what is known, tolerant of what is not, never raising on any bytes."""

import json
from typing import ClassVar

import pytest

from tests.helpers.samples import ONE_OF_EACH
from threadlog.events import upcast as upcast_module
from threadlog.events.catalog import BODIES, CATALOG_DIGEST, schema_urn
from threadlog.events.codec import decode_body, encode_body
from threadlog.events.content import COUNT_MAX
from threadlog.events.envelope import Body, Event, Invalid, Opaque
from threadlog.events.thread import ThreadCreated
from threadlog.events.upcast import lookup, upcast
from threadlog.events.writer import EventWriter
from threadlog.ids import LOCAL_TENANT, WorkerId, caused_id, new_thread_id
from threadlog.limits import CALLS_PER_STEP_MAX, JSON_DEPTH_MAX

CALL = {"provider_call_id": "a", "name": "cli", "arguments": "{}"}
SIGNED = {"kind": "thinking", "text": "hm", "signature": "s"}
KNOWN = {event.type: json.loads(event.data) for event in ONE_OF_EACH.values()}


def decoded(kind: str, **changes: object) -> object:
    return decode_body(kind, 1, json.dumps({**KNOWN[kind], **changes}).encode())


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_body_round_trips(event: Event) -> None:
    body = event.body
    assert isinstance(body, Body)
    assert decode_body(event.type, event.version, encode_body(body)) == body
    assert b"null" not in encode_body(body), "what is None is left out"


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_an_unknown_member_is_ignored(event: Event) -> None:
    assert decoded(event.type, of_a_later_version={"x": [1]}) == event.body


@pytest.mark.parametrize("event", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_missing_member_makes_it_invalid(event: Event) -> None:
    for name in _required(type(event.body)):
        rest = {k: v for k, v in KNOWN[event.type].items() if k != name}
        body = decode_body(event.type, 1, json.dumps(rest).encode())
        assert isinstance(body, Invalid), name
        assert body.problem == f"{name}: missing"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("tool.requested", {"gate": "free", "command": None}),
        ("thread.configured", {"workspace": {"kind": "attached"}}),
        ("thread.configured", {"workspace": {"kind": "managed", "path": "/tmp"}}),
    ],
)
def test_members_that_contradict_each_other_make_it_invalid(
    kind: str, changes: dict[str, object]
) -> None:
    assert isinstance(decoded(kind, **changes), Invalid)


def _required(body: type[object]) -> list[str]:
    assert issubclass(body, Body)
    return [name for name, member in body.model_fields.items() if member.is_required()]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("turn.started", {"number": "1"}),
        ("turn.started", {"number": True}),
        ("turn.started", {"number": 1.0}),
        ("turn.started", {"number": 0}),
        ("turn.started", {"number": COUNT_MAX + 1}),
        ("turn.started", {"number": 10**400}),
        ("turn.started", {"admits": []}),
        ("turn.started", {"admits": "x"}),
        ("turn.finished", {"verdict": "done"}),
        ("turn.finished", {"decided_at": -2}),
        ("message.received", {"delivery": "soon"}),
        ("message.received", {"content": []}),
        ("message.received", {"content": [{"kind": "sound", "text": "x"}]}),
        ("message.received", {"content": [{"text": "x"}]}),
        ("model.attempt_failed", {"due_at_ms": 2**63}),
        ("model.attempt_failed", {"due_at_ms": -(2**63)}),
        ("model.attempt_failed", {"message": "x" * 2_001}),
        ("model.responded", {"content": [{"kind": "text", "text": "x"}] * 513}),
        ("model.responded", {"content": [SIGNED | {"signature": "x" * 65_537}]}),
        ("model.responded", {"calls": [CALL] * (CALLS_PER_STEP_MAX + 1)}),
        ("model.responded", {"calls": [CALL | {"name": "x" * 257}]}),
        ("model.responded", {"calls": [CALL | {"provider_call_id": "x" * 257}]}),
        ("model.interrupted", {"content": [{"kind": "text", "text": "x"}] * 513}),
        ("model.responded", {"usage": {"input": -1}}),
        ("model.responded", {"usage": {"input": 2**53}}),
        ("model.responded", {"usage": {"cost_micros": 2**63}}),
        ("model.responded", {"usage": {"cost_micros": 0.5}}),
        ("thread.configured", {"tools": ["x" * 257]}),
        ("thread.configured", {"tools": ["x"] * 65}),
        ("thread.configured", {"model": {"provider": "", "name": "x"}}),
        ("thread.configured", {"limits": {"steps_max": 0}}),
        ("thread.configured", {"workspace": {"kind": "attached", "path": "x" * 4_097}}),
        ("file.changed", {"path": ""}),
        ("file.changed", {"after": {"sha256": "AB" * 32, "bytes": 1, "media_type": "x"}}),
        ("tool.finished", {"outcome": "fine"}),
        ("tool.finished", {"exit_code": 2**60}),
    ],
)
def test_a_member_out_of_bounds_makes_it_invalid(kind: str, changes: dict[str, object]) -> None:
    assert isinstance(decoded(kind), Body)
    body = decoded(kind, **changes)
    assert isinstance(body, Invalid)
    assert body.problem.startswith(next(iter(changes)))


def test_a_response_at_its_bounds_is_a_body() -> None:
    call = CALL | {"name": "x" * 256, "provider_call_id": "x" * 256}
    part = SIGNED | {"signature": "x" * 65_536}
    calls = [call] * CALLS_PER_STEP_MAX
    body = decoded("model.responded", content=[part] * 512, calls=calls)
    assert isinstance(body, Body)


def nested(depth: int, inner: bytes = b"") -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + inner + b"]" * (depth - 1) + b"}"


GARBAGE: dict[str, tuple[bytes, str | None]] = {
    "empty": (b"", "not JSON"),
    "null": (b"null", "no object"),
    "a list": (b"[]", "no object"),
    "a text": (b'"x"', "no object"),
    "cut": (b'{"a":1', "not JSON"),
    "two": (b"{}{}", "not JSON"),
    "not UTF-8": (b'{"a":"\xed\xa0\x80"}', "not JSON"),
    "half a pair": (b'{"a":"\\ud800"}', "not JSON"),
    "NaN": (b'{"a":NaN}', "not JSON"),
    "-Infinity": (b'{"a":[-Infinity]}', "not JSON"),
    "a text that says NaN": (b'{"a":"NaN Infinity"}', None),
    "5,000 digits": (b'{"a":' + b"1" * 5_000 + b"}", "not JSON"),
    "as deep as it may be": (nested(JSON_DEPTH_MAX), None),
    "deeper": (nested(JSON_DEPTH_MAX + 1), "nested too deep"),
    "100,000 deep": (b'{"a":' * 100_000, "nested too deep"),
    "deep behind brackets in a text": (
        b'{"b":"' + b"]" * 999 + b'","a":' + nested(JSON_DEPTH_MAX) + b"}",
        "nested too deep",
    ),
    "many brackets, not deep": (b'{"a":[' + b"[]," * 999 + b"[]]}", None),
    "many brackets in a text": (b'{"a":"' + b'[{\\"' * 999 + b'"}', None),
}


@pytest.mark.parametrize(("data", "problem"), GARBAGE.values(), ids=GARBAGE)
def test_every_reader_voids_the_same_garbage(data: bytes, problem: str | None) -> None:
    """A reader that knows the type and one that does not: else they would count apart."""
    opaque = decode_body("note.added", 1, data)
    known = decode_body("thread.created", 1, data)
    if problem is None:
        assert isinstance(opaque, Opaque)
        assert isinstance(known, Body)
    else:
        assert opaque == Invalid(problem=problem)
        assert isinstance(known, Invalid)


def test_a_newer_version_is_opaque() -> None:
    assert decode_body("turn.started", 2, b"{}") == Opaque()
    assert lookup("turn.started", 2) is None


# -- catalog and upcasters


class ThreadCreated2(ThreadCreated):
    VERSION: ClassVar[int] = 2


class ThreadCreated3(ThreadCreated):
    VERSION: ClassVar[int] = 3


def test_a_body_is_lifted_version_by_version() -> None:
    lifted = upcast(
        ThreadCreated(title="t"),
        {
            ("thread.created", 1): lambda b: ThreadCreated2(title=getattr(b, "title", None)),
            ("thread.created", 2): lambda b: ThreadCreated3(title=getattr(b, "title", None)),
        },
    )
    assert (type(lifted), getattr(lifted, "title", None)) == (ThreadCreated3, "t")


def test_an_upcaster_that_does_not_lift_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        upcast(ThreadCreated(), {("thread.created", 1): lambda b: b})


def test_version_1_is_the_newest_of_every_type() -> None:
    assert upcast_module.UPCASTERS == {}
    assert {body.VERSION for body in BODIES} == {1}


def test_every_type_is_critical_since_its_acceptance_depends_on_state() -> None:
    assert all(body.CRITICAL for body in BODIES)


def test_names_of_schemas() -> None:
    assert schema_urn("turn.started", 1) == "urn:threadlog:schema:turn.started:1"
    assert len(CATALOG_DIGEST) == 16


# -- writer


def test_a_writer_fills_the_envelope() -> None:
    writer = EventWriter("planner", WorkerId("w"), lambda: "2026-01-02T03:04:05.000Z")
    thread = new_thread_id(LOCAL_TENANT, "k")
    event_id = caused_id(thread, "x")
    event = writer.make((LOCAL_TENANT, thread), ThreadCreated(title="t"), event_id, caused_by=None)
    assert (event.source, event.worker, event.actor) == ("planner", "w", "service:planner")
    assert (event.type, event.version, event.critical) == ("thread.created", 1, True)
    assert event.data == b'{"title":"t"}'
    assert event.occurred_at == "2026-01-02T03:04:05.000Z"
    assert event.key == f"local/{thread}"
    named = writer.make(
        (LOCAL_TENANT, thread), ThreadCreated(), event_id, caused_by=event_id, actor="user:a"
    )
    assert (named.actor, named.caused_by) == ("user:a", event_id)


def test_an_event_cannot_be_changed() -> None:
    event = ONE_OF_EACH["turn.started"]
    with pytest.raises(ValueError, match="frozen"):
        event.actor = "x"  # type: ignore[misc]  # that it fails is the point
    with pytest.raises(ValueError, match="frozen"):
        event.body.number = 2  # type: ignore[union-attr]  # that it fails is the point
