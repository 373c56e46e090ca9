"""What was billed: the fact of one attempt or call, and sums of facts. The views keep them."""

from dataclasses import dataclass
from typing import Literal

from threadlog.ids import EventId, Position, TenantId, ThreadId, TurnId

UsageGroup = Literal["tenant", "thread", "turn", "model", "day", "hour"]


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
    """What one attempt of a step, or one call of it, used; `event_id` is the event that told it.

    Shapes:  `tool_ms` None: a fact of the model; else of a call, whose other amounts are 0, and
             whose provider and model are the thread's at that time. `begins_step`: no fact of the
             same step came before. `appended_ms`: when the broker took the event, Unix time; 0: no
             broker has. The last two are for metering; views do not keep them.
    """

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
    tool_ms: int | None = None
    begins_step: bool = False
    appended_ms: int = 0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One line of a usage report: the group's values in the order asked for, and its sums.

    Units:   `tool_ms`: how long calls ran, one beside another or not.
    """

    group: tuple[str, ...]
    totals: UsageTotals
    tool_ms: int = 0
