"""What a service counts. Whoever wires it decides where it is counted, or that it is not."""

from typing import Protocol


class Meter(Protocol):
    """The counters of one service; no call waits."""

    def judged(self, event_type: str, void: str | None, seconds: float) -> None:
        """A record was judged in so long; `void`: the reason, None for an accepted one."""
        ...

    def claim(self, result: str) -> None:
        """A claim came to this end: `used`, `lost`, `released`, `settled`."""
        ...

    def began(self, seconds: float) -> None:
        """The effect of a claim began, so long after the claim was sent."""
        ...

    def loaded(self, snapshot: str, seconds: float, records: int) -> None:
        """A thread was loaded, folding so many records; `snapshot` as `load.Loaded` has it."""
        ...

    def call(self, command: str, outcome: str, seconds: float | None) -> None:
        """A call that ran, or may have, came to its outcome; `seconds` None: nobody knows them."""
        ...

    def dead_letter(self, reason: str) -> None:
        """A record was set aside."""
        ...

    def in_view(self, occurred_at: str) -> None:
        """An event that was made then, RFC 3339, is in the views now."""
        ...


class NoMeter:
    """Implements `Meter`: nobody looks."""

    def judged(self, event_type: str, void: str | None, seconds: float) -> None:
        """Not counted."""

    def claim(self, result: str) -> None:
        """Not counted."""

    def began(self, seconds: float) -> None:
        """Not counted."""

    def loaded(self, snapshot: str, seconds: float, records: int) -> None:
        """Not counted."""

    def call(self, command: str, outcome: str, seconds: float | None) -> None:
        """Not counted."""

    def dead_letter(self, reason: str) -> None:
        """Not counted."""

    def in_view(self, occurred_at: str) -> None:
        """Not counted."""
