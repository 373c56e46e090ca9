"""The counters of a gateway: what `gateway.meter.GatewayMeter` asks for, by its name.

A method that HTTP does not define, and a path that is no route, are counted as one each: what a
stranger sends makes no new label.
"""

from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.registry import observe
from threadlog.telemetry.table import MismatchPlace, ResumeOutcome, StreamEnd

_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})
_SURFACE = ("http",)


class HttpMeter:
    """Implements `gateway.meter.GatewayMeter` on the metrics of the process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._http = metrics.http
        metrics.expect("gateway")

    def began(self) -> None:
        """A request is being answered."""
        self._http.in_flight.inc()

    def answered(
        self, route: str, method: str, status: int, seconds: float, trace_id: str | None = None
    ) -> None:
        """It was answered."""
        method = method if method in _METHODS else "other"
        self._http.in_flight.dec()
        self._http.answered[route, method, str(status)].inc()
        observe(self._http.seconds[route, method], seconds, trace_id)

    def stream_began(self, resume: ResumeOutcome) -> None:
        """A stream is open."""
        self._http.streams[_SURFACE].inc()
        self._http.resumes[(resume,)].inc()

    def stream_gap(self) -> None:
        """Something is missing."""
        self._http.resumes[("gap",)].inc()

    def stream_ended(self, reason: StreamEnd) -> None:
        """It is closed."""
        self._http.streams[_SURFACE].dec()
        self._http.closed[(reason,)].inc()

    def frame_dropped(self, kind: str) -> None:
        """A frame was left out."""
        self._http.dropped[(kind,)].inc()

    def stranger(self, where: MismatchPlace) -> None:
        """Something in a request claimed a tenant."""
        self._metrics.tenant_mismatch(where)

    def rejected(self, limit: str) -> None:
        """A request met a limit."""
        self._http.rejected[(limit,)].inc()
