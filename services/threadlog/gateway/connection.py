"""One client's connection: what is wrong, too large or too slow ends it before an application runs.

Each wait has an end: for a head, for a body, for a client that does not read, for the next request.
What is refused is told as a problem and the connection closes. At most one piece of an answer lies
in the process. No client makes an error in the log, or keeps its place by doing nothing.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol

from threadlog.api.problems import PROBLEM_TYPE, problem_of_status, problem_text
from threadlog.clock import Clock
from threadlog.gateway.exchange import Exchange
from threadlog.gateway.peers import Peers
from threadlog.gateway.request_head import HeadReader, HeadRefused
from threadlog.limits import (
    BODY_CHUNKS_MAX,
    BODY_HELD_BYTES,
    CLOSE_READ_BYTES,
    HEADER_BYTES_MAX,
    SEND_BUFFER_BYTES,
    WIRE_EVENTS_MAX,
)


class GatewayConnection(H11Protocol):
    """The server's end of one connection."""

    cycle: Exchange | None  # type: ignore[assignment]  # the class declares what it starts without
    transport: asyncio.Transport

    def __init__(self, config: Config, peers: Peers, clock: Clock) -> None:
        super().__init__(config, peers, {})
        self._peers = peers
        self._bounds = peers.bounds
        self._clock = clock
        self._head = HeadReader()
        self._in_head = True
        self._is_discarding = False
        """Nothing that still comes in is looked at."""
        self._discarded_bytes = 0
        self._is_ended = False
        """The client sends nothing more."""
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._later: asyncio.Handle | None = None

    # Called by the transport

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override]  # a stream of bytes, always
    ) -> None:
        """The connection is taken, or told that there is no room."""
        super().connection_made(transport)
        # Zero: a pause is exactly the time in which something lies here unsent.
        transport.set_write_buffer_limits(high=0)
        own = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if own.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
            # Behind a network that swallows everything nobody says that the client is gone. One
            # that reads little at a time looks so, too: it has several times as long as a piece.
            gone_ms = int(self._bounds.gone_s * 1_000)
            with contextlib.suppress(OSError):
                own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, gone_ms)
        if self.is_stopping:
            self.cut()
        elif self._peers.enter(self):
            self._wait(self._bounds.head_s, self._on_head_late)
        elif self._peers.may_tell:
            self.refuse(503, "too many connections", retry_after_s=1)
        else:
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told; nothing of this connection is left."""
        super().connection_lost(exc)
        self._peers.leave(self)
        for timer in (self._reading, self._writing, self._later):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """What came in is a head, part of a body, or of no interest any more."""
        if self._is_discarding:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > CLOSE_READ_BYTES:
                self.cut()
        elif self._in_head:
            if not len(self._head) and self.cycle is not None:
                self._peers.wake(self)
                self._wait(self._bounds.head_s, self._on_head_late)
            self._head.feed(data)
            self._take_head()
        else:
            self.conn.receive_data(data)
            self.handle_events()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio looks at it
        """True: the client may still read its answer."""
        self._is_ended = True
        cycle = self.cycle
        if self._is_discarding:
            return False
        if self._in_head:
            if len(self._head):
                self.refuse(400, "the head of a request has no end")
            return bool(len(self._head))
        if cycle is None or not cycle.is_under_way or cycle.more_body:
            return False
        cycle.leave()
        return True

    def pause_writing(self) -> None:
        """Something lies unsent: it has so long to leave."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._bounds.write_s, self.cut)

    def resume_writing(self) -> None:
        """Everything is sent."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        super().resume_writing()

    # Called by the server

    @property
    def is_stopping(self) -> bool:
        """Whether no further request is taken."""
        return self._peers.stopping.is_set()

    def evict(self) -> None:
        """It closes; nothing was under way on it."""
        self._is_discarding = True
        self.transport.close()

    def begin_stop(self) -> None:
        """It closes as soon as the request under way is answered; at once where none is."""
        if not self._is_discarding and (self.cycle is None or not self.cycle.is_under_way):
            self.evict()

    def cut(self) -> None:
        """It is gone, and what waits for it is told so."""
        self._is_discarding = True
        if self.cycle is not None:
            self.cycle.lose()
        self.transport.abort()

    def discard(self) -> None:
        """It is gone at once: what the system still holds of it for the client, too."""
        own = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.cut()

    # What comes in

    def _take_head(self) -> None:
        try:
            taken = self._head.take()
        except HeadRefused as refused:
            self.refuse(refused.status, refused.detail)
            return
        if taken is None:
            return
        self._in_head = False
        self._wait(self._bounds.body_s, self._on_body_late)
        self.conn.receive_data(b"".join(taken))
        self.handle_events()

    def handle_events(self) -> None:
        """What is whole of the request went to the application, some of it perhaps a bit later."""
        self._later = None
        for _ in range(WIRE_EVENTS_MAX):
            if self._is_discarding:
                return
            try:
                event = self.conn.next_event()
            except h11.RemoteProtocolError as error:
                is_too_long = error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self.refuse(431 if is_too_long else 400, "the request is not one of HTTP/1.1")
                return
            if event is h11.PAUSED:
                self.flow.pause_reading()
            if event is h11.PAUSED or event is h11.NEED_DATA:
                return
            self._on_event(event)  # type: ignore[arg-type]  # the markers are gone
        if self._later is None:
            self.flow.pause_reading()
            self._later = self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.handle_events()

    def _on_event(self, event: h11.Event) -> None:
        if isinstance(event, h11.Request):
            self._begin(event)
            return
        cycle = self.cycle
        assert cycle is not None
        if isinstance(event, h11.Data):
            cycle.chunks += event.chunk_start
            if cycle.chunks > BODY_CHUNKS_MAX:
                self.refuse(400, f"a body has at most {BODY_CHUNKS_MAX} chunks")
                return
            cycle.body += event.data
            if len(cycle.body) > BODY_HELD_BYTES:
                self.flow.pause_reading()
        elif isinstance(event, h11.EndOfMessage):
            self._stop_waiting()
            cycle.more_body = False
        cycle.message_event.set()

    def _begin(self, request: h11.Request) -> None:
        raw_path, _, query = request.target.partition(b"?")
        cycle = Exchange(
            self,
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": request.http_version.decode("ascii"),
                "method": request.method.decode("ascii"),
                "scheme": "http",
                "path": unquote(raw_path.decode("ascii")),
                "raw_path": raw_path,
                "query_string": query,
                "root_path": "",
                "headers": [(name.lower(), value) for name, value in request.headers],
                "client": self.client,
                "server": self.server,
                "state": {},
            },
            self._date(),
        )
        self.cycle = cycle
        if self._is_ended:
            # It sent this request ahead, and nothing since.
            cycle.leave()
        self._peers.run(self.loop.create_task(cycle.answer(self.app)))

    # How it ends

    def on_response_complete(self) -> None:
        """The next request may come; where none may, the connection ends."""
        if self.transport.is_closing() or self._is_discarding:
            return
        if self.is_stopping or not (self.conn.our_state is self.conn.their_state is h11.DONE):
            self._finish()
            return
        behind = self.conn.trailing_data[0]
        if self._is_ended and not behind:
            self.transport.close()
            return
        self.conn = h11.Connection(h11.SERVER, HEADER_BYTES_MAX)
        self._in_head = True
        self.flow.resume_reading()
        if behind:
            self._wait(self._bounds.head_s, self._on_head_late)
            self._head.feed(behind)
            self._take_head()
        else:
            self._peers.rest(self)
            self._wait(self._bounds.keep_alive_s, self.evict)

    def refuse(self, status: int, detail: str, *, retry_after_s: int | None = None) -> None:
        """The client is told by a problem where it still can be, and the connection ends."""
        if self._is_discarding or self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and cycle.is_under_way:
            cycle.lose()
            if cycle.response_started:
                self.cut()
                return
        body = problem_text(problem_of_status(status, detail)).encode()
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"Date: {self._date().decode()}",
            f"Content-Type: {PROBLEM_TYPE}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        if retry_after_s is not None:
            head.append(f"Retry-After: {retry_after_s}")
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self._linger()

    def _finish(self) -> None:
        """Nothing more is said; what the client still sends would be answered by a reset."""
        assert self.cycle is not None
        if self.cycle.more_body or self.conn.trailing_data[0]:
            self._linger()
        else:
            self.evict()

    def _linger(self) -> None:
        self._is_discarding = True
        if self._is_ended:
            self.transport.close()
            return
        self._wait(self._bounds.close_s, self.transport.close)
        self.flow.resume_reading()
        if not self.transport.get_write_buffer_size():
            # Raises where a reset came meanwhile, which the transport has yet to hear of.
            with contextlib.suppress(OSError):
                self.transport.write_eof()

    def _on_head_late(self) -> None:
        if len(self._head):
            self.refuse(408, f"a head is sent within {self._bounds.head_s:g} s")
        else:
            self.evict()

    def _on_body_late(self) -> None:
        self.refuse(408, f"a body is sent within {self._bounds.body_s:g} s")

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        """`then` happens unless the next wait begins before."""
        self._stop_waiting()
        self._reading = self.loop.call_later(seconds, then)

    def _stop_waiting(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _date(self) -> bytes:
        return formatdate(self._clock.now_ms() / 1_000, usegmt=True).encode()
