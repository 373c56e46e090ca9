"""Whether a process is alive and ready, as its pages say it."""

from threadlog.clock import SystemClock
from threadlog.settings import Settings
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.server import MetricsServer

_STUCK_MS = 15_000
"""The event loop has not run for so long: the process is not well."""


class Health:
    """What the pages say; told on the loop, asked on threads of requests."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._beat_ms = clock.mono_ms()
        self._waits_for: str | None = "not in its group yet"

    def beat(self, waits_for: str | None) -> None:
        """The loop runs. `waits_for`: why it is not ready, None when it is."""
        self._beat_ms, self._waits_for = self._clock.mono_ms(), waits_for

    def is_alive(self) -> bool | str:
        """Whether the loop runs."""
        still_ms = self._clock.mono_ms() - self._beat_ms
        return True if still_ms < _STUCK_MS else f"nothing has moved for {still_ms // 1_000} s"

    def is_ready(self) -> bool | str:
        """Whether every partition that it has is served."""
        return True if self._waits_for is None else self._waits_for


def serve_pages(settings: Settings, port: int, metrics: Metrics, health: Health) -> MetricsServer:
    """Metrics, health and readiness, served until it is closed.

    Shapes:  `port`: of this service, unless the settings say otherwise.
    """
    return MetricsServer(
        metrics,
        port=port if settings.metrics.port is None else settings.metrics.port,
        host=settings.metrics.host,
        is_alive=health.is_alive,
        is_ready=health.is_ready,
    )
