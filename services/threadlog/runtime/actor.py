"""The part that planner and tool-runner share: decide, claim, read back, effect, outcome.

One set of appends is in flight per lane; the next is planned once the last was read back. Effects
run beside, as tasks; what came of one waits in the claim table until its outcome was read back.

In:  every event, for the fold
Out: what a subclass plans
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from threadlog.errors import RejectedError, TransientError
from threadlog.events.envelope import Body, Event
from threadlog.faults import reach
from threadlog.ids import EventId, Position, WorkerId, caused_id
from threadlog.limits import CLAIM_TTL_MS, KILL_WAIT_MS
from threadlog.ports.log import Record
from threadlog.runtime.acting import Acting, ActorPorts, Plan
from threadlog.runtime.claiming import Claiming
from threadlog.runtime.claims import OwnClaim, ReleaseReason
from threadlog.runtime.lanes import Lane
from threadlog.runtime.load import Loaded
from threadlog.runtime.patience import patiently
from threadlog.runtime.worker import Worker
from threadlog.thread.fold import Judgement
from threadlog.thread.state import ThreadState

_RETRY_S = 0.2
_CLOSING_S = KILL_WAIT_MS / 1_000 + 1.0
"""How long a drained worker waits for its last effects to end and to be on record."""
_CLOSING_STEP_S = 0.01

A = TypeVar("A", bound=Acting)


class Actor(Claiming[A]):
    """A service that acts on threads. Subclasses say what to plan and how an effect runs."""

    def __init__(self, ports: ActorPorts, worker_id: WorkerId) -> None:
        super().__init__(ports, worker_id)
        self.worker: Worker[A] = Worker(
            ports.log,
            ports.loader,
            self,
            folding=ports.folding,
            meter=ports.meter,
            lanes_max=ports.lanes_max,
        )

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
    def release_body(self, claim: OwnClaim, reason: ReleaseReason) -> Body:
        """The body of the event that gives the claim up."""

    def learn(self, lane: Lane[A], event: Event) -> None:
        """An accepted event, for what the subclass keeps beside the state."""

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
            self._ports.tracer.heard(self.name, self.worker_id, event, judgement.seq)
            self.learn(lane, event)
        if event.worker == self.worker_id:
            self._on_own(lane, event, is_accepted=judgement.void is None)

    def _on_own(self, lane: Lane[A], event: Event, *, is_accepted: bool) -> None:
        """An event of this worker came back; of two copies of a claim the first one counts."""
        claim = lane.own.table.claims.get(event.event_id)
        if claim is not None and claim.status == "pending" and not claim.is_read_back:
            claim.drop_timer()
            if is_accepted:
                claim.is_read_back = True
            else:
                self._ports.meter.claim("lost")
                self._forget(lane, claim)

    def on_batch(self, position: Position, lanes: Sequence[Lane[A]]) -> None:
        """Every touched lane acts."""
        for lane in lanes:
            self.act(lane)

    def is_idle(self, lane: Lane[A]) -> bool:
        """No turn, no claim, nothing to plan, nothing on its way."""
        own = lane.own
        if lane.state.turn is not None or own.sending or lane.position < own.wait_for:
            return False
        return own.table.is_empty and not own.is_woken and not self.concerns(lane.state)

    # -- acting

    def act(self, lane: Lane[A]) -> None:
        """Whatever the lane's state asks of this service is under way."""
        if lane.broken or lane.backlog is not None or self.worker.has_ended:
            return
        try:
            self._act(lane)
        except Exception:  # noqa: BLE001  # a worker's edge
            self.worker.break_lane(lane)

    def _act(self, lane: Lane[A]) -> None:
        own = lane.own
        self._sweep(lane)
        if own.sending or lane.position < own.wait_for:
            return
        if not own.table.has_news and not (self.is_owner and self.concerns(lane.state)):
            # Whatever was on its way has come, or the state has moved on without it.
            self._close(lane)
            return
        if own.timer is not None:
            own.timer.cancel()
            own.timer = None
        began_ms = self._ports.clock.now_ms()
        plan = self.plan(lane)
        plan.began_ms = began_ms
        if plan.events:
            own.sending = True
            self._open(lane)
            self.worker.spawn(lane, self._append(lane, plan))
        else:
            self._close(lane)

    def _open(self, lane: Lane[A]) -> None:
        """What the lane has read stays open until what it causes is acknowledged."""
        if lane.own.unacknowledged is None:
            ledger, at = self.worker.ledger, lane.position
            if ledger.open(at):
                lane.own.unacknowledged = ledger, at

    def _close(self, lane: Lane[A]) -> None:
        if lane.own.unacknowledged is not None:
            ledger, at = lane.own.unacknowledged
            ledger.close(at)
            lane.own.unacknowledged = None

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

    def release_event(self, lane: Lane[A], claim: OwnClaim, reason: ReleaseReason) -> Event:
        """The release; it follows from the claim, or from what the claim followed from."""
        body = self.release_body(claim, reason)
        return self.writer.make(
            lane.stream,
            body,
            caused_id(claim.claim_id, body.TYPE, "writer"),
            caused_by=claim.release_cause,
            turn_id=claim.event.turn_id,
        )

    def stream_event(self, lane: Lane[A], body: Body, event_id: EventId, cause: EventId) -> Event:
        """An event of the lane's open turn."""
        turn = lane.state.turn
        return self.writer.make(
            lane.stream,
            body,
            event_id,
            caused_by=cause,
            turn_id=None if turn is None else turn.turn_id,
        )

    def _send_claims(self, lane: Lane[A], plan: Plan) -> None:
        """The claims of this plan are sent now, by the running task."""
        loop = asyncio.get_running_loop()
        ids = {claim.claim_id for claim in plan.claims}
        for claim in plan.claims:
            claim.sending = asyncio.current_task()
            claim.led_by = [event for event in plan.events if event.event_id not in ids]
            claim.sent_ms = self._ports.clock.mono_ms()
            claim.timer = loop.call_later(CLAIM_TTL_MS / 1_000, self._expire, lane, claim)
            lane.own.table.claims[claim.claim_id] = claim

    async def _append(self, lane: Lane[A], plan: Plan) -> None:
        own = lane.own
        if lane.broken:
            self._drop(lane, plan)
            return
        kind = "claim" if plan.claims else "outcome"
        self._send_claims(lane, plan)
        reach(f"{self.name}.{kind}.before_append")
        try:
            receipts = await self._ports.log.append(plan.events)
        except TransientError:
            # Unknown, not absent: the claims may come yet, so they are given up (`noreclaim`).
            for claim in plan.claims:
                if claim.status == "pending":
                    own.table.release(claim, "unacknowledged")
            own.sending = False
            self.act_later(lane, int(_RETRY_S * 1_000))
            return
        except RejectedError as error:
            self._replace_outcomes(lane, plan, error)
            return
        reach(f"{self.name}.{kind}.after_append")
        self._ports.tracer.planned(self.name, plan.events, plan.began_ms)
        self._close(lane)
        for claim in plan.claims:
            claim.led_by = ()
        for _ in plan.releases:
            self._ports.meter.claim("released")
        own.table.releases = [r for r in own.table.releases if r not in plan.releases]
        for claim in (*plan.outcomes, *(claim for claim, _ in plan.releases)):
            claim.is_reported = True
        own.wait_for = receipts[-1].position
        own.sending = False
        if lane.position >= own.wait_for:
            self.wake(lane)

    def _drop(self, lane: Lane[A], plan: Plan) -> None:
        """The lane broke before this was sent: nothing would close a claim that is made now."""
        for claim in plan.claims:
            self.on_claim_closed(lane, claim)
        lane.own.sending = False

    def _replace_outcomes(self, lane: Lane[A], plan: Plan, error: RejectedError) -> None:
        """The log takes none of it, a result is too large: it ends as a failure that is small.

        Raises:  RejectedError: there is no result to replace, or this was tried before.
        """
        for claim in plan.claims:
            self._forget(lane, claim)
        fresh = [claim for claim in plan.outcomes if not claim.was_rejected]
        if not fresh:
            raise error
        for claim in fresh:
            claim.was_rejected = True
            claim.result = self.failed_result(error)
        lane.own.sending = False
        self._close(lane)
        self.wake(lane)

    def on_broken(self, lane: Lane[A]) -> None:
        """What ran in the lane is stopped, and its claims are closed: no other worker could.

        Effects: of a claim that had begun the outcome is appended once it has ended; another one is
                 released. This needs nothing of the lane, whose state may be what is wrong.
        """
        for claim in list(lane.own.table.claims.values()):
            if claim.status == "running":
                self._stop(claim)
            if not claim.is_reported:
                abandoning = self.worker.spawn(lane, self._abandon(lane, claim))
                self._abandoning.add(abandoning)
                abandoning.add_done_callback(self._abandoning.discard)
            self._forget(lane, claim)
        self._close(lane)

    async def _abandon(self, lane: Lane[A], claim: OwnClaim) -> None:
        if before := {task for task in (claim.sending, claim.task) if task is not None}:
            await asyncio.wait(before)
        event = self.release_event(lane, claim, "stopping")
        if claim.has_begun:
            event = self.abandoned(claim)
        # Without what may not have arrived with it the release could be void, and the claim come.
        events = [*claim.led_by, event]
        await patiently(lambda: self._ports.log.append(events))

    async def let_go(self) -> Position:
        """Another worker may own the partition now; the position up to which all is done here.

        Effects: nothing is claimed, decided or settled any more. Claims that have not begun are
                 released, and that is waited for. Effects that run go on, and what comes of them is
                 appended: `is_busy` until then.
        """
        self.is_owner = False
        for lane in self.worker.lanes:
            for claim in list(lane.own.table.claims.values()):
                if claim.status == "pending":
                    lane.own.table.release(claim, "revoked")
            self.act(lane)
        while self._is_releasing and not self.worker.has_ended:
            await asyncio.sleep(_CLOSING_STEP_S)
        return self.worker.ledger.commit_point

    @property
    def _is_releasing(self) -> bool:
        own = [lane.own for lane in self.worker.lanes if not lane.broken]
        return any(acting.sending or acting.table.releases for acting in own)

    def take_back(self, committed: Position | None) -> None:
        """The partition is owned again; everything was read meanwhile.

        Shapes:  `committed`: how far another owner has come since; None: nobody has committed.
        """
        self.is_owner = True
        lanes = list(self.worker.lanes)
        waiting = [(x.own, x.own.unacknowledged[1]) for x in lanes if x.own.unacknowledged]
        ledger = self.worker.begin_epoch([at for _, at in waiting], committed)
        for own, at in waiting:
            own.unacknowledged = (ledger, at) if at > ledger.commit_point else None
        for lane in lanes:
            self.act(lane)

    async def drain(self, timeout_ms: int) -> None:
        """Nothing of this worker runs any more: waited for up to `timeout_ms`, then cancelled.

        Effects: no claim starts from now on. What had to be cancelled has its outcome appended, and
                 what was claimed and not begun its release, as far as the log takes them.
        """
        self.is_draining = True
        # 1. Let it end.
        tasks = [c.task for c in self._own_claims() if c.status == "running" and c.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1_000)
        # 2. End it.
        self.hurry()
        # 3. Have it on record.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _CLOSING_S
        while self.is_busy and not self.worker.has_ended and loop.time() < deadline:
            await asyncio.sleep(_CLOSING_STEP_S)
