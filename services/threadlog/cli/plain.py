"""Untrusted text made safe to show. Pure.

Whatever a model, a tool or a file name says, a terminal that is shown `plain` text is not told to
do anything: no colour, no cursor movement, no link, no clipboard, no title. Well-formed escape
sequences are taken out; any other control character is spelt out, as is what turns the reading
direction around. The log keeps the exact bytes. Source: SURFACES 1 (9), RELIABILITY C61.
"""

import re
import unicodedata

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, …
    r"|\x1b[ -/]*[0-Z\\`-~]"  # everything short
)
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SPACE = re.compile(r"\s+")
_ELLIPSIS = "…"


def plain(text: str) -> str:
    """`text` without terminal escapes; line feeds and tabs stay, other line ends become one."""
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return visible(text)


def visible(text: str) -> str:
    """`text` with every control character spelt out; for pieces that may cut a sequence."""
    return _UNSAFE.sub(_spelt, text)


def one_line(text: str) -> str:
    """`plain` text in one line: runs of white space are one space."""
    return _SPACE.sub(" ", plain(text)).strip()


def json_plain(text: str) -> str:
    """JSON text with the same value that holds no control character, raw or of eight bits."""
    return _UNSAFE.sub(_escaped, text)


def cells(text: str) -> int:
    """How many columns of a terminal the line takes."""
    if text.isascii():
        return len(text)
    return sum(_width(char) for char in text)


def cut(text: str, columns: int | None) -> str:
    """The line, cut to `columns`; None: not at all."""
    if columns is None or cells(text) <= columns:
        return text
    taken = 0
    for at, char in enumerate(text):
        taken += _width(char)
        if taken > columns - 1:
            return text[:at] + _ELLIPSIS
    return text


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _spelt(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004  # one byte


def _escaped(match: re.Match[str]) -> str:
    # A raw carriage return stands between tokens: inside a string JSON itself spells it out.
    return " " if match[0] == "\r" else f"\\u{ord(match[0]):04x}"
