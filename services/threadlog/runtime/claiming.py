"""From a claim that was read back to its close: start, effect, stop; and claims of the dead.

Effects run beside the lanes, as tasks; what came of one waits in the claim table until its outcome
was read back. Everything here looks at a state that is in hand; what is appended is planned in
`actor`.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from threadlog.clock import rfc3339
from threadlog.errors import LateError, RefusedError
from threadlog.events.envelope import Body, Event
from threadlog.events.trace import span_of
from threadlog.events.writer import EventWriter
from threadlog.faults import reach
from threadlog.ids import EventId, WorkerId
from threadlog.runtime.acting import Acting, ActorPorts
from threadlog.runtime.claims import OwnClaim
from threadlog.runtime.lanes import Lane
from threadlog.runtime.liveness import certainly_gone
from threadlog.runtime.patience import patiently
from threadlog.runtime.worker import Worker
from threadlog.telemetry import scope
from threadlog.thread.decide import open_claims
from threadlog.thread.state import Call, Claim

_log = logging.getLogger("threadlog.actor")
_AGAIN_S = 1.0

A = TypeVar("A", bound=Acting)


class Claiming(ABC, Generic[A]):
    """The life of claims. `is_owner` False: nothing starts and nobody is settled any more."""

    name: str
    worker: Worker[A]

    def __init__(self, ports: ActorPorts, worker_id: WorkerId) -> None:
        self._ports = ports
        self.worker_id = worker_id
        self.writer = EventWriter(
            self.name,
            worker_id,
            lambda: rfc3339(ports.clock.now_ms()),
            ports.tracer.trace_of,
        )
        self.is_draining = False
        self.is_owner = True
        self._abandoning: set[asyncio.Task[None]] = set()

    # -- what a subclass says

    @abstractmethod
    def act(self, lane: Lane[A]) -> None:
        """Whatever the lane's state asks of this service is under way."""

    @abstractmethod
    def wake(self, lane: Lane[A]) -> None:
        """The lane acts once this round of the loop is done."""

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
    def settlement(self, lane: Lane[A], claim: Claim, call: Call | None) -> Event:
        """The event that settles a claim whose writer is gone."""

    @abstractmethod
    def abandoned(self, claim: OwnClaim) -> Event:
        """The event that closes a claim whose effect had begun, made of the claim alone."""

    async def before_settlement(self) -> None:
        """Whatever must have ended before a dead writer's claim may be settled has ended."""

    @abstractmethod
    def owns(self, call: Call | None) -> bool:
        """Whether claims of this kind (a step's: None) are this service's to settle."""

    def on_claim_closed(self, lane: Lane[A], claim: OwnClaim) -> None:
        """The claim is closed in the log, or was void: what was held for it is free."""

    # -- the life of a claim

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
            now_ms, meter = self._ports.clock.mono_ms(), self._ports.meter
            if claim.is_late(now_ms):
                raise LateError("nothing was set up")
            scope.begin_span(span_of(claim.claim_id))
            _log.debug("%s: the effect of claim %s begins", self.name, claim.claim_id)
            claim.has_begun = True
            meter.claim("used")
            meter.began((now_ms - claim.sent_ms) / 1_000)
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

    def _sweep_running(self, lane: Lane[A], claim: OwnClaim, *, is_open: bool) -> None:
        task = claim.task
        assert task is not None
        if task.done():
            assert not claim.has_begun, "an effect that began ends with a result"
            claim.status = "pending"
            lane.own.table.release(claim, "stopping")
        elif not is_open or self.must_stop(lane, claim):
            self._stop(claim)

    def _unclosed(self, lane: Lane[A], claim: OwnClaim) -> None:
        """What closes the claim was read back and did not: appending it again would not end."""
        assert lane.state.halted is not None, f"claim {claim.claim_id} cannot be closed"
        self._forget(lane, claim)

    def _forget(self, lane: Lane[A], claim: OwnClaim) -> None:
        if claim.claim_id in lane.own.table.claims:
            lane.own.table.forget(claim)
            self.on_claim_closed(lane, claim)

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
            await self._settle_first()
            _log.warning("worker %s is gone; settling its claim", claim.worker)
            if still := still_open():
                event = self.settlement(lane, claim, still[0])
                await patiently(lambda: self._ports.log.append([event]))
                self._ports.meter.claim("settled")
        lane.own.watched.discard(claim.event_id)

    async def _settle_first(self) -> None:
        """Tried until it works: a process that does not end keeps its claim from being settled."""
        while True:
            try:
                await self.before_settlement()
            except RefusedError as error:
                _log.error("%s: %s", self.name, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    def closing_event(self, claim: OwnClaim, body: Body, event_id: EventId) -> Event:
        """An event that follows from the claim and needs no state."""
        event = claim.event
        return self.writer.make(
            (event.tenant_id, event.thread_id),
            body,
            event_id,
            caused_by=claim.claim_id,
            turn_id=event.turn_id,
        )

    def hurry(self) -> None:
        """Whatever still runs is told to end now."""
        for claim in self._own_claims():
            if claim.status == "running":
                self._stop(claim)

    def _own_claims(self) -> list[OwnClaim]:
        return [c for lane in self.worker.lanes for c in lane.own.table.claims.values()]

    @property
    def is_busy(self) -> bool:
        """Whether a claim of this worker is open, or an append of it under way.

        A broken lane does not count, once what it held was closed: nothing moves it any more.
        """
        lanes = (lane for lane in self.worker.lanes if not lane.broken)
        return bool(self._abandoning) or any(
            not x.own.table.is_empty or x.own.sending for x in lanes
        )
