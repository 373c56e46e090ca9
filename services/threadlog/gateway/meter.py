"""What the gateway counts. Whoever wires it decides where it is counted, or that it is not."""

from typing import Literal, Protocol

from threadlog.telemetry.table import ResumeOutcome, StreamEnd


class GatewayMeter(Protocol):
    """The counters of a gateway; no call waits."""

    def began(self) -> None:
        """A request is being answered."""
        ...

    def answered(
        self, route: str, method: str, status: int, seconds: float, trace_id: str | None = None
    ) -> None:
        """It was answered. `route`: the template of its path, never the path.

        `trace_id`: the trace that it belongs to, None for none.
        """
        ...

    def stream_began(self, resume: ResumeOutcome) -> None:
        """A stream is open."""
        ...

    def stream_gap(self) -> None:
        """A stream goes on behind an event that is missing."""
        ...

    def stream_ended(self, reason: StreamEnd) -> None:
        """It is closed."""
        ...

    def frame_dropped(self, kind: str) -> None:
        """A frame was left out for a reader that is too slow."""
        ...

    def stranger(self, where: Literal["header", "query", "body"]) -> None:
        """Something in a request claimed a tenant; it was ignored."""
        ...

    def rejected(self, limit: str) -> None:
        """A request met a limit of its tenant."""
        ...


class NoGatewayMeter:
    """Implements `GatewayMeter`: nobody looks."""

    def began(self) -> None:
        """Not counted."""

    def answered(
        self, route: str, method: str, status: int, seconds: float, trace_id: str | None = None
    ) -> None:
        """Not counted."""

    def stream_began(self, resume: ResumeOutcome) -> None:
        """Not counted."""

    def stream_gap(self) -> None:
        """Not counted."""

    def stream_ended(self, reason: StreamEnd) -> None:
        """Not counted."""

    def frame_dropped(self, kind: str) -> None:
        """Not counted."""

    def stranger(self, where: Literal["header", "query", "body"]) -> None:
        """Not counted."""

    def rejected(self, limit: str) -> None:
        """Not counted."""
