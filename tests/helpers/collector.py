"""A collector of traces: takes OTLP over HTTP on loopback, and keeps what it was sent."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, slots=True)
class Received:
    """One span. `resource` and `attributes` by name; ids in hex, `parent` empty for a root."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    resource: dict[str, Any]
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    ms: int
    is_error: bool

    @property
    def service(self) -> str:
        """The process that sent it."""
        return str(self.resource["service.name"])


@dataclass(slots=True)
class Collector:
    """What was received: `raw` bodies, and the spans in them."""

    url: str
    raw: list[bytes] = field(default_factory=list)
    spans: list[Received] = field(default_factory=list)

    def named(self, name: str) -> list[Received]:
        """The spans of this name."""
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        """A request came."""
        self.raw.append(body)
        for of_process in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(of_process.resource.attributes)
            for scope in of_process.scope_spans:
                self.spans += [_span(span, resource) for span in scope.spans]


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector takes spans until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces"
            made.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()


def _span(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        resource,
        _values(span.attributes),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        (span.end_time_unix_nano - span.start_time_unix_nano) // 1_000_000,
        span.status.code == 2,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)
