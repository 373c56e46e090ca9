"""What a process traces. Whoever wires it decides whether it is traced at all.

A span is told when it is over, from facts that are in the log: there is none to hold open, to lose
or to close. No call waits, and none fails.
"""

from collections.abc import Sequence
from typing import Protocol

from threadlog.events.envelope import Event
from threadlog.events.writer import NO_TRACE, Trace
from threadlog.ids import Seq, TurnId, WorkerId


class RequestSpan(Protocol):
    """A request of the gateway that is being answered."""

    @property
    def trace(self) -> Trace:
        """What the events that it makes say of their trace."""
        ...

    def ended(self, route: str, method: str, status: int) -> None:
        """It was answered. `route`: the template of its path, never the path."""
        ...


class Tracer(Protocol):
    """The traces of one process."""

    def trace_of(self, turn: TurnId | None) -> Trace:
        """What the events of this turn say of their trace."""
        ...

    def heard(self, service: str, worker: WorkerId, event: Event, seq: Seq | None) -> None:
        """A service read an event that was accepted; `worker`: its own events are such spans."""
        ...

    def planned(self, service: str, events: Sequence[Event], began_ms: int) -> None:
        """What a service decided is durable. Units: `began_ms` since the epoch."""
        ...

    def projected(self, events: Sequence[Event], began_ms: int) -> None:
        """Readers see these events."""
        ...

    def request(self, parents: Sequence[str], states: Sequence[str]) -> RequestSpan | None:
        """A request began, whose headers said this of a trace; None: it is not traced."""
        ...


class NoTracer:
    """Implements `Tracer`: nobody looks."""

    def trace_of(self, turn: TurnId | None) -> Trace:
        """None."""
        return NO_TRACE

    def heard(self, service: str, worker: WorkerId, event: Event, seq: Seq | None) -> None:
        """Not traced."""

    def planned(self, service: str, events: Sequence[Event], began_ms: int) -> None:
        """Not traced."""

    def projected(self, events: Sequence[Event], began_ms: int) -> None:
        """Not traced."""

    def request(self, parents: Sequence[str], states: Sequence[str]) -> RequestSpan | None:
        """Not traced."""
        return None
