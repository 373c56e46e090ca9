"""What was billed: the fact of one attempt, and sums of facts. The views keep them."""

from dataclasses import dataclass
from typing import Literal

from threadlog.ids import EventId, Position, TenantId, ThreadId, TurnId

UsageGroup = Literal["tenant", "thread", "turn", "model", "day"]


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Sums over steps. Units: steps, tokens, millionths of a US dollar; None: no price is known."""

    steps: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_micros: int | None = None


@dataclass(frozen=True, slots=True)
class UsageFact:
    """What one attempt of one step was billed; `event_id` is the event that reported it."""

    event_id: EventId
    position: Position
    tenant_id: TenantId
    thread_id: ThreadId
    turn_id: TurnId
    step: int
    attempt: int
    provider: str
    model: str
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost_micros: int | None
    occurred_at: str


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One line of a usage report: the group's values in the order asked for, and its sums."""

    group: tuple[str, ...]
    totals: UsageTotals
