"""The lines of a text file: how they are shown with anchors, and how an edit changes them.

Bytes outside an edit stay as they are: byte order mark, line ends, a missing last newline.
Runs under any Python >= 3.8.
"""

from __future__ import annotations

import binascii

from threadlog.adapters.sandbox.helper_files import ProblemError

_BOM = b"\xef\xbb\xbf"


class Lines:
    """The lines of a UTF-8 file, and how they are stored: byte order mark, line ends, last end."""

    def __init__(self, data: bytes) -> None:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ProblemError("not_text", f"it is not UTF-8 (byte {error.start})") from None
        self.bom = _BOM if data.startswith(_BOM) else b""
        self.body = data[len(self.bom) :]
        ends = self.body.count(b"\n")
        self.end = b"\r\n" if ends and self.body.count(b"\r\n") == ends else b"\n"
        self.lines = self.body.split(b"\n")
        self.is_ended = not self.lines[-1]
        if self.is_ended:
            self.lines.pop()

    def adapted(self, text: bytes) -> bytes:
        """`text` with the file's line ends, unless it brings its own."""
        return text if b"\r" in text else text.replace(b"\n", self.end)

    def notes(self) -> str:
        found = [
            *(["CRLF"] if self.end == b"\r\n" else []),
            *(["byte order mark"] if self.bom else []),
            *(["no final newline"] if self.body and not self.is_ended else []),
        ]
        return f" ({', '.join(found)})" if found else ""

    def shown(self, first: int, last: int, bytes_max: int) -> tuple[list[str], int]:
        """The lines as `N:hash|text` while they fit (one at least), and the number of the last."""
        rows: list[str] = []
        at, left = first - 1, bytes_max
        for at in range(first, last + 1):
            line = self.lines[at - 1]
            line = line[:-1] if self.end == b"\r\n" and line.endswith(b"\r") else line
            row = b"%d:%04x|%s" % (at, binascii.crc32(line) & 0xFFFF, line)
            if len(row) >= left:
                if rows:
                    return rows, at - 1
                return [f"{row[:left].decode(errors='ignore')} [line cut, {len(line)} bytes]"], at
            rows.append(row.decode())
            left -= len(row) + 1
        return rows, at


def with_text(text: Lines, old: bytes, new: bytes) -> tuple[int, bytes]:
    """(line of the change, body) with the one `old` replaced by `new`."""
    if not old:
        raise ProblemError("no_match", "OLD is empty; to insert use FROM:TO with FROM = TO+1")
    at = text.body.find(old)
    if at < 0:
        raise ProblemError("no_match", "OLD does not occur in it")
    if text.body.find(old, at + 1) >= 0:
        raise ProblemError("not_unique", "OLD occurs more than once; add lines around it")
    line = text.body.count(b"\n", 0, at) + 1
    return line, text.body[:at] + new + text.body[at + len(old) :]


def with_lines(text: Lines, first: int, last: int, new: bytes) -> bytes:
    """The body with lines `first`..`last` replaced; a file without a last newline stays without."""
    count = len(text.lines)
    if last > count or first > count + 1:
        raise ProblemError("range", f"it has {count} lines")
    rows = [line + b"\n" for line in text.lines]
    if rows and not text.is_ended:
        rows[-1] = rows[-1][:-1]
    before, after = rows[: first - 1], rows[last:]
    if text.lines and not text.is_ended and not after:
        new = new[: -len(text.end)] if new.endswith(text.end) else new
        if before and last < first and new:
            before[-1] += text.end
    return b"".join([*before, new, *after])
