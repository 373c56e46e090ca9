"""What an actor keeps of a lane, what it plans, and what it needs of the world."""

import asyncio
from dataclasses import dataclass, field

from threadlog.clock import Clock
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, EventId, Position
from threadlog.limits import LANES_MAX
from threadlog.ports.log import Log
from threadlog.ports.members import Members
from threadlog.runtime.claims import ClaimTable, OwnClaim, ReleaseReason
from threadlog.runtime.ledger import Ledger
from threadlog.runtime.load import Loader
from threadlog.runtime.meter import Meter, NoMeter
from threadlog.runtime.shared_fold import SharedFold
from threadlog.runtime.tracer import NoTracer, Tracer


@dataclass(slots=True)
class Acting:
    """An actor's part of a lane.

    Shapes:  `sending`: an append is in flight. `is_woken`: it will act in a moment. `wait_for`: the
             last one's position, to be read back. `watched`: foreign claims that are being watched.
             `unacknowledged`: the record that caused the append in flight, and its ledger.
    """

    table: ClaimTable = field(default_factory=ClaimTable)
    sending: bool = False
    is_woken: bool = False
    wait_for: Position = NO_POSITION
    watched: set[EventId] = field(default_factory=set)
    unacknowledged: tuple[Ledger, Position] | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Plan:
    """What is appended next: events in order, and what they mean for own claims.

    Shapes:  `claims` begin with these events; `releases` and `outcomes` close theirs.
    Units:   `began_ms`: when it was begun, milliseconds since the epoch.
    """

    events: list[Event] = field(default_factory=list)
    claims: list[OwnClaim] = field(default_factory=list)
    releases: list[tuple[OwnClaim, ReleaseReason]] = field(default_factory=list)
    outcomes: list[OwnClaim] = field(default_factory=list)
    began_ms: int = 0


@dataclass(frozen=True, slots=True)
class ActorPorts:
    """What every actor needs of the world."""

    log: Log
    loader: Loader
    members: Members
    clock: Clock
    folding: SharedFold
    meter: Meter = field(default_factory=NoMeter)
    lanes_max: int = LANES_MAX
    tracer: Tracer = field(default_factory=NoTracer)
