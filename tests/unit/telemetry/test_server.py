"""Metrics and health over HTTP: what is answered, and that no client can hold up another."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from threadlog.errors import RefusedError
from threadlog.limits import METRICS_REQUESTS_MAX
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.server import Check, MetricsServer


@contextlib.contextmanager
def serving(
    *, is_alive: Check = lambda: True, is_ready: Check = lambda: True, request_ms: int = 5_000
) -> Iterator[MetricsServer]:
    metrics = Metrics()
    metrics.claim("planner", "used")
    server = MetricsServer(
        metrics, port=0, is_alive=is_alive, is_ready=is_ready, request_ms=request_ms
    )
    with contextlib.closing(server):
        yield server


def ask(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type, body."""
    with contextlib.closing(http.client.HTTPConnection(*server.address, timeout=10)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


def test_metrics_are_text() -> None:
    with serving() as server:
        status, kind, body = ask(server, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'threadlog_claims_total{result="used",service="planner"} 1.0\n' in body


def test_health_is_what_the_process_says_now() -> None:
    alive: list[bool | str] = [True]
    with serving(is_alive=lambda: alive[0], is_ready=lambda: "no partitions yet") as server:
        assert ask(server, "/healthz")[::2] == (200, "ok\n")
        assert ask(server, "/readyz")[::2] == (503, "no partitions yet\n")
        alive[0] = "the consumer stopped"
        assert ask(server, "/healthz")[::2] == (503, "the consumer stopped\n")
        alive[0] = False
        assert ask(server, "/healthz")[::2] == (503, "no\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metrics/../healthz", "//", "/favicon.ico"])
def test_other_paths_are_not_there(path: str) -> None:
    with serving() as server:
        assert ask(server, path)[0] == 404


def test_a_query_is_not_part_of_the_path() -> None:
    with serving() as server:
        assert ask(server, "/healthz?verbose")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(method: str) -> None:
    with serving() as server:
        assert ask(server, "/metrics", method)[0] == 405
        assert ask(server, "/metrics", "BREW")[0] == 501


def test_head_is_get_without_a_body() -> None:
    with serving() as server:
        assert ask(server, "/metrics", "HEAD")[::2] == (200, "")
        assert ask(server, "/none", "HEAD")[::2] == (404, "")


def test_a_check_that_fails_is_no_answer_and_harms_nothing() -> None:
    def broken() -> bool:
        raise RuntimeError("broken")

    with serving(is_alive=broken) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server, "/healthz")
        assert ask(server, "/readyz")[0] == 200


def test_silent_clients_hold_up_nobody() -> None:
    with serving() as server, contextlib.ExitStack() as stack:
        for start in (b"", b"GET", b"GET /metrics HTTP/1.1\r\nHost"):
            silent = stack.enter_context(socket.create_connection(server.address))
            silent.sendall(start)
        assert ask(server, "/healthz")[0] == 200


def test_a_check_that_waits_holds_up_nobody() -> None:
    entered, release = threading.Event(), threading.Event()

    def waiting() -> bool:
        entered.set()
        return release.wait(10)

    with serving(is_ready=waiting) as server:
        asked = threading.Thread(target=ask, args=(server, "/readyz"))
        asked.start()
        assert entered.wait(10)
        assert ask(server, "/healthz")[0] == 200
        release.set()
        asked.join()


def test_a_request_has_a_deadline_however_it_drips() -> None:
    """A byte now and then would begin a timeout of the socket anew each time."""
    with serving(request_ms=300) as server, socket.create_connection(server.address) as slow:
        slow.settimeout(0.02)
        received: bytes | None = None
        for _ in range(500):
            try:
                slow.sendall(b"G")
                received = slow.recv(1)
                break
            except TimeoutError:
                continue
            except OSError:
                received = b""
                break
        assert received == b""
        assert ask(server, "/healthz")[0] == 200


def test_more_requests_than_there_is_room_for_are_closed_and_room_returns() -> None:
    with serving() as server:
        with contextlib.ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(server.address))
                for _ in range(METRICS_REQUESTS_MAX)
            ]
            with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
                ask(server, "/healthz")
            assert len(silent) == METRICS_REQUESTS_MAX
        # Their threads end when they see that the clients went away.
        for _ in range(1_000):
            with contextlib.suppress(http.client.RemoteDisconnected, ConnectionResetError):
                assert ask(server, "/healthz")[0] == 200
                return
        pytest.fail("no room came back")


def test_a_taken_port_is_refused_with_the_way_out() -> None:
    with serving() as server:
        host, port = server.address
        with pytest.raises(RefusedError, match=rf"port {port} .*--metrics-port 0"):
            MetricsServer(Metrics(), host=host, port=port)


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"192\.0\.2\.1: Cannot assign"):
        MetricsServer(Metrics(), host="192.0.2.1", port=0)


def test_closing_ends_it_for_good_and_frees_the_port() -> None:
    with serving() as server:
        server.close()
        with pytest.raises(ConnectionRefusedError):
            ask(server, "/healthz")
        again = MetricsServer(Metrics(), port=server.address[1])
        again.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "metrics"]
