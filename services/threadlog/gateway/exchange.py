"""One request and its answer, between the wire and the application.

An answer is written piece by piece, and the next one waits until the last has left the process.
Once the client is gone, `receive` says `http.disconnect`; a stream's `send` raises, so that its
task ends, and a plain answer goes nowhere. Nothing that a client does is an error in our log.
"""

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Protocol

import h11
from starlette.types import ASGIApp, Message
from uvicorn._types import ASGIReceiveEvent, HTTPScope
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, FlowControl
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from threadlog.limits import WRITE_PIECE_BYTES

_log = logging.getLogger("threadlog.gateway")


class Wire(Protocol):
    """What an exchange needs of its connection."""

    conn: h11.Connection
    transport: asyncio.Transport
    flow: FlowControl

    @property
    def is_stopping(self) -> bool:
        """Whether this answer is the last one here."""
        ...

    def refuse(self, status: int, detail: str) -> None:
        """The client is told by a problem where it still can be, and the connection ends."""
        ...

    def on_response_complete(self) -> None:
        """The next request may come, or the connection ends."""
        ...

    def discard(self) -> None:
        """The connection ends, and nothing that was not sent of it will be."""
        ...


class Exchange(RequestResponseCycle):
    """What the application sees of one request."""

    def __init__(self, wire: Wire, scope: HTTPScope, date: bytes) -> None:
        super().__init__(
            scope=scope,
            conn=wire.conn,
            transport=wire.transport,
            flow=wire.flow,
            logger=_log,
            access_logger=_log,
            access_log=False,
            default_headers=[(b"date", date)],
            message_event=asyncio.Event(),
            on_response=wire.on_response_complete,
        )
        self._wire = wire
        self.chunks = 0
        """Chunks of the body so far."""
        self.is_left = False
        """The client sends nothing more; it may still read."""
        self._is_body_told = False

    @property
    def is_under_way(self) -> bool:
        """Whether somebody waits for the end of the answer."""
        return not (self.response_complete or self.disconnected)

    def lose(self) -> None:
        """The client is gone, and whatever waits for it is told."""
        self.disconnected = True
        self.message_event.set()
        self.flow.resume_writing()

    def leave(self) -> None:
        """The client will send nothing more."""
        self.is_left = True
        self.message_event.set()

    async def answer(self, app: ASGIApp) -> None:
        """`app` has answered, or the connection ends; `is_cut` in the state: as `app` wants it."""
        try:
            await app(self.scope, self.receive, self.send)  # type: ignore[arg-type]  # one shape
        except asyncio.CancelledError:
            self.lose()
            self.transport.abort()
            raise
        except Exception as error:  # noqa: BLE001  # the application's edge
            if self.disconnected or self.is_left:
                _log.debug("a request ended without its client", exc_info=error)
            else:
                _log.error("a request broke off", exc_info=error)
            self._break_off()
        else:
            if self.is_under_way:
                if self.scope["state"].get("is_cut"):
                    self._wire.discard()
                    return
                # A stream ends when its client says that it sends nothing more.
                if not self.is_left:
                    _log.error("a request was left without an answer")
                self._break_off()

    async def receive(self) -> ASGIReceiveEvent:
        """The body, then nothing until the answer is complete or the client is gone."""
        if self._is_body_told:
            while self.is_under_way and not self.is_left:
                self.message_event.clear()
                await self.message_event.wait()
            return {"type": "http.disconnect"}
        event = await super().receive()
        self._is_body_told = event["type"] == "http.request" and not event["more_body"]
        return event

    async def send(self, message: Message) -> None:  # type: ignore[override]  # spelled as Starlette
        """What the answer is made of, in the order of ASGI.

        Raises:  ConnectionResetError: the client of a stream is gone.
        """
        match message["type"], self.response_started:
            case "http.response.start", False:
                await self._start(message["status"], list(message.get("headers", ())))
            case "http.response.body", True if not self.response_complete or self.disconnected:
                await self._body(message.get("body", b""), message.get("more_body", False))
            case kind, _:
                raise RuntimeError(f"{kind} is not what comes next in an answer")

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        if (self.more_body or self._wire.is_stopping) and CLOSE_HEADER not in headers:
            # Of a body that is not wanted nobody looks for the end, where the next request begins.
            headers.append(CLOSE_HEADER)
        headers = [*self.default_headers, *headers]
        reason = HTTPStatus(status).phrase.encode()
        await self._write(h11.Response(status_code=status, headers=headers, reason=reason))

    async def _body(self, body: bytes, more_body: bool) -> None:
        for piece in _pieces(b"" if self.scope["method"] == "HEAD" else body):
            if not await self._write(h11.Data(data=piece)):
                break
        if more_body:
            if self.disconnected:
                raise ConnectionResetError("the client is gone")
        elif await self._write(h11.EndOfMessage()):
            self.response_complete = True
            self.message_event.set()
            self.on_response()

    async def _write(self, event: h11.Event) -> bool:
        """False: the client is gone. Effects: waits until the last piece has left the process."""
        if not self.disconnected:
            # Where the system takes everything, others still have their turn between two pieces.
            await asyncio.sleep(0)
            await self.flow.drain()
        if self.disconnected or self.transport.is_closing():
            # A write that failed closes the transport, and says so only when the loop has its turn.
            self.lose()
            return False
        data = self.conn.send(event)
        if data:
            self.transport.write(data)
        return True

    def _break_off(self) -> None:
        if self.response_complete:
            return
        if self.response_started or self.disconnected:
            self.lose()
            self.transport.abort()
        else:
            self._wire.refuse(500, "an error of ours: see the log of the gateway")


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), WRITE_PIECE_BYTES):
        yield body[start : start + WRITE_PIECE_BYTES]
