"""The counters of one service of a process: what `runtime.meter.Meter` asks for, by its name."""

from collections.abc import Callable
from datetime import datetime
from typing import cast

from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.table import (
    ClaimResult,
    DeadLetterReason,
    Outcome,
    Service,
    SnapshotResult,
)


class ServiceMeter:
    """Implements `runtime.meter.Meter` on the metrics of the process."""

    def __init__(self, metrics: Metrics, service: Service, now_ms: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._service: Service = service
        metrics.expect(service)

    def judged(self, event_type: str, void: str | None, seconds: float) -> None:
        """A record was judged."""
        outcome: Outcome = "accepted" if void is None else "void"
        self._metrics.processed(self._service, event_type, outcome, seconds=seconds)

    def claim(self, result: str) -> None:
        """A claim came to this end."""
        self._metrics.claim(self._service, cast(ClaimResult, result))

    def began(self, seconds: float) -> None:
        """The effect of a claim began."""
        self._metrics.turns.hop("claim_to_call", seconds)

    def loaded(self, snapshot: str, seconds: float, records: int) -> None:
        """A thread was loaded."""
        # A snapshot that is newer than what was asked for was of no use either.
        found = "behind" if snapshot == "ahead" else snapshot
        self._metrics.snapshot_read(cast(SnapshotResult, found))
        if snapshot == "mismatch":
            self._metrics.mismatch()
        self._metrics.refolded(seconds, records)

    def call(self, command: str, outcome: str, seconds: float | None) -> None:
        """A call came to its outcome."""
        self._metrics.tools.call(command, outcome, seconds)

    def dead_letter(self, reason: str) -> None:
        """A record was set aside."""
        self._metrics.dead_letter(self._service, cast(DeadLetterReason, reason))
        if reason == "key":
            self._metrics.tenant_mismatch("record")

    def in_view(self, occurred_at: str) -> None:
        """An event that was made then is in the views now; two machines' clocks may differ."""
        try:
            made_s = datetime.fromisoformat(occurred_at).timestamp()
        except ValueError:
            return  # whatever a stranger wrote there
        self._metrics.reached_view(max(0.0, self._now_ms() / 1_000 - made_s))
