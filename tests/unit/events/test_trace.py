"""What counts as a trace, and that nothing else depends on it."""

import json

import orjson
import pytest

from tests.helpers.events import event_id, make_event, thread_id
from threadlog import ids
from threadlog.adapters.kafka.headers import Headers, decode, encode
from threadlog.adapters.redis.rows import decode_event_line, encode_event
from threadlog.api.events import event_object, event_of
from threadlog.events.codec import from_cloud_event, to_cloud_event
from threadlog.events.envelope import Event
from threadlog.events.thread import ThreadCreated
from threadlog.events.trace import TraceParent, is_state, parse_parent
from threadlog.ids import Position, Seq
from threadlog.limits import TRACESTATE_CHARS_MAX, TRACESTATE_MEMBERS_MAX

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{SPAN}-01"
MALFORMED = {
    "nothing": "",
    "a version to come": f"01-{TRACE}-{SPAN}-01",
    "the version that is none": f"ff-{TRACE}-{SPAN}-01",
    "a version and more": f"00-{TRACE}-{SPAN}-01-more",
    "no trace": f"00-{'0' * 32}-{SPAN}-01",
    "no span": f"00-{TRACE}-{'0' * 16}-01",
    "upper case": f"00-{TRACE.upper()}-{SPAN}-01",
    "a short trace": f"00-{TRACE[1:]}-{SPAN}-01",
    "a long trace": f"00-{TRACE}0-{SPAN}-01",
    "a short span": f"00-{TRACE}-{SPAN[1:]}-01",
    "no flags": f"00-{TRACE}-{SPAN}",
    "short flags": f"00-{TRACE}-{SPAN}-1",
    "no hex": f"00-{TRACE[:-1]}g-{SPAN}-01",
    "other digits": f"00-{TRACE[:-1]}\N{ARABIC-INDIC DIGIT ONE}-{SPAN}-01",
    "a line more": f"{GOOD}\n",
    "a space before": f" {GOOD}",
    "two": f"{GOOD},{GOOD}",
    "two lines": f"{GOOD}\r\nX-Injected: 1",
    "other separators": GOOD.replace("-", "_"),
    "a NUL": GOOD[:-1] + "\0",
    "megabytes": "0" * 1_000_000,
}
BAD_STATES = {
    "nothing": "",
    "no value": "vendor",
    "an empty value": "vendor=",
    "an empty key": "=value",
    "upper case": "Vendor=1",
    "twice": "vendor=1,vendor=2",
    "a control character": "vendor=a\nb",
    "not ASCII": "vendor=\N{SNOWMAN}",
    "two equals signs": "vendor=a=b",
    "a long key": f"{'k' * 257}=1",
    "too many": ",".join(f"k{n}=1" for n in range(TRACESTATE_MEMBERS_MAX + 1)),
    "too long": f"k={'v' * TRACESTATE_CHARS_MAX}",
}
PLAIN = make_event(
    ThreadCreated(title="t"),
    event_id=event_id("traced"),
    thread=thread_id(3),
    turn_id=ids.turn_id(thread_id(3), 1),
)
TRACED = PLAIN.model_copy(update={"traceparent": GOOD, "tracestate": "vendor=1,t@other=2"})


def test_F103_a_parent_is_read_and_written() -> None:
    assert parse_parent(GOOD) == TraceParent(TRACE, SPAN, is_sampled=True)
    assert parse_parent(GOOD) == parse_parent(f"00-{TRACE}-{SPAN}-ff")
    assert parse_parent(f"00-{TRACE}-{SPAN}-02") == TraceParent(TRACE, SPAN, is_sampled=False)
    assert TraceParent(TRACE, SPAN, is_sampled=True).text() == GOOD


@pytest.mark.parametrize("name", MALFORMED)
def test_F103_a_malformed_parent_is_none(name: str) -> None:
    assert parse_parent(MALFORMED[name]) is None


@pytest.mark.parametrize("thing", [None, 1, b"00", [GOOD], {"a": GOOD}])
def test_F103_what_is_no_text_is_none(thing: object) -> None:
    assert parse_parent(thing) is None
    assert not is_state(thing)


@pytest.mark.parametrize("text", ["a=1", "a=1, b@c=2", "a=1,,b=2", "a-_*/=x y~", "0t@s=v"])
def test_F103_a_state_is_taken(text: str) -> None:
    assert is_state(text)


@pytest.mark.parametrize("name", BAD_STATES)
def test_F103_a_malformed_state_is_none(name: str) -> None:
    assert not is_state(BAD_STATES[name])


def forms(event: Event) -> list[Event | None]:
    """The event through every form in which it is stored or sent."""
    kafka = encode(event)
    return [
        from_cloud_event(to_cloud_event(event))[0],
        decode(Position(1), kafka.key, [*kafka.headers], kafka.value).event,
        decode_event_line(encode_event(event)),
        event_of(event_object(event, Seq(1)).decode())[0],
    ]


def test_F103_every_form_keeps_a_trace_and_adds_none() -> None:
    assert forms(TRACED) == [TRACED] * 4
    assert forms(PLAIN) == [PLAIN] * 4
    for line in (to_cloud_event(PLAIN), event_object(PLAIN, Seq(1))):
        assert b"trace" not in line
    assert not any("trace" in name for name, _ in encode(PLAIN).headers)


@pytest.mark.parametrize("name", MALFORMED)
def test_F103_a_malformed_trace_voids_nothing(name: str) -> None:
    members = json.loads(to_cloud_event(TRACED)) | {"traceparent": MALFORMED[name][:4_000]}
    assert from_cloud_event(orjson.dumps(members))[0] == PLAIN
    kafka = encode(PLAIN)
    bad = MALFORMED[name][:4_000].encode()
    headers = [*kafka.headers, ("ce_traceparent", bad), ("ce_tracestate", b"vendor=1")]
    assert decode(Position(1), kafka.key, [*headers], kafka.value).event == PLAIN


@pytest.mark.parametrize("raws", [[None], [b"\xff"], [GOOD.encode(), GOOD.encode()]])
def test_F103_a_header_that_is_no_text_or_comes_twice_voids_nothing(
    raws: list[bytes | None],
) -> None:
    kafka = encode(PLAIN)
    headers: Headers = [*kafka.headers, *(("ce_traceparent", raw) for raw in raws)]
    assert decode(Position(1), kafka.key, headers, kafka.value).event == PLAIN


def test_F103_a_malformed_state_leaves_its_parent() -> None:
    for text in BAD_STATES.values():
        members = json.loads(to_cloud_event(TRACED)) | {"tracestate": text}
        event = from_cloud_event(orjson.dumps(members))[0]
        assert (event.traceparent, event.tracestate) == (GOOD, None)
