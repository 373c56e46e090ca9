"""A gateway server over a small application, and a client that sends any bytes it likes."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

from threadlog.gateway.peers import ConnectionBounds
from threadlog.gateway.server import GatewayServer

DEADLINE_S = 20.0
FRAME = b"x" * 65_536


def get(path: str = "/hello", more: str = "") -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


def post(path: str, body: bytes, more: str = "") -> bytes:
    """A request with a body of a said length."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


@dataclass
class Small:
    """An application that can do what hurts. It answers 404 where it knows no route."""

    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    on_begun: Callable[[], None] = lambda: None
    """Called by `/reset` before the first frame of its stream."""
    entered: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """Paths of requests whose task has ended, with what ended it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        self.entered.append(path)
        how = "done"
        try:
            route = getattr(self, f"on_{path.strip('/')}", self.on_unknown)
            await route(scope, receive, send)
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self.left.append(f"{path} {how}")

    async def on_unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await body_of(receive)
        await respond(send, 404, b"none")

    async def on_hello(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, b"hello")

    async def on_body(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, str(len(await body_of(receive))).encode())

    async def on_refuse(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 413, b"too long")

    async def on_wait(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        await self.may_end.wait()
        await respond(send, 200, b"waited")

    async def on_late(self, _scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        await respond(send, 200, b"late")

    async def on_hold(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        await self.may_end.wait()

    async def on_reset(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await begin(send)
        self.on_begun()
        while True:
            await send({"type": "http.response.body", "body": FRAME, "more_body": True})

    async def on_stream(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await begin(send)
        while True:
            await send({"type": "http.response.body", "body": FRAME, "more_body": True})

    async def on_listen(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await begin(send)
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def on_big(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await respond(send, 200, FRAME * 128)

    async def on_bug(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError("a bug")

    async def on_silent(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        return


class LeftEarlyError(Exception):
    """The client went before its body was whole."""


async def body_of(receive: Receive) -> bytes:
    """The whole body."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftEarlyError
        body += bytes(message["body"])
        if not message["more_body"]:
            return body


async def begin(send: Send) -> None:
    """An answer without an end begins."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def respond(send: Send, status: int, body: bytes) -> None:
    """An answer in one piece."""
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass
class Served:
    """A server that runs."""

    server: GatewayServer
    app: Small
    port: int
    clients: list["Client"] = field(default_factory=list)

    async def connect(self) -> "Client":
        """A connection to it, which lasts no longer than the server."""
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20))
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        """Nobody is connected, and the server is stopped."""
        for client in self.clients:
            client.close()
        await self.server.stop()

    async def ask(self, data: bytes) -> "Answer":
        """What comes back for these bytes on a connection of their own, which is closed then."""
        client = await self.connect()
        try:
            await client.send(data)
            answer = await client.answer()
            assert await client.rest() == b""
            return answer
        finally:
            client.close()


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of a problem, which is complete."""
        assert self.headers["content-type"] == "application/problem+json"
        problem = json.loads(self.body)
        assert problem["status"] == self.status
        assert problem["type"] == f"urn:threadlog:problem:{problem['code']}"
        assert {"title", "detail", "retryable"} < set(problem)
        assert not {"limit", "oldest_seq", "head_seq"} & set(problem)
        code = problem["code"]
        assert isinstance(code, str)
        return code


@dataclass
class Client:
    """One connection, byte by byte; each wait has a deadline."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """The bytes have left."""
        self.writer.write(data)
        await asyncio.wait_for(self.writer.drain(), DEADLINE_S)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer, or of a 100."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), DEADLINE_S)
        line, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert "server" not in headers
        return int(line.split()[1]), headers

    async def answer(self, *, has_body: bool = True) -> Answer:
        """The next answer, whose length is said."""
        status, headers = await self.head()
        length = int(headers["content-length"]) if has_body else 0
        body = await asyncio.wait_for(self.reader.readexactly(length), DEADLINE_S)
        return Answer(status, headers, body)

    async def rest(self) -> bytes:
        """What comes until the server closes."""
        return await asyncio.wait_for(self.reader.read(), DEADLINE_S)

    async def gone(self) -> None:
        """The connection is over, by whatever means."""
        try:
            while await asyncio.wait_for(self.reader.read(65_536), DEADLINE_S):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        """No longer connected."""
        self.writer.transport.abort()


async def until(met: Callable[[], object]) -> None:
    """`met()` holds, within the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not met():
            await asyncio.sleep(0.01)


def loopback() -> socket.socket:
    """A listener on a free port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1_024)
    return listener


@asynccontextmanager
async def serving(
    bounds: ConnectionBounds | None = None, grace_s: float = 0.2
) -> AsyncIterator[Served]:
    """A server on loopback."""
    app, listener = Small(), loopback()
    server = GatewayServer(app, [listener], grace_s=grace_s, bounds=bounds)
    served = Served(server, app, listener.getsockname()[1])
    try:
        yield served
    finally:
        await served.stop()
