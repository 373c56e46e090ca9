"""The one parser of foreign JSON: HTTP bodies and bodies of events, with the caps of `limits`.

What it takes means the same to every reader and can be written again: UTF-8 without a byte-order
mark, no half of a surrogate pair, finite numbers of at most `JSON_DIGITS_MAX` digits (integers are
exact), no member twice in one object, `JSON_DEPTH_MAX` levels, `JSON_MEMBERS_MAX` members and
elements in all, one document and nothing behind it.

The caps are judged before a value is built, by scans of linear time that run in C; the one loop
of Python, over brackets, ends at the first bracket that is too deep or one too many. What is
refused is described and never repeated: a problem holds no byte of the input.
"""

import json
import math
from collections.abc import Iterable

import orjson

from threadlog.errors import RejectedError
from threadlog.limits import JSON_DEPTH_MAX, JSON_DIGITS_MAX, JSON_MEMBERS_MAX

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_OPENING = frozenset(b"[{")
_IN_NUMBERS = b".eE+-"
"""What may stand between the digits of one number."""
_DIGITS = bytes(ord("0") if char in b"0123456789" else ord(" ") for char in range(256))
_TOO_MANY_DIGITS = b"0" * (JSON_DIGITS_MAX + 1)


def parse(data: bytes) -> object:
    """The value that `data` writes: dict, list, str, int, float, bool or None.

    Shapes:  the caller bounds the bytes: `limits.BODY_BYTES_MAX` of a request, while it is read,
             and `limits.EVENT_BYTES_MAX` of an event.
    Raises:  RejectedError: which rule is broken, where that is known; nothing of the input.
    """
    problem = _problem_before(data)
    if problem is None:
        try:
            value: object = _DECODER.decode(data.decode())
            if b"\\u" not in data or _is_text(data):
                return value
            problem = "half a surrogate pair"
        except json.JSONDecodeError as error:
            problem = f"not one JSON document: wrong at character {error.pos}"
    # Raised here, outside of the handler: the decoder's own error holds the whole input.
    raise RejectedError(problem)


def check(data: bytes) -> str | None:
    """Why `parse` refuses `data`, or None when it does not."""
    try:
        parse(data)
    except RejectedError as error:
        return str(error)
    return None


def is_too_deep(data: bytes, depth_max: int = JSON_DEPTH_MAX) -> bool:
    """Whether the JSON that `data` begins with has more levels than that. No JSON: either.

    Units:   a number or text has depth 0, `[]` and `{}` have depth 1.
    """
    if data.count(b"[") + data.count(b"{") <= depth_max:
        return False
    brackets = _outside_texts(data).translate(None, _NOT_BRACKETS)
    # What has more brackets than this has too many members, however deep it goes behind them.
    return _goes_below(brackets[: 2 * (JSON_MEMBERS_MAX + 1)], depth_max)


def has_too_many(data: bytes, members_max: int = JSON_MEMBERS_MAX) -> bool:
    """Whether the JSON that `data` begins with has more members and elements. No JSON: either."""
    # Each of them but the first of its object or list follows a comma.
    if _members_at_most(data) <= members_max:
        return False
    outside = _outside_texts(data).translate(None, _SPACE)
    empty = outside.count(b"[]") + outside.count(b"{}")
    return _members_at_most(outside) - empty > members_max


def _problem_before(data: bytes) -> str | None:
    """What is wrong that can be seen without building a value."""
    if data.startswith(_BYTE_ORDER_MARK):
        return "a byte-order mark"
    if (at := _not_utf8_at(data)) is not None:
        return f"not UTF-8 at byte {at}"
    if is_too_deep(data):
        return f"nested deeper than {JSON_DEPTH_MAX}"
    if has_too_many(data):
        return f"more than {JSON_MEMBERS_MAX} members"
    if _has_long_number(data) and _has_long_number(_outside_texts(data)):
        return f"a number of more than {JSON_DIGITS_MAX} digits"
    return None


def _not_utf8_at(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _outside_texts(data: bytes) -> bytes:
    r"""The JSON with each of its texts made `"`.

    Exact up to where `data` stops being JSON. Escapes go first, `\\` before `\"`: a run of
    backslashes is read from its beginning; what quotes are then left begin or end a text.
    """
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b'"'.join(data.split(b'"')[::2])


def _members_at_most(data: bytes) -> int:
    """No fewer than there are; outside of texts, what is too much is the empty brackets."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _goes_below(brackets: Iterable[int], depth_max: int) -> bool:
    """Whether more than `depth_max` are open somewhere; ends at the first that is one too many."""
    depth = 0
    for bracket in brackets:
        depth += 1 if bracket in _OPENING else -1
        if depth > depth_max:
            return True
    return False


def _has_long_number(data: bytes) -> bool:
    return _TOO_MANY_DIGITS in data.translate(_DIGITS, _IN_NUMBERS)


def _is_text(data: bytes) -> bool:
    """Whether all texts of this JSON can be written again: no half of a surrogate pair."""
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The members of one object. Names are compared as the texts they are, escapes read."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise RejectedError("duplicate member")
    return members


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise RejectedError("not a finite number")
    return number


def _refuse(_: str) -> object:
    raise RejectedError("not a finite number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse, strict=True
)
