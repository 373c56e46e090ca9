"""A server that answers exactly the bytes a test says, so that it can misbehave in any way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

EVENTS = {"content-type": "text/event-stream"}


@dataclass(slots=True)
class Received:
    """One request as it came."""

    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Foreign:
    """The server's address, what it received, and whether the client has left since."""

    url: str
    received: list[Received] = field(default_factory=list)
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
Reaction = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def fixed(
    status: int, body: bytes, headers: dict[str, str] | None = None, *, missing_bytes: int = 0
) -> Answer:
    """A complete answer; with `missing_bytes` it announces more than it sends."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        length = {"content-length": str(len(body) + missing_bytes)}
        writer.write(head(status, length | (headers or {})) + body)
        if missing_bytes:
            writer.close()

    return answer


def begun(body: bytes, headers: dict[str, str] | None = None) -> Answer:
    """An answer that begins with `body` and never goes on."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head(200, {"content-length": "1000000"} | (headers or EVENTS)) + body)
        await writer.drain()

    return answer


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode()


def foreign_server(answer: Answer) -> contextlib.AbstractAsyncContextManager[Foreign]:
    """Answers every request with `answer`; connections are kept as long as the client likes."""
    return speaking_server(lambda _, writer: answer(writer))


@contextlib.asynccontextmanager
async def speaking_server(react: Reaction) -> AsyncIterator[Foreign]:
    """The same, where the answer depends on the request."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        foreign.connections += 1
        try:
            while True:
                request = await _received(reader)
                foreign.received.append(request)
                await react(request, writer)
                foreign.answering.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            foreign.left.set()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    foreign = Foreign(f"http://127.0.0.1:{port}/v1")
    try:
        yield foreign
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _received(reader: asyncio.StreamReader) -> Received:
    request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(request.split()[1], headers, body)
