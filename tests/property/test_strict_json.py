"""Properties of the strict parser: an oracle for every rule, and one judgement for every reader."""

import json

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from threadlog.events import strict_json
from threadlog.events.codec import decode_body
from threadlog.events.envelope import Body, Invalid, Opaque
from threadlog.limits import JSON_DIGITS_MAX

# Texts full of what the scans look for.
TEXTS = st.text(st.sampled_from('"\\[]{},:1e \n\u00e9\U0001f600ab')) | st.text(max_size=9)
NUMBERS = st.integers(-(10**JSON_DIGITS_MAX) + 1, 10**JSON_DIGITS_MAX - 1) | st.floats(
    allow_nan=False, allow_infinity=False, width=32
)
TREES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
DUMPED = st.tuples(TREES, st.booleans(), st.sampled_from([None, 0, 2])).map(
    lambda drawn: (
        drawn[0],
        json.dumps(drawn[0], ensure_ascii=drawn[1], indent=drawn[2]).encode(),
    )
)
PIECES = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b'""', b'"a"', b'"a":'),
        *(b"1", b"-", b".5", b"e9", b"e999", b"0", b"9" * 20, b"null", b"NaN", b"Infinity"),
        *(b"\\u0061", b"\\ud83d", b"\\ude00", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\x00"),
        *(b'{"a":', b'"title":', b'{"title":"a"', b'"title":"b"}', b"1" * 25),
    ]
)
NOISE = st.lists(PIECES, max_size=12).map(b"".join)


def depth_of(value: object) -> int:
    match value:
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case _:
            return 0


def members_of(value: object) -> int:
    match value:
        case dict():
            return len(value) + sum(map(members_of, value.values()))
        case list():
            return len(value) + sum(map(members_of, value))
        case _:
            return 0


@given(DUMPED)
def test_what_json_writes_is_read_as_it_was(drawn: tuple[object, bytes]) -> None:
    value, data = drawn
    assert strict_json.parse(data) == value
    assert strict_json.check(data) is None


@given(DUMPED)
def test_depth_and_members_are_counted_exactly(drawn: tuple[object, bytes]) -> None:
    value, data = drawn
    depth, members = depth_of(value), members_of(value)
    assert not strict_json.is_too_deep(data, depth)
    assert depth == 0 or strict_json.is_too_deep(data, depth - 1)
    assert not strict_json.has_too_many(data, members)
    assert members == 0 or strict_json.has_too_many(data, members - 1)


@settings(max_examples=500)
@given(st.binary(max_size=60) | NOISE)
def test_what_it_takes_another_strict_parser_takes_and_reads_alike(data: bytes) -> None:
    """Never more than RFC 8259, and of that all but what the rules name."""
    problem = strict_json.check(data)
    try:
        theirs = orjson.loads(data)
    except orjson.JSONDecodeError:
        assert problem is not None
        return
    if problem is None:
        # orjson makes a double of an integer that is longer than 64 bits, and the same of both.
        assert orjson.dumps(theirs, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
            _as_theirs(strict_json.parse(data)), option=orjson.OPT_SORT_KEYS
        )
    else:
        assert problem.split()[0] in {"duplicate", "a", "not"}


def _as_theirs(value: object) -> object:
    match value:
        case dict():
            return {name: _as_theirs(inner) for name, inner in value.items()}
        case list():
            return [_as_theirs(inner) for inner in value]
        case int() if not -(2**63) <= value < 2**64:
            return float(value)
        case _:
            return value


@settings(max_examples=500)
@given(
    st.sampled_from(["thread.created", "tool.started", "turn.started"]),
    st.dictionaries(st.sampled_from(["title", "x", ""]), TREES, max_size=3).map(
        lambda members: json.dumps(members).encode()
    )
    | NOISE
    | NOISE.map(lambda noise: b'{"title":"a",' + noise + b"}"),
)
def test_a_body_is_valid_for_all_readers_or_for_none(kind: str, data: bytes) -> None:
    """A reader of this version against one that does not know the type."""
    known, opaque = decode_body(kind, 1, data), decode_body("note.added", 1, data)
    problem = strict_json.check(data)
    assert isinstance(opaque, Opaque | Invalid)
    if isinstance(known, Body) or (problem is None and data.strip()[:1] == b"{"):
        assert isinstance(opaque, Opaque)
    if problem is not None:
        assert isinstance(known, Invalid)
        assert isinstance(opaque, Invalid)
