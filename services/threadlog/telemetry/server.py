"""Metrics and health over HTTP, on a port and on threads of their own.

`/metrics`, as OpenMetrics with exemplars for who accepts that; `/healthz`: 200 while the process
lives and says that it is alive, else 503; `/readyz`: the same for being ready. The event loop may
be blocked or broken and this still answers. A request has a thread and a deadline to itself, so a
client that is silent or slow holds up nobody.

It does not encrypt and asks for no credential: nothing of a tenant is in it.
"""

import contextlib
import errno
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from threadlog.errors import RefusedError
from threadlog.limits import METRICS_REQUEST_MS, METRICS_REQUESTS_MAX
from threadlog.telemetry.metrics import Metrics

Check = Callable[[], bool | str]
"""True: it is so. A text: it is not, for this reason; False: for no reason that is known."""

_TEXT = "text/plain; charset=utf-8"
_Page = Callable[[str], tuple[int, str, bytes]]
"""What is answered to who accepts this."""
_POLL_S = 0.1


class MetricsServer:
    """Serves from construction until `close`; a daemon thread, so it never keeps a process alive.

    Shapes:  `port` 0: a free one, see `address`. `is_alive` and `is_ready` are called on threads
             of requests, often, and must not wait.
    Raises:  RefusedError: the address cannot be served.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        port: int,
        host: str = "127.0.0.1",
        is_alive: Check = lambda: True,
        is_ready: Check = lambda: True,
        request_ms: int = METRICS_REQUEST_MS,
    ) -> None:
        pages: dict[str, _Page] = {
            "/metrics": lambda accept: (HTTPStatus.OK, *metrics.page(accept)),
            "/healthz": lambda _: _checked(is_alive),
            "/readyz": lambda _: _checked(is_ready),
        }
        try:
            self._server = _Server(host, port, pages, request_ms / 1_000)
        except OSError as error:
            raise _refused(error, host, port) from error
        bound: tuple[str, int] = self._server.socket.getsockname()[:2]
        self._address = bound
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are served."""
        return self._address

    def close(self) -> None:
        """Nothing is served any more; requests that run may end. Closing again is harmless."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Server(ThreadingTCPServer):
    """Not `HTTPServer`, which asks a name server for its own name before it serves."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = METRICS_REQUESTS_MAX

    def __init__(
        self,
        host: str,
        port: int,
        pages: dict[str, _Page],
        request_s: float,
    ) -> None:
        self.pages = pages
        self._request_s = request_s
        self._room = threading.BoundedSemaphore(METRICS_REQUESTS_MAX)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """On a thread of its own, if there is room for one more."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Ends by its deadline, however the client drips: a timeout of the socket would begin anew
        with each byte.
        """
        deadline = threading.Timer(self._request_s, _cut, [request])
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self.shutdown_request(request)  # again, for when no thread was left for the deadline
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or a check that failed: no answer is the answer."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request and closes."""

    server: _Server
    server_version, sys_version = "threadlog", ""

    def do_GET(self) -> None:
        """One of the pages, or 404."""
        page = self.server.pages.get(self.path.partition("?")[0])
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"not found\n")
        else:
            self._answer(*page(self.headers.get("Accept", "")))

    do_HEAD = do_GET

    def refuse(self) -> None:
        """Nothing here can be changed."""
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET or HEAD\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse

    def log_message(self, format: str, *args: Any) -> None:
        """A probe every few seconds is no news."""

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _checked(check: Check) -> tuple[int, str, bytes]:
    said = check()
    if said is True:
        return HTTPStatus.OK, _TEXT, b"ok\n"
    return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"{said or 'no'}\n".encode()


def _cut(request: socket.socket) -> None:
    # Only shut down: the thread that serves it closes it, and the number may be another's by then.
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _refused(error: OSError, host: str, port: int) -> RefusedError:
    said = error.strerror or type(error).__name__
    if error.errno == errno.EADDRINUSE:
        said = "it is taken; choose another, or --metrics-port 0 for a free one"
    return RefusedError(f"metrics cannot be served on port {port} of {host}: {said}")
