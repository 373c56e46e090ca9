"""The head of a request, judged byte by byte before any parser sees it. Pure.

What passes is one request line and its fields as RFC 9112 spells them, within the bounds, and its
body has one length only. A proxy in front and the parser behind cannot read it in two ways. What
is wrong already is refused at once; nobody waits for the rest of it.
"""

import re
from collections.abc import Iterable

from threadlog.limits import (
    HEADER_BYTES_MAX,
    HEADER_FIELDS_MAX,
    METHOD_CHARS_MAX,
    TARGET_BYTES_MAX,
)

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]"
_LINE = re.compile(
    rb"(?P<method>%s{1,%d}) (?P<target>[!-~]+) HTTP/1\.(?P<minor>[01])" % (_TOKEN, METHOD_CHARS_MAX)
)
_FIELD = re.compile(rb"(?P<name>%s+):[ \t]*(?P<value>[\t -~\x80-\xff]*)" % _TOKEN)
_NOT_IN_A_LINE = re.compile(rb"[^ -~]")
_BARE_BREAK = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_LENGTH = re.compile(rb"0|[1-9][0-9]{0,18}")
"""One spelling: whoever counts digits and whoever reads them see the same number."""
_END = b"\r\n\r\n"
_FRAME_BYTES_MAX = len(b"  HTTP/1.1")
"""What a request line has besides method and target."""


class HeadRefused(Exception):
    """This head is not taken. `status`: the one to answer with. It never leaves the gateway."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class HeadReader:
    """Gathers bytes until they are one whole head."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._line_bytes: int | None = None
        """Length of the request line, once it is whole."""
        self._searched_bytes = 0

    def __len__(self) -> int:
        """Bytes that no head was made of yet."""
        return len(self._bytes)

    def feed(self, data: bytes) -> None:
        """These bytes came next."""
        self._bytes += data

    def take(self) -> tuple[bytes, bytes] | None:
        """The head and what came behind it, both gone from here; None: it is not whole yet.

        Raises:  HeadRefused: it breaks a rule, whatever comes next.
        """
        if self._line_bytes is None:
            self._line_bytes = _judge_line(self._bytes)
        # A break that was found whole ends before `_searched_bytes`, but for its last three bytes.
        start = max(0, self._searched_bytes - len(_END))
        end = self._bytes.find(_END, start)
        upto = len(self._bytes) if end < 0 else end + len(_END)
        if _BARE_BREAK.search(self._bytes, start, upto):
            raise HeadRefused(400, "a line of the head ends with CR LF")
        self._searched_bytes = upto
        if self._line_bytes is None:
            return None
        if upto - self._line_bytes > HEADER_BYTES_MAX + len(_END):
            raise HeadRefused(431, f"the header fields have at most {HEADER_BYTES_MAX} bytes")
        if end < 0:
            return None
        head, rest = bytes(self._bytes[:upto]), bytes(self._bytes[upto:])
        line, *fields = head[: -len(_END)].split(b"\r\n")
        _judge_fields(fields, is_http_10=line.endswith(b"0"))
        self._bytes, self._line_bytes, self._searched_bytes = bytearray(), None, 0
        return head, rest


def _judge_line(head: bytes | bytearray) -> int | None:
    """The length of the request line, if it is whole."""
    end = head.find(b"\r")
    line = bytes(head if end < 0 else head[:end])
    if _NOT_IN_A_LINE.search(line):
        raise HeadRefused(400, "the request line is not one of HTTP/1.1")
    method, _, rest = line.partition(b" ")
    target = rest.partition(b" ")[0]
    if len(target) > TARGET_BYTES_MAX:
        raise HeadRefused(414, f"a request target has at most {TARGET_BYTES_MAX} bytes")
    is_whole = end >= 0
    too_long = (
        len(method) > METHOD_CHARS_MAX or len(line) - len(method) - len(target) > _FRAME_BYTES_MAX
    )
    if too_long or (is_whole and not _LINE.fullmatch(line)):
        raise HeadRefused(400, "the request line is not one of HTTP/1.1")
    return end if is_whole else None


def _judge_fields(fields: list[bytes], *, is_http_10: bool) -> None:
    if len(fields) > HEADER_FIELDS_MAX:
        raise HeadRefused(431, f"a request has at most {HEADER_FIELDS_MAX} header fields")
    lengths: list[bytes] = []
    codings: list[bytes] = []
    hosts = 0
    for field in fields:
        found = _FIELD.fullmatch(field)
        if found is None:
            raise HeadRefused(400, "a header field is not one of HTTP/1.1")
        match found["name"].lower():
            case b"content-length":
                lengths.append(found["value"].rstrip(b" \t"))
            case b"transfer-encoding":
                codings.append(found["value"].rstrip(b" \t").lower())
            case b"host":
                hosts += 1
            case _:
                pass
    _judge_framing(lengths, codings, is_http_10=is_http_10)
    if hosts > 1 or (not hosts and not is_http_10):
        raise HeadRefused(400, "a request names one Host")


def _judge_framing(lengths: list[bytes], codings: list[bytes], *, is_http_10: bool) -> None:
    if lengths and codings:
        raise HeadRefused(400, "Content-Length and Transfer-Encoding exclude each other")
    if len(lengths) > 1 or not _all_match(lengths):
        raise HeadRefused(400, "Content-Length is one number")
    if codings and (is_http_10 or codings != [b"chunked"]):
        raise HeadRefused(400, "Transfer-Encoding is chunked, in HTTP/1.1")


def _all_match(lengths: Iterable[bytes]) -> bool:
    return all(_LENGTH.fullmatch(length) for length in lengths)
