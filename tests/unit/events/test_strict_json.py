"""The strict parser: its rules at their bounds, its silence, and the bad-input corpus."""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from types import SimpleNamespace

import pytest

from tests.helpers.corpus import (
    CredentialCase,
    JsonCase,
    TargetCase,
    credential_cases,
    json_cases,
    target_cases,
)
from tests.helpers.events import make_event
from threadlog.errors import RecordError, RejectedError
from threadlog.events import strict_json
from threadlog.events.codec import decode_body, encode_body, from_cloud_event, to_cloud_event
from threadlog.events.content import TextPart
from threadlog.events.envelope import Body, Invalid, Opaque
from threadlog.events.input import MessageReceived
from threadlog.events.thread import ThreadCreated
from threadlog.limits import JSON_DEPTH_MAX, JSON_DIGITS_MAX, JSON_MEMBERS_MAX

DIGITS = b"1" * JSON_DIGITS_MAX
TOO_DEEP = f"nested deeper than {JSON_DEPTH_MAX}"
TOO_MANY = f"more than {JSON_MEMBERS_MAX} members"
TOO_LONG = f"a number of more than {JSON_DIGITS_MAX} digits"
NOT_FINITE = "not a finite number"


def lists(depth: int, inner: bytes = b"") -> bytes:
    return b"[" * depth + inner + b"]" * depth


def listed(element: bytes, times: int) -> bytes:
    return b"[" + b",".join([element] * times) + b"]"


def names(times: int) -> bytes:
    return b"{" + b",".join(b'"%d":0' % n for n in range(times)) + b"}"


# -- what it takes

TAKEN: dict[str, tuple[bytes, object]] = {
    "an object": (b' {"a": [1, true, null, {}]}\r\n', {"a": [1, True, None, {}]}),
    "null": (b"null", None),
    "2^53+1 (C9)": (b"9007199254740993", 2**53 + 1),
    "2^63-1": (b"9223372036854775807", 2**63 - 1),
    "-2^63": (b"-9223372036854775808", -(2**63)),
    "2^64": (b"18446744073709551616", 2**64),
    "as many digits as may be": (DIGITS, int(DIGITS)),
    "the longest spelling of a double": (b"-1.7976931348623157e+308", -1.7976931348623157e308),
    "a fraction": (b"0.1", 0.1),
    "a pair of surrogates": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "an escaped backslash before what looks like half a pair": (b'"\\\\ud800"', "\\ud800"),
    "NUL, and separators of lines": ('"\\u0000\u2028"'.encode(), "\x00\u2028"),
    "equal names in two objects": (b'[{"a":1},{"a":{"a":2}}]', [{"a": 1}, {"a": {"a": 2}}]),
    "names that differ in their spelling only by case": (b'{"a":1,"A":2}', {"a": 1, "A": 2}),
}


@pytest.mark.parametrize(("data", "value"), TAKEN.values(), ids=TAKEN)
def test_it_takes_what_means_the_same_to_everyone(data: bytes, value: object) -> None:
    parsed = strict_json.parse(data)
    assert parsed == value
    assert type(parsed) is type(value)


AT_A_BOUND: dict[str, tuple[bytes, str | None]] = {
    "as deep as it may be": (lists(JSON_DEPTH_MAX), None),
    "deeper": (lists(JSON_DEPTH_MAX + 1), TOO_DEEP),
    "deeper, by objects": (b'{"a":' * 65 + b"0" + b"}" * 65, TOO_DEEP),
    "deeper, behind what is flat": (b"[" + b"[]," * 999 + lists(JSON_DEPTH_MAX) + b"]", TOO_DEEP),
    "deeper, behind a text that closes": (
        b'["\\"' + b"]" * 99 + b'\\\\",' + lists(JSON_DEPTH_MAX) + b"]",
        TOO_DEEP,
    ),
    "brackets in a text": (b'["' + b'[{\\"' * 999 + b'"]', None),
    "elements": (listed(b"0", JSON_MEMBERS_MAX), None),
    "one element more": (listed(b"0", JSON_MEMBERS_MAX + 1), TOO_MANY),
    "names": (names(JSON_MEMBERS_MAX), None),
    "one name more": (names(JSON_MEMBERS_MAX + 1), TOO_MANY),
    "empty lists": (listed(b"[ ]", JSON_MEMBERS_MAX), None),
    "one empty object more": (listed(b"{\n}", JSON_MEMBERS_MAX + 1), TOO_MANY),
    "texts": (listed(b'""', JSON_MEMBERS_MAX), None),
    "lists of a text": (listed(b'[""]', JSON_MEMBERS_MAX // 2), None),
    "one more list of a text": (listed(b'[""]', JSON_MEMBERS_MAX // 2 + 1), TOO_MANY),
    "commas in a text": (b'["' + b',[{\\",' * 9_999 + b'"]', None),
    "one digit more": (DIGITS + b"1", TOO_LONG),
    "one digit more, negative": (b"[-" + DIGITS + b"1]", TOO_LONG),
    "one digit more, of a fraction": (b"0." + DIGITS, TOO_LONG),
    "one digit more, of an exponent": (b"1e-" + b"0" * JSON_DIGITS_MAX, TOO_LONG),
    "long numbers apart": (listed(DIGITS, 9), None),
    "digits in a text": (b'"' + DIGITS * 9 + b'"', None),
    "digits in a name": (b'{"' + DIGITS * 9 + b'":1}', None),
    "a long number behind digits": (b'["1' + DIGITS + b'\\"",1' + DIGITS + b"]", TOO_LONG),
    "1e308": (b"1e308", None),
    "1e309": (b"1e309", NOT_FINITE),
    "-1e999": (b'{"a":[-1e999]}', NOT_FINITE),
    "NaN": (b"NaN", NOT_FINITE),
    "a duplicate": (b'{"a":1,"a":1}', "duplicate member"),
    "a duplicate inside": (b'[{"b":{"a":1,"c":[],"a":null}}]', "duplicate member"),
    "a duplicate once it is unescaped": (b'{"ab":1,"\\u0061b":2}', "duplicate member"),
    "an empty name twice": (b'{"":1,"":2}', "duplicate member"),
    "half a pair": (b'"\\uD800"', "half a surrogate pair"),
    "half a pair in a name": (b'{"\\udfff":1}', "half a surrogate pair"),
    "a byte-order mark": (b"\xef\xbb\xbf{}", "a byte-order mark"),
    "not UTF-8": (b'"a\xed\xa0\x80"', "not UTF-8 at byte 2"),
    "nothing": (b"", "not one JSON document: wrong at character 0"),
    "two": (b"{} {}", "not one JSON document: wrong at character 3"),
    "a space of no JSON": ("{}\u00a0".encode(), "not one JSON document: wrong at character 2"),
}


@pytest.mark.parametrize(("data", "problem"), AT_A_BOUND.values(), ids=AT_A_BOUND)
def test_a_rule_holds_up_to_its_bound(data: bytes, problem: str | None) -> None:
    assert strict_json.check(data) == problem


# -- what it costs: caps are judged before a value is built

HOSTILE = {
    "brackets that never close": b"[" * 1_000_000,
    "objects that never close": b'{"a":' * 200_000,
    "deep and closed": lists(500_000),
    "many names": names(90_000),
    "many empty lists": listed(b"[]", 300_000),
    "commas": b"," * 1_000_000,
    "a million digits": b"1" * 1_000_000,
    "many texts": listed(b'""', 300_000),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_cap_is_judged_before_a_value_is_built(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "_DECODER", SimpleNamespace(decode=pytest.fail))
    assert strict_json.check(data) in {TOO_DEEP, TOO_MANY, TOO_LONG}


MANY_BRACKETS = 2 * (JSON_MEMBERS_MAX + 1)


@pytest.mark.parametrize(
    ("data", "steps_max"),
    [
        (b"[" * 1_000_000, JSON_DEPTH_MAX + 1),
        (b'{"a":' * 200_000, JSON_DEPTH_MAX + 1),
        (lists(500_000), JSON_DEPTH_MAX + 1),
        (listed(b"[]", 300_000), MANY_BRACKETS),
        (b"[]" * 500_000, MANY_BRACKETS),
        (b"]" * 500_000 + b"[" * 500_000, MANY_BRACKETS),
        (names(90_000), 0),
        (b'"' * 1_000_000, 0),
    ],
)
def test_the_loop_over_brackets_ends_early(
    data: bytes, steps_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = count()
    goes_below = strict_json._goes_below

    def counted(brackets: Iterable[int], depth_max: int) -> bool:
        def each() -> Iterator[int]:
            for bracket in brackets:
                next(looked_at)
                yield bracket

        return goes_below(each(), depth_max)

    monkeypatch.setattr(strict_json, "_goes_below", counted)
    assert strict_json.check(data) is not None
    assert next(looked_at) <= steps_max


# -- what it tells

CANARY = "canary-7f3a"


@pytest.mark.parametrize(
    "data",
    [
        b'{"canary-7f3a":1,"canary-7f3a":2}',
        b'{"canary-7f3a":NaN}',
        b'{"canary-7f3a":1e999}',
        b'{"canary-7f3a":' + DIGITS + b"1}",
        b'{"canary-7f3a":"\\ud800"}',
        b'{"canary-7f3a":"\xff"}',
        b'{"canary-7f3a":canary-7f3a}',
        b'{"canary-7f3a"',
        b'{"canary-7f3a":' + lists(99) + b"}",
    ],
)
def test_a_problem_repeats_nothing_of_the_input(data: bytes) -> None:
    with pytest.raises(RejectedError) as caught:
        strict_json.parse(data)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None, "the decoder's error holds the whole input"


# -- equal for read and write: bodies of events

READ_ALIKE = {
    "a member twice": b'{"title":"a","title":"b"}',
    "a member of no schema twice": b'{"x":{"y":1,"y":2}}',
    "a long number in a member of no schema": b'{"x":1' + DIGITS + b"}",
    "an infinite one": b'{"x":1e999}',
    "too many elements": b'{"x":' + listed(b"0", JSON_MEMBERS_MAX) + b"}",
    "too many elements, spread out": b'{"x":' + listed(b"10000", JSON_MEMBERS_MAX) + b"}",
    "too deep": b'{"x":' + lists(JSON_DEPTH_MAX) + b"}",
    "too deep and too many": b'{"x":' + lists(200_000) + b"}",
}


@pytest.mark.parametrize("data", READ_ALIKE.values(), ids=READ_ALIKE)
def test_a_body_that_breaks_a_cap_is_void_for_every_reader(data: bytes) -> None:
    assert strict_json.check(data) is not None
    assert isinstance(decode_body("thread.created", 1, data), Invalid)
    assert isinstance(decode_body("note.added", 1, data), Invalid)


def test_a_body_at_the_caps_is_none() -> None:
    elements = JSON_MEMBERS_MAX - 2
    data = b'{"title":"a","x":' + listed(b"10000", elements) + b"}"
    assert isinstance(decode_body("thread.created", 1, data), Body)
    assert isinstance(decode_body("note.added", 1, data), Opaque)


def test_a_body_of_too_many_members_is_void_even_as_our_own_writer_spells_it() -> None:
    parts = (TextPart(text="a"),) * (JSON_MEMBERS_MAX // 3)
    data = encode_body(MessageReceived(base_seq=0, delivery="reject", content=parts))
    assert strict_json.check(data) == TOO_MANY
    assert isinstance(decode_body("message.received", 1, data), Invalid)
    fewer = encode_body(MessageReceived(base_seq=0, delivery="reject", content=parts[1:]))
    assert isinstance(decode_body("message.received", 1, fewer), Body)


def test_a_line_holds_a_body_at_the_caps_and_not_much_beside() -> None:
    line = to_cloud_event(make_event(ThreadCreated(title="a")), 3)
    beside = b'"x":%s,"specversion"'
    body = b'{"title":"a","x":' + listed(b"0", JSON_MEMBERS_MAX - 2) + b"}"
    full = line.replace(b'{"title":"a"}', body)
    assert from_cloud_event(full)[0].data == body
    with pytest.raises(RecordError, match="too many members"):
        from_cloud_event(full.replace(b'"specversion"', beside % listed(b"0", 64)))
    with pytest.raises(RecordError, match="too many members"):
        from_cloud_event(line.replace(b'"specversion"', beside % listed(b"0", 20_000)))


# -- the corpus

CASES = json_cases()
HTTP_IDS = {
    "json": [*range(1, 19), 28, 69],
    "ids": range(24, 30),
    "credentials": range(31, 40),
}
"""C19 to C23 are about heads and framing, C30 needs two tenants: they are tested beside."""


@pytest.mark.parametrize("case", CASES, ids=[f"{case.id} {case.name}" for case in CASES])
def test_the_parser_refuses_its_part_of_the_corpus(case: JsonCase) -> None:
    """C1 to C18, C28, C69."""
    problem = strict_json.check(case.body)
    if case.by == "parser":
        assert problem is not None
        assert case.status == {400}
    elif case.by != "server":
        assert problem is None, "what the schema is to refuse reaches it"
    assert (case.by == "nobody") == (case.status == {202})


def test_every_id_has_its_file_and_every_case_its_name() -> None:
    found: dict[str, Sequence[JsonCase | TargetCase | CredentialCase]] = {
        "json": CASES,
        "ids": target_cases(),
        "credentials": credential_cases(),
    }
    for folder, cases in found.items():
        assert {case.id for case in cases} == {f"C{n:02d}" for n in HTTP_IDS[folder]}
        named = [(case.id, case.name) for case in cases]
        assert len(named) == len(set(named))


def test_a_target_is_filled_with_the_id_that_exists() -> None:
    thread = "0a1b2c3d-0000-4000-8000-00000000000f"
    by_name = {case.name: case.target(thread) for case in target_cases()}
    assert by_name["in upper case"].endswith("0A1B2C3D-0000-4000-8000-00000000000F")
    assert by_name["without hyphens"].endswith("/0a1b2c3d00004000800000000000000f")
    assert not [target for target in by_name.values() if "<" in target]
    assert all(target.isascii() and " " not in target for target in by_name.values())


def test_a_credential_is_filled_with_the_key_that_is_good() -> None:
    cases = credential_cases()
    assert all(case.status == {401} for case in cases)
    filled = [str((case.headers("k-1"), case.query("k-1"))) for case in cases if case.id == "C39"]
    assert all("k-1" in text and "<" not in text for text in filled)
    none = next(case for case in cases if case.name == "none")
    assert none.headers("")[0][1].endswith("."), "not signed"
