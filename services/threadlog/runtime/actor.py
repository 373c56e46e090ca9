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
from typing import Any, Generic, TypeVar

from threadlog.clock import rfc3339
from threadlog.errors import LateError, RejectedError, TransientError
from threadlog.events.envelope import Body, Event
from threadlog.events.writer import EventWriter
from threadlog.faults import reach
from threadlog.ids import EventId, Position, WorkerId, caused_id
from threadlog.limits import CLAIM_TTL_MS, KILL_WAIT_MS
from threadlog.ports.log import Record
from threadlog.runtime.acting import Acting, ActorPorts, Plan
from threadlog.runtime.claims import OwnClaim, ReleaseReason
from threadlog.runtime.lanes import Lane
from threadlog.runtime.liveness import certainly_gone
from threadlog.runtime.load import Loaded
from threadlog.runtime.patience import patiently
from threadlog.runtime.worker import Worker
from threadlog.thread.decide import open_claims
from threadlog.thread.fold import Judgement
from threadlog.thread.state import Call, Claim, ThreadState

_log = logging.getLogger("threadlog.actor")
_RETRY_S = 0.2
_CLOSING_S = KILL_WAIT_MS / 1_000 + 1.0
"""How long a drained worker waits for its last effects to end and to be on record."""
_CLOSING_STEP_S = 0.01

A = TypeVar("A", bound=Acting)


class Actor(ABC, Generic[A]):
    """A service that acts on threads. Subclasses say what to plan and how an effect runs."""

    name: str

    def __init__(self, ports: ActorPorts, worker_id: WorkerId) -> None:
        self._ports = ports
        self.worker_id = worker_id
        self.writer = EventWriter(self.name, worker_id, lambda: rfc3339(ports.clock.now_ms()))
        self.worker: Worker[A] = Worker(ports.log, ports.loader, self, ports.folding)
        self.is_draining = False
        self.is_owner = True

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

        Effects: sets `claim.is_over` when only the result is still to be stored.
        Raises:  LateError: nothing was started; the claim is released. CancelledError is turned
                 into a result by the subclass when `claim.stopping`, any other by `failed_result`.
        """

    @abstractmethod
    def failed_result(self, error: Exception) -> Any:
        """The result of an effect that broke off with an error nobody foresaw."""

    @abstractmethod
    def must_stop(self, lane: Lane[A], claim: OwnClaim) -> bool:
        """Whether the state says that this claim's effect must stop, or must not start."""

    @abstractmethod
    def release_body(self, claim: OwnClaim, reason: ReleaseReason) -> Body:
        """The body of the event that gives the claim up."""

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
            self._on_own(lane, event, is_accepted=judgement.void is None)

    def _on_own(self, lane: Lane[A], event: Event, *, is_accepted: bool) -> None:
        """An event of this worker came back; of two copies of a claim the first one counts."""
        claim = lane.own.table.claims.get(event.event_id)
        if claim is not None and claim.status == "pending" and not claim.is_read_back:
            claim.drop_timer()
            if is_accepted:
                claim.is_read_back = True
            else:
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
            return
        if own.timer is not None:
            own.timer.cancel()
            own.timer = None
        plan = self.plan(lane)
        if plan.events:
            own.sending = True
            self._open(lane)
            self.worker.spawn(lane, self._append(lane, plan))

    def _open(self, lane: Lane[A]) -> None:
        """What the lane has read stays open until what it causes is acknowledged."""
        if lane.own.unacknowledged is None:
            ledger, at = self.worker.ledger, lane.position
            ledger.open(at)
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
        self._close(lane)
        own.table.releases = [r for r in own.table.releases if r not in plan.releases]
        for claim in (*plan.outcomes, *(claim for claim, _ in plan.releases)):
            claim.is_reported = True
        own.wait_for = receipts[-1].position
        own.sending = False
        if lane.position >= own.wait_for:
            self.wake(lane)

    def _replace_outcomes(self, lane: Lane[A], plan: Plan, error: RejectedError) -> None:
        """The log takes none of it, a result is too large: it ends as a failure that is small.

        Raises:  RejectedError: there is no result to replace, or this was tried before.
        """
        fresh = [claim for claim in plan.outcomes if not claim.was_rejected]
        if not fresh:
            raise error
        for claim in plan.claims:
            self._forget(lane, claim)
        for claim in fresh:
            claim.was_rejected = True
            claim.result = self.failed_result(error)
        lane.own.sending = False
        self._close(lane)
        self.wake(lane)

    def on_broken(self, lane: Lane[A]) -> None:
        """What ran in the lane is stopped, and what was held for it is free for others."""
        for claim in list(lane.own.table.claims.values()):
            if claim.status == "running":
                self._stop(claim)
            self._forget(lane, claim)
        self._close(lane)

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
        elif not self.is_owner:
            table.release(claim, "revoked")
        elif self.is_draining:
            table.release(claim, "shutdown")
        elif self.must_stop(lane, claim):
            table.release(claim, "stopping")
        else:
            claim.status = "running"
            claim.task = self.worker.spawn(lane, self._effect(lane, claim))
            # However it ends, also when it is cancelled before it began.
            claim.task.add_done_callback(lambda _: self.wake(lane))

    async def _effect(self, lane: Lane[A], claim: OwnClaim) -> None:
        """A check, the effect, which checks again when all is set up for it, then its outcome."""
        reach(f"{self.name}.effect.before")
        try:
            if claim.is_late(self._ports.clock.mono_ms()):
                raise LateError("nothing was set up")
            claim.has_begun = True
            claim.result = await self.run_effect(lane, claim)
        except LateError:
            claim.status, claim.has_begun = "pending", False
            lane.own.table.release(claim, "late")
            return
        except Exception as error:  # noqa: BLE001  # a worker's edge: it ends as an outcome
            _log.exception("%s: the effect of claim %s broke off", self.name, claim.claim_id)
            claim.result = self.failed_result(error)
        claim.status = "finished"
        reach(f"{self.name}.effect.after")

    def _sweep(self, lane: Lane[A]) -> None:
        """Own claims against the state in hand: stop what must stop, forget what is closed."""
        own = lane.own
        claims = open_claims(lane.state)
        if not claims and not own.table.claims:
            return
        open_ids = {claim.event_id for claim, _ in claims}
        is_read = not own.sending and lane.position >= own.wait_for
        for claim in list(own.table.claims.values()):
            is_open = claim.claim_id in open_ids
            if claim.status == "running":
                self._sweep_running(lane, claim, is_open=is_open)
            elif claim.status == "pending" and (not claim.is_read_back or own.sending):
                # Both are wanted: the acknowledgement and the claim itself, read back.
                continue
            elif claim.status == "pending" and is_open:
                self._start(lane, claim)
            elif is_read and not is_open:
                self._forget(lane, claim)
            elif is_read and claim.is_reported:
                self._unclosed(lane, claim)
        for foreign, call in claims:
            is_foreign = foreign.worker != self.worker_id and self.owns(call)
            if is_foreign and self.is_owner and foreign.event_id not in own.watched:
                own.watched.add(foreign.event_id)
                self.worker.spawn(lane, self._watch(lane, foreign))

    def _unclosed(self, lane: Lane[A], claim: OwnClaim) -> None:
        """What closes the claim was read back and did not: appending it again would not end."""
        assert lane.state.halted is not None, f"claim {claim.claim_id} cannot be closed"
        self._forget(lane, claim)

    def _forget(self, lane: Lane[A], claim: OwnClaim) -> None:
        lane.own.table.forget(claim)
        self.on_claim_closed(lane, claim)

    def _sweep_running(self, lane: Lane[A], claim: OwnClaim, *, is_open: bool) -> None:
        task = claim.task
        assert task is not None
        if task.done():
            assert not claim.has_begun, "an effect that began ends with a result"
            claim.status = "pending"
            lane.own.table.release(claim, "stopping")
        elif not is_open or self.must_stop(lane, claim):
            self._stop(claim)

    def _stop(self, claim: OwnClaim) -> None:
        """The effect is told to end, once; a result that is there already is kept."""
        if claim.task is not None and not claim.stopping and not claim.is_over:
            claim.stopping = True
            claim.task.cancel()

    async def _watch(self, lane: Lane[A], claim: Claim) -> None:
        """A foreign claim is settled once its writer is certainly gone."""

        def still_open() -> list[Call | None]:
            if not self.is_owner:
                return []
            return [c for o, c in open_claims(lane.state) if o.event_id == claim.event_id]

        if await certainly_gone(self._ports.members, claim.worker, lambda: bool(still_open())):
            _log.warning("worker %s is gone; settling its claim", claim.worker)
            if still := still_open():
                event = self.settlement(lane, claim, still[0])
                await patiently(lambda: self._ports.log.append([event]))
        lane.own.watched.discard(claim.event_id)

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

    def take_back(self) -> None:
        """The partition is owned again; everything was read meanwhile."""
        self.is_owner = True
        self.worker.begin_epoch()
        for lane in self.worker.lanes:
            self.act(lane)

    def hurry(self) -> None:
        """Whatever still runs is told to end now."""
        for claim in self._own_claims():
            if claim.status == "running":
                self._stop(claim)

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

    def _own_claims(self) -> list[OwnClaim]:
        return [c for lane in self.worker.lanes for c in lane.own.table.claims.values()]

    @property
    def is_busy(self) -> bool:
        """Whether a claim of this worker is open, or an append of it under way.

        A broken lane does not count: nothing moves it in this process.
        """
        lanes = (lane for lane in self.worker.lanes if not lane.broken)
        return any(not x.own.table.is_empty or x.own.sending for x in lanes)
