"""Properties of the codec: it loses nothing, and nothing makes it fail in another way than ours."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.events import make_event
from tests.helpers.thread_driver import Driver
from threadlog.errors import RecordError
from threadlog.events.catalog import CATALOG
from threadlog.events.codec import (
    decode_body,
    decode_event,
    encode_body,
    from_cloud_event,
    to_cloud_event,
)
from threadlog.events.content import COUNT_MAX, TextPart, Usage
from threadlog.events.envelope import Body, Event, Invalid, Opaque
from threadlog.events.input import MessageReceived
from threadlog.ids import WorkerId

TEXTS = st.text(max_size=40)
TYPES = st.sampled_from([*CATALOG, ("note.added", 1), ("turn.started", 2)])
COUNTS = st.integers(0, COUNT_MAX)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(TEXTS, st.integers(-1, COUNT_MAX), st.one_of(st.none(), COUNTS), TEXTS)
def test_any_text_travels(text: str, base_seq: int, seq: int | None, name: str) -> None:
    body = MessageReceived(base_seq=base_seq, delivery="reject", content=(TextPart(text=text),))
    event = make_event(body, actor=f"user:{name}", worker=WorkerId(name), idempotency_key=name)
    line = to_cloud_event(event, seq)
    assert from_cloud_event(line) == (event, seq)
    assert b"\n" not in line
    assert json.loads(line)["data"]["content"][0]["text"] == text


@given(TYPES, st.one_of(st.binary(max_size=60), JSON.map(lambda j: json.dumps(j).encode())))
def test_any_bytes_travel_under_any_type(kind: tuple[str, int], data: bytes) -> None:
    fields = make_event(
        MessageReceived(base_seq=0, delivery="reject", content=(TextPart(text="x"),))
    ).model_dump(exclude={"body", "data"})
    event = decode_event({**fields, "type": kind[0], "version": kind[1]}, data)
    line = to_cloud_event(event)
    assert b"\n" not in line
    assert from_cloud_event(line) == (event, None)
    assert from_cloud_event(line)[0].data == data


@given(TYPES, st.binary(max_size=200))
def test_decoding_a_body_never_raises(kind: tuple[str, int], data: bytes) -> None:
    assert isinstance(decode_body(*kind, data), Body | Opaque | Invalid)


@given(st.dictionaries(TEXTS, JSON, max_size=6), TYPES)
def test_a_body_of_any_members_is_ours_unknown_or_invalid(
    members: dict[str, object], kind: tuple[str, int]
) -> None:
    body = decode_body(*kind, json.dumps(members).encode())
    assert isinstance(body, Body | Opaque | Invalid)
    if isinstance(body, Body):
        assert decode_body(*kind, encode_body(body)) == body


@given(COUNTS, COUNTS, st.one_of(st.none(), COUNTS))
def test_numbers_travel_exactly(tokens: int, output: int, cost: int | None) -> None:
    """RELIABILITY C9."""
    usage = Usage(input=tokens, output=output, cost_micros=cost)
    assert Usage.model_validate_json(usage.model_dump_json()) == usage


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_the_events_of_a_life_travel(seed: int) -> None:
    for n, entry in enumerate(Driver(seed).run().entries):
        line = to_cloud_event(entry.event, n)
        assert from_cloud_event(line) == (entry.event, n)


LINE = to_cloud_event(
    make_event(MessageReceived(base_seq=0, delivery="reject", content=(TextPart(text="x"),))), 3
)


@settings(max_examples=300)
@given(st.integers(0, len(LINE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_a_damaged_line_is_an_event_or_refused(at: int, insert: bytes, cut: int) -> None:
    """Never another error, and never an event that does not travel on."""
    damaged = LINE[:at] + insert + LINE[at + cut :]
    try:
        event, seq = from_cloud_event(damaged)
    except RecordError:
        return
    assert isinstance(event, Event)
    assert from_cloud_event(to_cloud_event(event, seq)) == (event, seq)


@settings(max_examples=200)
@given(st.binary(max_size=100))
def test_any_bytes_are_no_line_of_ours(line: bytes) -> None:
    try:
        from_cloud_event(line)
    except RecordError:
        return
    raise AssertionError("noise was read as an event")
