"""The part that planner and tool-runner share: decide, claim, read back, effect, outcome.

One set of appends is in flight per lane; the next is planned once the last was read back. Effects
run beside, as tasks; what came of one waits in the claim table until its outcome was read back.

In:  every event, for the fold
Out: what a subclass plans
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from threadlog.clock import Clock, rfc3339
from threadlog.errors import LogUnavailableError, TransientError
from threadlog.events.envelope import Event
from threadlog.events.writer import EventWriter
from threadlog.faults import reach
from threadlog.ids import NO_POSITION, EventId, Position, WorkerId
from threadlog.limits import CLAIM_TTL_MS
from threadlog.ports.log import Log, Record
from threadlog.ports.members import Members
from threadlog.runtime.claims import ClaimTable, OwnClaim, ReleaseReason
from threadlog.runtime.lanes import Lane
from threadlog.runtime.load import Loaded, Loader
from threadlog.runtime.patience import patiently
from threadlog.runtime.shared_fold import SharedFold
from threadlog.runtime.worker import Worker
from threadlog.thread.decide import open_claims
from threadlog.thread.fold import Judgement
from threadlog.thread.state import Call, Claim, ThreadState

_log = logging.getLogger("threadlog.actor")
_RETRY_S = 0.2
_LIVENESS_S = 1.0
_CLOSING_MS = 3_000
"""How long a drained worker waits to read back what it said of its last claims."""
_CLOSING_STEP_S = 0.01


@dataclass(slots=True)
class Acting:
    """An actor's part of a lane.

    Shapes:  `sending`: an append is in flight. `is_woken`: the lane acts in a moment. `wait_for`:
             where the last append ended, to be read back. `watched`: foreign claims being watched.
    """

    table: ClaimTable = field(default_factory=ClaimTable)
    sending: bool = False
    is_woken: bool = False
    wait_for: Position = NO_POSITION
    watched: set[EventId] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None


A = TypeVar("A", bound=Acting)


@dataclass(slots=True)
class Plan:
    """What is appended next: events in order, which are claims of ours, which releases."""

    events: list[Event] = field(default_factory=list)
    claims: list[OwnClaim] = field(default_factory=list)
    releases: list[tuple[OwnClaim, ReleaseReason]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ActorPorts:
    """What every actor needs of the world."""

    log: Log
    loader: Loader
    members: Members
    clock: Clock
    folding: SharedFold


class Actor(ABC, Generic[A]):
    """A service that acts on threads. Subclasses say what to plan and how an effect runs."""

    name: str

    def __init__(self, ports: ActorPorts, worker_id: WorkerId) -> None:
        self._ports = ports
        self.worker_id = worker_id
        self.writer = EventWriter(self.name, worker_id, lambda: rfc3339(ports.clock.now_ms()))
        self.worker: Worker[A] = Worker(ports.log, ports.loader, self, ports.folding)
        self.is_draining = False

    # -- what a subclass says

    @abstractmethod
    def new_lane(self) -> A:
        """The service's part of a new lane."""

    @abstractmethod
    def concerns(self, state: ThreadState) -> bool:
        """Whether the state wants a plan of this service: quick, and True when in doubt."""

    @abstractmethod
    def plan(self, lane: Lane[A]) -> Plan:
        """What to append now, claims included. Never awaits."""

    @abstractmethod
    async def run_effect(self, lane: Lane[A], claim: OwnClaim) -> Any:
        """The effect of the claim; what it returns becomes `claim.result`.

        Raises:  CancelledError is turned into a result by the subclass when `claim.stopping`.
        """

    @abstractmethod
    def must_stop(self, lane: Lane[A], claim: OwnClaim) -> bool:
        """Whether the state says that this claim's effect must stop, or must not start."""

    @abstractmethod
    def release_event(self, lane: Lane[A], claim: OwnClaim, reason: ReleaseReason) -> Event:
        """The event that gives the claim up."""

    @abstractmethod
    def settlement(self, lane: Lane[A], claim: Claim, call: Call | None) -> Event:
        """The event that settles a claim whose writer is gone."""

    @abstractmethod
    def owns(self, call: Call | None) -> bool:
        """Whether claims of this kind (a step's: None) are this service's to settle."""

    def learn(self, lane: Lane[A], event: Event) -> None:
        """An accepted event, for what the subclass keeps beside the state."""

    def on_claim_closed(self, lane: Lane[A], claim: OwnClaim) -> None:
        """The claim is closed in the log, or was void: what was held for it is free."""

    # -- Service

    def on_loaded(self, lane: Lane[A], loaded: Loaded) -> None:
        """A loaded lane acts once its backlog was judged."""

    def on_bad(self, record: Record) -> None:
        """The projection alone reports bad records."""

    def on_judged(
        self, lane: Lane[A], event: Event, position: Position, judgement: Judgement
    ) -> None:
        """Own claims come back here; everything accepted is learned."""
        if judgement.void is None:
            self.learn(lane, event)
        if event.worker == self.worker_id:
            claim = lane.own.table.claims.get(event.event_id)
            if claim is not None and claim.status == "pending":
                claim.drop_timer()
                if judgement.void is None:
                    claim.is_read_back = True
                else:
                    self._forget(lane, claim)

    def on_batch(self, position: Position, lanes: Sequence[Lane[A]]) -> None:
        """Every touched lane acts."""
        for lane in lanes:
            self.act(lane)

    def is_idle(self, lane: Lane[A]) -> bool:
        """No turn, no claim, nothing on its way."""
        own = lane.own
        return lane.state.turn is None and own.table.is_empty and not own.sending

    # -- acting

    def act(self, lane: Lane[A]) -> None:
        """Whatever the lane's state asks of this service is under way."""
        if lane.broken or lane.backlog is not None:
            return
        own = lane.own
        self._sweep(lane)
        if own.sending or lane.position < own.wait_for:
            return
        if not own.table.has_news and not self.concerns(lane.state):
            return
        if own.timer is not None:
            own.timer.cancel()
            own.timer = None
        plan = self.plan(lane)
        if plan.events:
            own.sending = True
            self.worker.spawn(lane, self._append(lane, plan))

    def wake(self, lane: Lane[A]) -> None:
        """The lane acts once this round of the loop is done: what ends together leaves together."""
        if not lane.own.is_woken:
            lane.own.is_woken = True
            asyncio.get_running_loop().call_soon(self._woken, lane)

    def _woken(self, lane: Lane[A]) -> None:
        lane.own.is_woken = False
        self.act(lane)

    def act_later(self, lane: Lane[A], delay_ms: int) -> None:
        """The lane acts again when `delay_ms` have passed, unless it does so earlier."""
        loop = asyncio.get_running_loop()
        lane.own.timer = loop.call_later(delay_ms / 1_000, self.act, lane)

    def stream_event(self, lane: Lane[A], body: Any, event_id: EventId, cause: EventId) -> Event:
        """An event of the lane's open turn."""
        turn = lane.state.turn
        return self.writer.make(
            lane.stream,
            body,
            event_id,
            caused_by=cause,
            turn_id=None if turn is None else turn.turn_id,
        )

    async def _append(self, lane: Lane[A], plan: Plan) -> None:
        own = lane.own
        loop = asyncio.get_running_loop()
        kind = "claim" if plan.claims else "outcome"
        for claim in plan.claims:
            claim.sent_ms = self._ports.clock.mono_ms()
            claim.timer = loop.call_later(CLAIM_TTL_MS / 1_000, self._expire, lane, claim)
            own.table.claims[claim.claim_id] = claim
        reach(f"{self.name}.{kind}.before_append")
        try:
            receipts = await self._ports.log.append(plan.events)
        except LogUnavailableError:
            own.sending = False
            raise
        except TransientError:
            for claim in plan.claims:
                if claim.status == "pending":
                    own.table.release(claim, "unacknowledged")
            own.sending = False
            self.act_later(lane, int(_RETRY_S * 1_000))
            return
        reach(f"{self.name}.{kind}.after_append")
        own.table.releases = [r for r in own.table.releases if r not in plan.releases]
        own.wait_for = receipts[-1].position
        own.sending = False
        if lane.position >= own.wait_for:
            self.wake(lane)

    def _expire(self, lane: Lane[A], claim: OwnClaim) -> None:
        """The claim was not read back in time."""
        if claim.status == "pending":
            lane.own.table.release(claim, "late")
            self.act(lane)

    def _start(self, lane: Lane[A], claim: OwnClaim) -> None:
        """Start the effect, or give the claim up. The time is checked again right before it."""
        table = lane.own.table
        if claim.is_late(self._ports.clock.mono_ms()):
            table.release(claim, "late")
        elif self.is_draining:
            table.release(claim, "shutdown")
        elif self.must_stop(lane, claim):
            table.release(claim, "stopping")
        else:
            claim.status = "running"
            claim.task = self.worker.spawn(lane, self._effect(lane, claim))

    async def _effect(self, lane: Lane[A], claim: OwnClaim) -> None:
        """The last check, then the effect, then its outcome."""
        reach(f"{self.name}.effect.before")
        if claim.is_late(self._ports.clock.mono_ms()):
            claim.status = "pending"
            lane.own.table.release(claim, "late")
        else:
            claim.result = await self.run_effect(lane, claim)
            claim.status = "finished"
            reach(f"{self.name}.effect.after")
        self.wake(lane)

    def _sweep(self, lane: Lane[A]) -> None:
        """Own claims against the state in hand: stop what must stop, forget what is closed."""
        own = lane.own
        claims = open_claims(lane.state)
        if not claims and not own.table.claims:
            return
        open_ids = {claim.event_id for claim, _ in claims}
        is_read = not own.sending and lane.position >= own.wait_for
        for claim in list(own.table.claims.values()):
            if claim.status == "pending" and claim.is_read_back:
                self._start(lane, claim)
            elif claim.status == "running":
                self._sweep_running(lane, claim, is_open=claim.claim_id in open_ids)
            elif is_read and claim.status != "pending" and claim.claim_id not in open_ids:
                self._forget(lane, claim)
        for foreign, call in claims:
            is_foreign = foreign.worker != self.worker_id and self.owns(call)
            if is_foreign and foreign.event_id not in own.watched:
                own.watched.add(foreign.event_id)
                self.worker.spawn(lane, self._watch(lane, foreign, call))

    def _forget(self, lane: Lane[A], claim: OwnClaim) -> None:
        lane.own.table.forget(claim)
        self.on_claim_closed(lane, claim)

    def _sweep_running(self, lane: Lane[A], claim: OwnClaim, *, is_open: bool) -> None:
        task = claim.task
        assert task is not None
        if task.done():
            claim.status = "pending"
            lane.own.table.release(claim, "stopping")
        elif not claim.stopping and (not is_open or self.must_stop(lane, claim)):
            claim.stopping = True
            task.cancel()

    async def _watch(self, lane: Lane[A], claim: Claim, call: Call | None) -> None:
        """Rules `gone`, `fresh`, `watch`: settle the claim once its writer is certainly gone."""
        members = self._ports.members
        await asyncio.sleep(members.watch_ms / 1_000)
        while not await members.is_gone(claim.worker):
            await asyncio.sleep(_LIVENESS_S)
            if all(c.event_id != claim.event_id for c, _ in open_claims(lane.state)):
                break
        else:
            _log.warning("worker %s is gone; settling its claim", claim.worker)
            await self._settle(lane, claim)
        lane.own.watched.discard(claim.event_id)

    async def _settle(self, lane: Lane[A], claim: Claim) -> None:
        still = [c for o, c in open_claims(lane.state) if o.event_id == claim.event_id]
        if still:
            event = self.settlement(lane, claim, still[0])
            await patiently(lambda: self._ports.log.append([event]))

    async def drain(self, timeout_ms: int) -> None:
        """Nothing of this worker runs any more: waited for up to `timeout_ms`, then cancelled.

        Effects: no claim starts from now on. What had to be cancelled has its outcome appended.
        """
        self.is_draining = True
        tasks = [c.task for c in self._own_claims() if c.status == "running" and c.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1_000)
        for claim in self._own_claims():
            if claim.status == "running" and claim.task is not None:
                claim.stopping = True
                claim.task.cancel()
        deadline = self._ports.clock.mono_ms() + _CLOSING_MS
        while self.is_busy and self._ports.clock.mono_ms() < deadline:
            await asyncio.sleep(_CLOSING_STEP_S)

    def _own_claims(self) -> list[OwnClaim]:
        return [c for lane in self.worker.lanes for c in lane.own.table.claims.values()]

    @property
    def is_busy(self) -> bool:
        """Whether any claim of this worker is open, or an append of it under way."""
        return any(
            not lane.broken and (not lane.own.table.is_empty or lane.own.sending)
            for lane in self.worker.lanes
        )
