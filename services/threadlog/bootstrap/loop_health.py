"""Whether a process is alive and ready, as its pages say it."""

from threadlog.clock import SystemClock

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
