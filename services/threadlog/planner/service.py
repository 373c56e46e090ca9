"""The planner: one turn is a chain of appended events, and this service appends most of them.

In:  every event, for the fold
Out: turn.started turn.finished step.started step.released step.finished model.responded
     model.attempt_failed model.interrupted tool.requested tool.finished
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from threadlog.clock import rfc3339
from threadlog.errors import ModelError
from threadlog.events.content import OutputPart, TextPart, ThinkingPart
from threadlog.events.envelope import Body, Event
from threadlog.events.step import ModelAttemptFailed, ModelCall, StepReleased, StepStarted
from threadlog.ids import WorkerId, caused_id
from threadlog.limits import CALLS_PER_STEP_MAX
from threadlog.planner.attempt import Attempt
from threadlog.planner.meter import NoPlannerMeter, PlannerMeter
from threadlog.planner.planning import Planning, Request
from threadlog.planner.prices import Prices
from threadlog.planner.results import Answered, Failed, Interrupted, Result, result_body
from threadlog.planner.timing import TurnTimes
from threadlog.ports.blobs import Blobs
from threadlog.ports.model import Delta, Model, ModelReply
from threadlog.ports.notify import LiveDelta, Notify
from threadlog.ports.texts import store_texts
from threadlog.runtime.acting import Acting, ActorPorts, Plan
from threadlog.runtime.actor import Actor
from threadlog.runtime.claims import OwnClaim, ReleaseReason
from threadlog.runtime.content import text_of, with_text
from threadlog.runtime.lanes import Lane
from threadlog.runtime.load import Loaded
from threadlog.runtime.patience import patiently
from threadlog.runtime.prompt_content import Content
from threadlog.thread.state import Call, Claim, ThreadState, is_stopping


@dataclass(slots=True)
class Planned(Acting):
    """The planner's part of a lane. `content` None: not read yet."""

    content: Content | None = field(default_factory=Content)
    is_reading: bool = False
    times: TurnTimes = field(default_factory=TurnTimes)


@dataclass(frozen=True, slots=True)
class PlannerPorts:
    """What the planner needs beside what every actor needs. `models` by provider."""

    actor: ActorPorts
    models: Mapping[str, Model]
    unknown_model: Model
    blobs: Blobs
    notify: Notify
    prices: Prices
    meter: PlannerMeter = field(default_factory=NoPlannerMeter)


class Planner(Actor[Planned]):
    """Plans turns and asks models."""

    name = "planner"

    def __init__(self, ports: PlannerPorts, worker_id: WorkerId) -> None:
        super().__init__(ports.actor, worker_id)
        self._planner_ports = ports

    def new_lane(self) -> Planned:
        """A lane of a stream that is empty so far."""
        return Planned()

    def on_loaded(self, lane: Lane[Planned], loaded: Loaded) -> None:
        """Content is read when it is first needed."""
        lane.own.content = None if loaded.state.head >= 0 else Content()

    def learn(self, lane: Lane[Planned], event: Event) -> None:
        """Content follows the accepted events; what this planner ended is counted."""
        is_own = event.worker == self.worker_id
        lane.own.times.learn(event, self._planner_ports.meter if is_own else None)
        if lane.own.content is not None:
            lane.own.content.add(event)

    def owns(self, call: Call | None) -> bool:
        """Steps are the planner's to settle."""
        return call is None

    def must_stop(self, lane: Lane[Planned], claim: OwnClaim) -> bool:
        """A cancel or an interrupt stops the request."""
        return is_stopping(lane.state)

    def concerns(self, state: ThreadState) -> bool:
        """A queue, or an open turn in which neither the model nor every call is busy."""
        turn = state.turn
        if turn is None:
            return bool(state.queue)
        if turn.step.phase != "calls":
            return turn.step.phase != "claimed"
        calls = turn.step.calls
        return any(c.outcome is None and (c.claim is None or c.status == "new") for c in calls)

    def plan(self, lane: Lane[Planned]) -> Plan:
        """Releases, outcomes, and all that follows from them."""
        own = lane.own
        if own.content is None or own.is_reading:
            self._read(lane, set())
            return Plan()
        clock = self._ports.clock
        planning = Planning(lane.state, own.content, self.writer, clock, self._ports.folding)
        releases = list(own.table.releases)
        for claim, reason in releases:
            planning.give_up(self.release_event(lane, claim, reason))
        outcomes = own.table.finished()
        for claim in outcomes:
            self._plan_result(planning, claim)
        if self.is_owner:
            planning.follow(
                self._planner_ports.models,
                self._planner_ports.unknown_model,
                may_claim=not self.is_draining,
            )
        planning.give_up_held()
        if planning.missing:
            self._read(lane, planning.missing)
            return Plan()
        if planning.wait_ms is not None and not planning.events:
            self.act_later(lane, planning.wait_ms)
        claims = [] if planning.claim is None else [planning.claim]
        return Plan(planning.events, claims, releases, outcomes)

    def _plan_result(self, planning: Planning, claim: OwnClaim) -> None:
        turn = planning.state.turn
        if turn is None or turn.step.claim is None:
            return
        if turn.step.claim.event_id != claim.claim_id:
            return
        body = result_body(claim.result, claim.claim_id, turn.step, self._ports.clock)
        actor = "model" if isinstance(claim.result, Answered) else None
        event_id = caused_id(claim.claim_id, body.TYPE)
        planning.add(body, event_id, claim.claim_id, actor=actor)

    def release_body(self, claim: OwnClaim, reason: ReleaseReason) -> Body:
        """`step.released`."""
        started = claim.event.body
        assert isinstance(started, StepStarted)
        return StepReleased(
            number=started.number,
            attempt=started.attempt,
            claim=claim.claim_id,
            by="writer",
            reason=reason,
        )

    def abandoned(self, claim: OwnClaim) -> Event:
        """A request that was under way: the attempt failed, and is not made again."""
        started = claim.event.body
        assert isinstance(started, StepStarted)
        body = ModelAttemptFailed(
            claim=claim.claim_id,
            attempt=started.attempt,
            error_class="internal",
            message="an error of the planner stopped the thread",
            retryable=False,
            delay_ms=0,
            due_at_ms=self._ports.clock.now_ms(),
        )
        return self.closing_event(claim, body, caused_id(claim.claim_id, body.TYPE))

    def settlement(self, lane: Lane[Planned], claim: Claim, call: Call | None) -> Event:
        """A dead writer's request is asked again: its attempt is released."""
        turn = lane.state.turn
        assert turn is not None
        body = StepReleased(
            number=turn.step.number,
            attempt=turn.step.attempt,
            claim=claim.event_id,
            by="settlement",
            reason="worker_gone",
        )
        event_id = caused_id(claim.event_id, body.TYPE, "settlement")
        return self.stream_event(lane, body, event_id, claim.event_id)

    # -- reading content

    def _read(self, lane: Lane[Planned], missing: set[str]) -> None:
        if not lane.own.is_reading:
            lane.own.is_reading = True
            self.worker.spawn(lane, self._read_content(lane, missing))

    async def _read_content(self, lane: Lane[Planned], missing: set[str]) -> None:
        """Effects: reads events by range and blobs; the lane then acts again."""
        own = lane.own
        while own.content is None:
            state, position = lane.state, lane.position
            content, times = Content(), TurnTimes()
            for event in await patiently(partial(self._ports.loader.accepted, state, position)):
                content.add(event)
                times.learn(event, None)
            if lane.state.head == state.head:
                own.content, own.times = content, times
        content, blobs = own.content, self._planner_ports.blobs
        await patiently(lambda: content.load(blobs, lane.tenant_id, missing))
        own.is_reading = False
        self.act(lane)

    # -- the effect

    async def run_effect(self, lane: Lane[Planned], claim: OwnClaim) -> Result:
        """One model request, its result, its large texts stored."""
        request: Request = claim.job
        pieces: list[Delta] = []
        live, attempt = self._live(lane, claim), self._attempt(request)

        def on_delta(delta: Delta) -> None:
            if not pieces:
                attempt.speaks()
                self._speaks(lane)
            pieces.append(delta)
            live(delta, len(pieces) - 1)

        try:
            clock = self._ports.clock
            reply = await request.model.send(
                request.body, on_delta, may_start=lambda: not claim.is_late(clock.mono_ms())
            )
        except ModelError as error:
            attempt.ended(error.error_class)
            return Failed(error)
        except asyncio.CancelledError:
            if not claim.stopping:
                raise
            attempt.ended("interrupted")
            return self._stopped(lane, pieces)
        attempt.ended("ok", reply.usage)
        self._speaks(lane)
        claim.is_over = True
        if len(reply.calls) > CALLS_PER_STEP_MAX:
            text = f"the reply has {len(reply.calls)} calls, more than {CALLS_PER_STEP_MAX}"
            return Failed(ModelError(text, error_class="too_large", retryable=False))
        return await self._stored(lane, reply)

    def _attempt(self, request: Request) -> Attempt:
        return Attempt(self._planner_ports.meter, self._ports.clock, request.ref)

    def _speaks(self, lane: Lane[Planned]) -> None:
        now = rfc3339(self._ports.clock.now_ms())
        lane.own.times.speaks(now, self._planner_ports.meter)

    def failed_result(self, error: Exception) -> Result:
        """A model adapter that breaks its word is not asked again."""
        text = f"{type(error).__name__}: {error}"
        return Failed(ModelError(text, error_class="internal", retryable=False))

    def _live(self, lane: Lane[Planned], claim: OwnClaim) -> Callable[[Delta, int], None]:
        turn, body, notify = lane.state.turn, claim.event.body, self._planner_ports.notify
        assert turn is not None
        assert isinstance(body, StepStarted)
        turn_id, number, attempt = turn.turn_id, body.number, body.attempt

        def publish(delta: Delta, n: int) -> None:
            frame = LiveDelta(turn_id, number, attempt, n, delta.kind, delta.text)
            notify.publish(lane.tenant_id, lane.thread_id, frame)

        return publish

    def _stopped(self, lane: Lane[Planned], pieces: list[Delta]) -> Result:
        """Interrupted on request keeps the text; a shutdown is an attempt that failed."""
        if self.is_draining and not is_stopping(lane.state):
            return Failed(
                ModelError("the worker was shut down", error_class="shutdown", retryable=True)
            )
        thinking = "".join(p.text for p in pieces if p.kind == "thinking")
        text = "".join(p.text for p in pieces if p.kind == "text")
        parts: list[OutputPart] = [ThinkingPart(text=thinking)] if thinking else []
        parts += [TextPart(text=text)] if text else []
        turn = lane.state.turn
        cancelled = turn is not None and turn.cancel is not None
        return Interrupted(tuple(parts), "cancel" if cancelled else "interrupt")

    async def _stored(self, lane: Lane[Planned], reply: ModelReply) -> Answered:
        """The reply, its large texts in the blob store before the event refers to them."""
        texts = [text_of(p) for p in reply.content] + [c.arguments for c in reply.calls]
        inline = [t for t in texts if isinstance(t, str)]
        assert len(inline) == len(texts)
        stored = await patiently(
            lambda: store_texts(self._planner_ports.blobs, lane.tenant_id, inline)
        )
        content = lane.own.content
        for text, kept in zip(inline, stored, strict=True):
            if not isinstance(kept, str) and content is not None:
                content.blobs[kept.sha256] = text.encode("utf-8", "replace")
        parts = tuple(map(with_text, reply.content, stored))
        calls = tuple(
            ModelCall(provider_call_id=c.provider_call_id, name=c.name, arguments=arguments)
            for c, arguments in zip(reply.calls, stored[len(parts) :], strict=True)
        )
        usage = self._planner_ports.prices.bill(reply.model, reply.usage)
        return Answered(parts, calls, reply.stop, usage, reply.model)
