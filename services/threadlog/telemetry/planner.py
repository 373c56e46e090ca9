"""The counters of a planner: what `planner.meter.PlannerMeter` asks for, by its name."""

from typing import Literal

from threadlog.events.content import ModelRef, Usage
from threadlog.telemetry.metrics import Metrics


class TurnMeter:
    """Implements `planner.meter.PlannerMeter` on the metrics of the process."""

    def __init__(self, metrics: Metrics) -> None:
        self._turns, self._models, self._tools = metrics.turns, metrics.models, metrics.tools

    def attempt(self, model: ModelRef, outcome: str, seconds: float, usage: Usage | None) -> None:
        """A model request came to an end."""
        self._models.attempt(model, outcome, seconds)
        if usage is not None:
            self._models.tokens(model, usage)

    def first_chunk(self, model: ModelRef, seconds: float) -> None:
        """The first piece of a response came."""
        self._models.first_chunk(model, seconds)

    def first_output(self, seconds: float) -> None:
        """A turn said its first word."""
        self._turns.first_output(seconds)

    def turn(self, outcome: str, seconds: float) -> None:
        """A turn was finished."""
        self._turns.finished(outcome, seconds)

    def hop(self, hop: Literal["accept_to_turn", "call_to_step"], seconds: float) -> None:
        """One hop of a turn took so long."""
        self._turns.hop(hop, seconds)

    def not_started(self, outcome: str) -> None:
        """A call came to its outcome without having started."""
        self._tools.call("none", outcome, None)
