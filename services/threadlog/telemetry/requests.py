"""The span of one request of the gateway."""

from collections.abc import Callable

from threadlog.events.trace import TraceParent
from threadlog.events.writer import Trace
from threadlog.telemetry import scope
from threadlog.telemetry import semantics as names
from threadlog.telemetry.spans import Ended, Taking, Value

_BROKEN = 500
"""The lowest status that is an error of ours."""


class GatewayRequest:
    """Implements `runtime.tracer.RequestSpan`."""

    def __init__(
        self,
        spans: Taking,
        now_ms: Callable[[], int],
        at: TraceParent,
        parent: TraceParent | None,
        state: str | None,
    ) -> None:
        self._spans = spans
        self._now_ms = now_ms
        self._at = at
        self._parent = parent
        self._began_ms = now_ms()
        self._trace: Trace = (at.text(), state)

    @property
    def trace(self) -> Trace:
        """This span, and the state that the caller sent."""
        return self._trace

    def ended(self, route: str, method: str, status: int) -> None:
        """The span is told."""
        attributes: dict[str, Value] = {
            names.SERVICE: "gateway",
            names.HTTP_METHOD: method,
            names.HTTP_ROUTE: route,
            names.HTTP_STATUS: status,
        }
        marks = scope.marks()
        for mark, name in (("tenant", names.TENANT), ("thread", names.THREAD)):
            if mark in marks:
                attributes[name] = marks[mark]
        self._spans.add(
            Ended(
                f"{method} {route}",
                self._at,
                self._parent,
                self._began_ms,
                self._now_ms(),
                attributes,
                kind="server",
                is_error=status >= _BROKEN,
            )
        )
