"""Time, passed in: the wall clock for showing, the monotonic clock for measuring."""

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What the runtime knows of time. Units: integer milliseconds."""

    def now_ms(self) -> int:
        """Wall clock, since the epoch. Shown and used for due times, never to order events."""
        ...

    def mono_ms(self) -> int:
        """Monotonic clock that goes on while the machine sleeps, where the system has one."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall clock, since the epoch."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        """CLOCK_BOOTTIME where it exists (CLOCK_MONOTONIC stands still in suspend)."""
        return time.clock_gettime_ns(_BOOTTIME) // 1_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self._now_ms = now_ms
        self._mono_ms = 0

    def now_ms(self) -> int:
        """Wall clock, since the epoch."""
        return self._now_ms

    def mono_ms(self) -> int:
        """Monotonic clock."""
        return self._mono_ms

    def advance(self, ms: int) -> None:
        """Both clocks have moved by `ms`."""
        self._now_ms += ms
        self._mono_ms += ms


def rfc3339(now_ms: int) -> str:
    """`now_ms` as RFC 3339 UTC text with milliseconds: `2026-11-30T18:00:00.000Z`."""
    seconds, millis = divmod(now_ms, 1_000)
    return f"{_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    """The text up to the second: every event of a second shares it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
