"""The metrics of a gateway; `telemetry.gateway` moves them."""

from typing import get_args

from threadlog.telemetry.registry import Children, Registry
from threadlog.telemetry.table import ResumeOutcome, StreamEnd


class HttpMetrics:
    """Requests and streams."""

    def __init__(self, registry: Registry) -> None:
        self.answered = Children(registry.counter("threadlog_http_requests_total"))
        self.seconds = Children(registry.histogram("threadlog_http_request_duration_seconds"))
        self.in_flight = registry.gauge("threadlog_http_requests_in_flight")
        self.streams = Children(registry.gauge("threadlog_stream_connections"))
        self.resumes = Children(registry.counter("threadlog_stream_resumes_total"))
        self.dropped = Children(registry.counter("threadlog_stream_dropped_frames_total"))
        self.closed = Children(registry.counter("threadlog_stream_closed_total"))
        self.rejected = Children(registry.counter("threadlog_quota_rejections_total"))

    def expect(self) -> None:
        """What may never happen is shown from the start."""
        self.streams[("http",)].set(0)
        for outcome in get_args(ResumeOutcome):
            self.resumes[(outcome,)].inc(0)
        for reason in get_args(StreamEnd):
            self.closed[(reason,)].inc(0)
        for limit in ("requests", "streams", "bytes"):
            self.rejected[(limit,)].inc(0)
        self.dropped[("delta",)].inc(0)
