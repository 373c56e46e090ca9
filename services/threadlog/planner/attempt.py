"""One model request, timed on the planner's monotonic clock and counted."""

from threadlog.clock import Clock
from threadlog.events.content import ModelRef, Usage
from threadlog.planner.meter import PlannerMeter


class Attempt:
    """Begins when it is made. One that was too late to be sent is never told to have ended."""

    def __init__(self, meter: PlannerMeter, clock: Clock, model: ModelRef) -> None:
        self._meter = meter
        self._clock = clock
        self._model = model
        self._began_ms = clock.mono_ms()

    def speaks(self) -> None:
        """The first piece came."""
        self._meter.first_chunk(self._model, self._seconds())

    def ended(self, outcome: str, usage: Usage | None = None) -> None:
        """It came to this end: `ok`, `interrupted`, or the class of an error."""
        self._meter.attempt(self._model, outcome, self._seconds(), usage)

    def _seconds(self) -> float:
        return (self._clock.mono_ms() - self._began_ms) / 1_000
