"""A worker's own claims: from the append to the close, with every reason not to act on one.

Rules kept here: `ttl` (an effect starts only within `limits.CLAIM_TTL_MS` of sending its claim,
checked last thing before), `table` (only from this table; a released claim never starts),
`noreclaim` (never appended twice), `release` (one that will not be used is released).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from threadlog.events.envelope import Event
from threadlog.ids import EventId
from threadlog.limits import CLAIM_TTL_MS

ClaimStatus = Literal["pending", "running", "finished", "released"]
ReleaseReason = Literal["late", "revoked", "unacknowledged", "stopping", "shutdown"]


@dataclass(slots=True, eq=False)
class OwnClaim:
    """One claim of this worker.

    Shapes:  `job` is what the effect needs, prepared before the claim was sent; `result` is what
             came of it, None before. `status`: `pending` until its effect starts; `is_read_back`:
             it came back from the log, accepted. `has_begun`: the effect may have happened.
             `is_over`: it has happened, and its result is being stored. `stopping`: its task was
             told to stop. `is_reported`: the event that closes the claim was appended.
             `was_rejected`: the log would not take its result, which was replaced. `sending`: the
             append that it is in, and `led_by` what else is in there, until it is acknowledged.
    Units:   `sent_ms` on the monotonic clock.
    """

    event: Event
    job: Any
    sent_ms: int = 0
    status: ClaimStatus = "pending"
    result: Any = None
    is_read_back: bool = False
    has_begun: bool = False
    is_over: bool = False
    stopping: bool = False
    is_reported: bool = False
    was_rejected: bool = False
    task: asyncio.Task[None] | None = None
    sending: asyncio.Task[Any] | None = None
    led_by: Sequence[Event] = ()
    timer: asyncio.TimerHandle | None = None

    @property
    def claim_id(self) -> EventId:
        """The id of the claim event, its nonce."""
        return self.event.event_id

    @property
    def release_cause(self) -> EventId:
        """What its release follows from: the claim, or its cause while it may not have arrived."""
        cause = self.event.caused_by
        assert cause is not None
        return self.claim_id if self.is_read_back else cause

    def is_late(self, now_ms: int) -> bool:
        """Whether its time to start has passed. Units: `now_ms` on the monotonic clock."""
        return now_ms - self.sent_ms >= CLAIM_TTL_MS

    def drop_timer(self) -> None:
        """The timer that would release it does not fire any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True)
class ClaimTable:
    """The claims of one lane that are not closed yet, and releases that wait to be appended."""

    claims: dict[EventId, OwnClaim] = field(default_factory=dict)
    releases: list[tuple[OwnClaim, ReleaseReason]] = field(default_factory=list)

    def release(self, claim: OwnClaim, reason: ReleaseReason) -> None:
        """The claim will never start; its release is the next thing that the lane appends."""
        assert claim.status == "pending"
        claim.status = "released"
        claim.drop_timer()
        self.releases.append((claim, reason))

    def forget(self, claim: OwnClaim) -> None:
        """The claim is closed in the log, or was void."""
        claim.drop_timer()
        self.claims.pop(claim.claim_id, None)

    def finished(self) -> list[OwnClaim]:
        """Claims whose effect ended and whose outcome is not yet read back."""
        return [c for c in self.claims.values() if c.status == "finished"]

    @property
    def has_news(self) -> bool:
        """Something waits to be appended: an outcome or a release."""
        return bool(self.releases) or any(c.status == "finished" for c in self.claims.values())

    @property
    def is_empty(self) -> bool:
        """Nothing of this worker is open in the lane."""
        return not self.claims and not self.releases
