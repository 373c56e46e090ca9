"""Server-sent events from bytes cut anywhere: the data of each event, as servers really send them.

Event names, ids and comments are skipped. A server that leaves out the blank line between events
is understood. Not bounded itself: `held_bytes` tells its reader what it keeps.
"""

from collections.abc import Iterator

import orjson


class EventData:
    """Splits one response into the data of its events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0

    @property
    def held_bytes(self) -> int:
        """How much is kept of an event that is not complete yet."""
        return len(self._rest) + self._data_bytes

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of every event that `chunk` completes."""
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest += chunk
            return
        lines = bytes(self._rest + chunk).splitlines(keepends=True)
        self._rest.clear()
        if not lines[-1].endswith((b"\n", b"\r")):
            self._rest += lines.pop()
        for line in lines:
            yield from self._line(line.rstrip(b"\r\n"))

    def finish(self) -> Iterator[bytes]:
        """The data of an event that the end of the response completes."""
        line = bytes(self._rest)
        self._rest.clear()
        yield from self._line(line)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[bytes]:
        if not line:
            yield from self._event()
        elif line.startswith(b"data:"):
            if self._data and _is_json(b"\n".join(self._data)):
                yield from self._event()
            value = line[5:].removeprefix(b" ")
            self._data.append(value)
            self._data_bytes += len(value)

    def _event(self) -> Iterator[bytes]:
        if self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            self._data_bytes = 0
            yield data


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True
