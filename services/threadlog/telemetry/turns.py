"""The metrics of turns and of the way of one through the services."""

from typing import get_args

from threadlog.telemetry.labels import Hop, TurnOutcome
from threadlog.telemetry.registry import Children, Registry, known, observe

_OUTCOMES = frozenset(get_args(TurnOutcome))


class TurnMetrics:
    """How long turns and their hops take."""

    def __init__(self, registry: Registry) -> None:
        self._seconds = Children(registry.histogram("threadlog_turn_duration_seconds"))
        self._first = registry.histogram("threadlog_turn_first_output_seconds")
        self._open = registry.gauge("threadlog_turns_open")
        self._hops = Children(registry.histogram("threadlog_event_end_to_end_seconds"))

    def expect(self) -> None:
        """Every verdict is shown from the start."""
        for outcome in _OUTCOMES:
            self._seconds[(outcome,)]

    def finished(self, outcome: str, seconds: float, trace_id: str | None = None) -> None:
        """A turn came to this verdict, so long after it was started."""
        observe(self._seconds[(known(outcome, _OUTCOMES),)], seconds, trace_id)

    def first_output(self, seconds: float) -> None:
        """A turn said its first word."""
        self._first.observe(seconds)

    def hop(self, hop: Hop, seconds: float) -> None:
        """One hop of a turn took so long."""
        self._hops[(hop,)].observe(seconds)

    def open(self, turns: int) -> None:
        """So many turns are open."""
        self._open.set(turns)
