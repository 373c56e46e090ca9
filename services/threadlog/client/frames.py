"""Frames of a live stream out of its bytes. Pure.

Lines end with LF or CRLF, and nothing else ends one: U+2028 is legal inside JSON. A frame that the
stream ends in is none.
"""

from dataclasses import dataclass

from threadlog.errors import CorruptError
from threadlog.limits import CLIENT_FRAME_BYTES_MAX

_DIGITS_MAX = 15


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `name` empty: a durable event. `id` None: it has none.

    Units:   `retry_ms`: what the server asks a client to wait before it comes back.
    """

    name: str = ""
    data: str = ""
    id: str | None = None
    retry_ms: int | None = None


class FrameParser:
    """Makes frames of bytes, in whatever pieces they come."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._fields: list[tuple[str, str]] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with these bytes.

        Raises:  CorruptError: no UTF-8, or a frame without an end.
        """
        self._rest += data
        frames: list[Frame] = []
        begin = 0
        while (end := self._rest.find(b"\n", max(self._scanned, begin))) >= 0:
            line = bytes(self._rest[begin:end])
            begin = end + 1
            frame = self._line(line.removesuffix(b"\r"))
            if frame is not None:
                frames.append(frame)
        del self._rest[:begin]
        self._scanned = len(self._rest)
        if self._size + len(self._rest) > CLIENT_FRAME_BYTES_MAX:
            raise CorruptError("the stream sends a frame without an end")
        return frames

    def _line(self, line: bytes) -> Frame | None:
        """The frame that ends with this line; None: none does."""
        if not line:
            return self._frame()
        if line.startswith(b":"):
            return None
        self._size += len(line)
        if self._size > CLIENT_FRAME_BYTES_MAX:
            raise CorruptError("the stream sends a frame without an end")
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise CorruptError("the stream sends what is no text") from error
        self._fields.append((name, value.removeprefix(" ")))
        return None

    def _frame(self) -> Frame | None:
        fields, self._fields, self._size = self._fields, [], 0
        if not fields:
            return None
        lines = [value for name, value in fields if name == "data"]
        named = {name: value for name, value in fields if name in ("event", "id", "retry")}
        retry = named.get("retry", "")
        is_number = retry.isascii() and retry.isdecimal() and len(retry) <= _DIGITS_MAX
        return Frame(
            named.get("event", ""),
            "\n".join(lines),
            named.get("id"),
            int(retry) if is_number else None,
        )
