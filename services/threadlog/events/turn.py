"""A turn: one drain of admitted input, from its start to exactly one verdict."""

from typing import ClassVar, Literal

from pydantic import Field

from threadlog.events.content import Count, Head, Ordinal
from threadlog.events.envelope import Body
from threadlog.ids import EventId

Verdict = Literal[
    "completed", "cancelled", "blocked", "budget", "max_tokens", "error", "interrupted"
]


class TurnStarted(Body):
    """Turn `number` opened and admitted its messages, in one event. Its id is the turn's id."""

    TYPE: ClassVar[str] = "turn.started"

    number: Ordinal
    admits: tuple[EventId, ...] = Field(min_length=1)


class TurnFinished(Body):
    """The turn closed. `decided_at`: the seq at which that was decided; an input since voids it.

    `cause` says why in one word or class: `context_overflow`, `steps`, an error class, an actor.
    """

    TYPE: ClassVar[str] = "turn.finished"

    verdict: Verdict
    cause: str | None = Field(default=None, max_length=200)
    decided_at: Head
    steps: Count
