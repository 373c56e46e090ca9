"""What the planner counts beside what every service does."""

from typing import Literal, Protocol

from threadlog.events.content import ModelRef, Usage


class PlannerMeter(Protocol):
    """The counters of a planner; no call waits. Seconds are never below zero."""

    def attempt(self, model: ModelRef, outcome: str, seconds: float, usage: Usage | None) -> None:
        """A model request came to an end: `ok`, `interrupted` or the class of an error.

        Shapes:  `usage` None: the provider has counted nothing.
        """
        ...

    def first_chunk(self, model: ModelRef, seconds: float) -> None:
        """The first piece of a response came, so long after the request was sent."""
        ...

    def first_output(self, seconds: float) -> None:
        """A turn said its first word, so long after it was started."""
        ...

    def turn(self, outcome: str, seconds: float) -> None:
        """A turn of this planner's was finished, so long after it was started."""
        ...

    def hop(self, hop: Literal["accept_to_turn", "call_to_step"], seconds: float) -> None:
        """One hop of a turn took so long."""
        ...

    def not_started(self, outcome: str) -> None:
        """A call of this planner's came to its outcome without having started."""
        ...


class NoPlannerMeter:
    """Implements `PlannerMeter`: nobody looks."""

    def attempt(self, model: ModelRef, outcome: str, seconds: float, usage: Usage | None) -> None:
        """Not counted."""

    def first_chunk(self, model: ModelRef, seconds: float) -> None:
        """Not counted."""

    def first_output(self, seconds: float) -> None:
        """Not counted."""

    def turn(self, outcome: str, seconds: float) -> None:
        """Not counted."""

    def hop(self, hop: Literal["accept_to_turn", "call_to_step"], seconds: float) -> None:
        """Not counted."""

    def not_started(self, outcome: str) -> None:
        """Not counted."""
