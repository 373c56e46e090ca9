"""Spans on their way to a collector: OTLP over HTTP, in batches, on a thread of its own.

Nobody waits for it. What the queue has no room for is dropped; while the collector is away, so is
what could not be sent, and that is said once. Only this module knows OpenTelemetry.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from threadlog.events.trace import TraceParent
from threadlog.limits import (
    TRACE_BATCH_SPANS_MAX,
    TRACE_EVERY_MS,
    TRACE_QUEUE_SPANS_MAX,
    TRACE_SEND_MS,
)
from threadlog.version import VERSION

_log = logging.getLogger("threadlog.traces")
Kind = Literal["internal", "server", "client"]
Value = str | int | Sequence[str]
_KINDS = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_SCOPE = InstrumentationScope("threadlog", VERSION)


@dataclass(frozen=True, slots=True)
class Ended:
    """A span that is over. `parent` None: it begins its trace. `links`: spans of other traces.

    Units:   milliseconds since the epoch.
    """

    name: str
    at: TraceParent
    parent: TraceParent | None
    began_ms: int
    ended_ms: int
    attributes: Mapping[str, Value]
    kind: Kind = "internal"
    is_error: bool = False
    links: Sequence[TraceParent] = field(default=())


class Taking(Protocol):
    """Where spans go."""

    def add(self, span: Ended) -> None:
        """The span is taken, or dropped; nobody waits."""
        ...


class Spans:
    """Takes spans of one process until it is closed."""

    def __init__(self, endpoint: str, service: str, instance: str) -> None:
        """`endpoint`: of the collector, without the path; `service`: without the name before it."""
        # What the library says of every attempt would bury all else; `_Telling` says it once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        logging.getLogger("urllib3").setLevel(logging.WARNING)
        named = {
            "service.name": f"threadlog-{service}",
            "service.version": VERSION,
            "service.instance.id": instance,
        }
        self._resource = Resource.create(named)
        url = f"{endpoint.rstrip('/')}/v1/traces"
        self._exporter = _Telling(OTLPSpanExporter(url, timeout=TRACE_SEND_MS / 1_000))
        self._queue = BatchSpanProcessor(
            self._exporter,
            max_queue_size=TRACE_QUEUE_SPANS_MAX,
            max_export_batch_size=TRACE_BATCH_SPANS_MAX,
            schedule_delay_millis=TRACE_EVERY_MS,
        )

    def add(self, span: Ended) -> None:
        """The span will be sent, if there is room. Spans that are not sampled are nobody's."""
        if not span.at.is_sampled:
            return
        status = Status(StatusCode.ERROR) if span.is_error else Status(StatusCode.UNSET)
        ended = ReadableSpan(
            span.name,
            _context(span.at),
            None if span.parent is None else _context(span.parent),
            self._resource,
            span.attributes,
            links=[Link(_context(each)) for each in span.links],
            kind=_KINDS[span.kind],
            status=status,
            start_time=min(span.began_ms, span.ended_ms) * 1_000_000,
            end_time=span.ended_ms * 1_000_000,
            instrumentation_scope=_SCOPE,
        )
        self._queue.on_end(ended)

    def close(self) -> None:
        """What waited was sent, as far as that went within `limits.TRACE_SEND_MS`."""
        closing = threading.Thread(target=self._queue.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(TRACE_SEND_MS / 1_000)
        if closing.is_alive():
            self._exporter.shutdown()


class _Telling(SpanExporter):
    """Says once that spans are lost, and once that they are not any more."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._is_losing = False
        self._is_over = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As the other one."""
        result = self._inner.export(spans)
        is_losing = result is not SpanExportResult.SUCCESS
        if is_losing and not self._is_losing:
            _log.warning("spans are lost: the collector does not take them")
        elif self._is_losing and not is_losing:
            _log.warning("the collector takes spans again")
        self._is_losing = is_losing
        return result

    def shutdown(self) -> None:
        """As the other one, once."""
        if not self._is_over:
            self._is_over = True
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = TRACE_SEND_MS) -> bool:
        """As the other one."""
        return self._inner.force_flush(timeout_millis)


def _context(named: TraceParent) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if named.is_sampled else TraceFlags.DEFAULT)
    trace_id, span_id = int(named.trace_id, 16), int(named.span_id, 16)
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
