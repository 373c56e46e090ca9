"""A reader of event streams that knows nothing of Threadlog: the oracle of the live stream's tests.

Written against HTTP/1.1 and the WHATWG text alone. A connection can be cut anywhere, in the middle
of a frame too; what was not whole by then was never received. Each wait has a deadline.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

DEADLINE_S = 30.0
_READ_BYTES = 16_384
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of a close that is a reset."""

Ended = Literal["", "whole", "cut"]
"""It goes on | the server said that it is the end | the connection just ended."""


@dataclass(frozen=True, slots=True)
class SseFrame:
    """One frame. `event` empty: it has no name. `id` None: it has none."""

    event: str
    id: str | None
    data: bytes

    def json(self) -> Any:
        """Its data as JSON."""
        return json.loads(self.data)


@dataclass(slots=True)
class SseParser:
    """Bytes in, whole frames out. `last_id`: what a browser would come back with."""

    last_id: str | None = None
    retry_ms: int | None = None
    comments: int = 0
    _left: bytes = b""
    _event: str = ""
    _id: str | None = None
    _data: list[bytes] = field(default_factory=list)

    def feed(self, data: bytes) -> list[SseFrame]:
        """The frames that these bytes complete. Only LF ends a line here: more would be a bug."""
        *lines, self._left = (self._left + data).split(b"\n")
        frames = []
        for line in lines:
            assert b"\r" not in line, "a line that ends in another way"
            if line:
                self._line(line)
            elif (frame := self._whole()) is not None:
                frames.append(frame)
        return frames

    def _line(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"":
                assert colon
                self.comments += 1
            case b"data":
                self._data.append(value)
            case b"event":
                self._event = value.decode()
            case b"id":
                self._id = value.decode()
            case b"retry":
                self.retry_ms = int(value)
            case _:
                raise AssertionError(f"a field that nobody knows: {line[:80]!r}")

    def _whole(self) -> SseFrame | None:
        if self._id is not None:
            self.last_id = self._id
        frame = SseFrame(self._event, self._id, b"\n".join(self._data)) if self._data else None
        self._event, self._id, self._data = "", None, []
        return frame


@dataclass(slots=True)
class SseStream:
    """One connection. `status` and `headers` are the answer's; `body` is that of a refusal."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parser: SseParser = field(default_factory=SseParser)
    body: bytes = b""
    ended: Ended = ""
    taken_bytes: int = 0

    async def frames(
        self, deadline_s: float = DEADLINE_S, bytes_max: int | None = None
    ) -> AsyncIterator[SseFrame]:
        """Frames until the stream ends, or so many bytes of its body were read.

        Raises:  TimeoutError: nothing came for that long.
        """
        while not self.ended and (bytes_max is None or self.taken_bytes < bytes_max):
            data = await asyncio.wait_for(self._piece(bytes_max), deadline_s)
            for frame in self.parser.feed(data):
                yield frame

    async def all_frames(self, deadline_s: float = DEADLINE_S) -> list[SseFrame]:
        """Everything until the end."""
        return [frame async for frame in self.frames(deadline_s)]

    async def comment(self, deadline_s: float = DEADLINE_S) -> None:
        """A comment came, at most `deadline_s` after anything else did; that is not kept."""
        while not self.parser.comments:
            # On a busy machine `fresh` frames come, and put the next heartbeat off.
            self.parser.feed(await asyncio.wait_for(self._piece(None), deadline_s))
            assert not self.ended, "it ended without one"

    async def _piece(self, bytes_max: int | None) -> bytes:
        """Some bytes of the body; empty at its end."""
        try:
            return await self._chunk(bytes_max)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.ended = "cut"
            return b""

    _in_chunk: int = 0

    async def _chunk(self, bytes_max: int | None) -> bytes:
        if not self._in_chunk:
            line = await self.reader.readuntil(b"\r\n")
            self._in_chunk = int(line, 16)
            if not self._in_chunk:
                await self.reader.readexactly(2)
                self.ended = "whole"
                return b""
        wanted = min(self._in_chunk, _READ_BYTES)
        if bytes_max is not None:
            wanted = min(wanted, bytes_max - self.taken_bytes)
        data = await self.reader.read(wanted)
        if not data:
            raise asyncio.IncompleteReadError(b"", wanted)
        self.taken_bytes += len(data)
        self._in_chunk -= len(data)
        if not self._in_chunk:
            assert await self.reader.readexactly(2) == b"\r\n"
        return data

    def close(self, *, is_reset: bool = False) -> None:
        """No longer connected: in order, or by a reset."""
        if is_reset:
            found = self.writer.transport.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.writer.transport.abort()


def request(
    address: str, path: str, token: str, headers: list[tuple[str, str]] | None = None
) -> bytes:
    """The bytes of a GET."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {urlsplit(address).netloc}"]
    lines += [f"Authorization: Bearer {token}", "Accept: text/event-stream"]
    lines += [f"{name}: {value}" for name, value in headers or []]
    return "\r\n".join([*lines, "", ""]).encode()


async def connect(address: str, receive_bytes: int | None = None) -> socket.socket:
    """A connected socket; `receive_bytes`: what the system may hold of what was not read."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    client = socket.socket(family)
    if receive_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.setblocking(False)
    try:
        where = (parts.hostname, parts.port or 80)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(client, where), DEADLINE_S)
    except BaseException:
        client.close()
        raise
    return client


@asynccontextmanager
async def sse(
    address: str,
    path: str,
    token: str,
    *,
    params: Mapping[str, str | int] | None = None,
    headers: list[tuple[str, str]] | None = None,
    receive_bytes: int | None = None,
) -> AsyncIterator[SseStream]:
    """The answer to one request for a stream; of a refusal its whole body."""
    query = f"?{urlencode(params)}" if params else ""
    client = await connect(address, receive_bytes)
    # What is read ahead here would be read without being asked for.
    limit = _READ_BYTES if receive_bytes is None else 4_096
    reader, writer = await asyncio.open_connection(sock=client, limit=limit)
    stream: SseStream | None = None
    try:
        writer.write(request(address, f"{path}{query}", token, headers))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        named = dict(line.lower().split(": ", 1) for line in lines)
        stream = SseStream(int(first.split()[1]), named, reader, writer)
        if (length := named.get("content-length")) is not None:
            stream.body = await asyncio.wait_for(reader.readexactly(int(length)), DEADLINE_S)
        yield stream
    finally:
        writer.transport.abort()
