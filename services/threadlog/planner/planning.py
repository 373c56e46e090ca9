"""Planning one append of the planner: outcomes first, then whatever follows from them.

The next decision is made in the state after each planned event, so that a response, its calls, the
end of the step and the end of the turn leave in one append.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from threadlog.clock import Clock
from threadlog.events.content import ModelRef
from threadlog.events.envelope import Event
from threadlog.events.step import ModelResponded, StepFinished, StepStarted
from threadlog.events.tool import ToolFinished, ToolRequested
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.events.writer import EventWriter
from threadlog.ids import CallId, EventId, call_id, caused_id, claim_id, turn_id
from threadlog.planner.screening import Screened, screen
from threadlog.ports.model import Model
from threadlog.runtime.chain import Chain
from threadlog.runtime.claims import OwnClaim
from threadlog.runtime.prompt_content import Content
from threadlog.runtime.prompts import manifest, model_request
from threadlog.runtime.shared_fold import SharedFold
from threadlog.thread.decide import (
    ClaimStep,
    CloseCalls,
    FinishStep,
    FinishTurn,
    Intent,
    RequestCalls,
    StartTurn,
    WaitUntil,
    decide,
)
from threadlog.thread.fold import judge
from threadlog.thread.messages import MessageCall
from threadlog.thread.state import Call, ThreadState

_CHAIN_MAX = 64
"""More decisions than one append can need; a longer chain is our bug."""


@dataclass(frozen=True, slots=True)
class Request:
    """A model request, rendered: what a step claim needs to become an effect."""

    model: Model
    ref: ModelRef
    body: bytes


class Planning(Chain):
    """One plan for one lane. `wait_ms` and `missing` say what it waits for, if anything."""

    def __init__(
        self,
        state: ThreadState,
        content: Content,
        writer: EventWriter,
        clock: Clock,
        folding: SharedFold,
    ) -> None:
        super().__init__(state, writer, folding)
        self.claim: OwnClaim | None = None
        self.wait_ms: int | None = None
        self.missing: set[str] = set()
        self._held: list[Event] = []
        self._content = content
        self._clock = clock

    def give_up(self, release: Event) -> None:
        """The release is planned: now where it is valid, else right before its step is claimed.

        A claim whose append failed may have been planned together with what led to it. Until that
        is in the log, its release is void there, and the claim must not be appended again.
        """
        if judge(self.state, release).void is None:
            self.include(release)
        else:
            self._held.append(release)

    def follow(self, models: Mapping[str, Model], default: Model, *, may_claim: bool) -> None:
        """Everything that follows from the state is planned, up to a claim or a wait."""
        for _ in range(_CHAIN_MAX):
            before = self.state
            for intent in decide(self.state, self._clock.now_ms()):
                if self.claim is not None or self.missing:
                    return
                if isinstance(intent, ClaimStep):
                    self.give_up_held()
                    if self.state is not before:
                        break
                    if may_claim:
                        model = models.get(intent_provider(self.state), default)
                        self._claim(intent, model)
                    return
                self._plan(intent)
            if self.state is before:
                return
        raise AssertionError("decide does not come to rest")

    def give_up_held(self) -> None:
        """Releases that were not valid yet are planned all the same, and last."""
        held, self._held = self._held, []
        for release in held:
            self.include(release)

    def _plan(self, intent: Intent) -> None:
        match intent:
            case StartTurn():
                opened = turn_id(self.state.thread_id, intent.number)
                body = TurnStarted(number=intent.number, admits=intent.admits)
                self.add(body, EventId(opened), intent.admits[0])
            case RequestCalls():
                self._request(intent)
            case CloseCalls():
                for call in intent.calls:
                    self._close(call, cancelled=intent.cancelled)
            case FinishStep():
                finished = StepFinished(
                    number=intent.number, attempts=intent.attempts, usage=intent.usage
                )
                self.add(finished, self._of_turn("step.finished", intent.number), intent.caused_by)
            case FinishTurn():
                verdict = TurnFinished(
                    verdict=intent.verdict,
                    cause=intent.cause,
                    decided_at=self.head,
                    steps=intent.steps,
                )
                self.add(verdict, self._of_turn("turn.finished", 0), intent.caused_by)
            case WaitUntil():
                self.wait_ms = intent.wait_ms
            case _:
                pass

    def _of_turn(self, kind: str, number: int) -> EventId:
        assert self.state.turn is not None
        return caused_id(self.state.turn.turn_id, kind, number)

    def _screen(self, responded: EventId, ordinal: int, *, truncated: bool) -> Screened | None:
        """The call screened; None when its arguments are yet to be loaded."""
        call = self._call(responded, ordinal)
        if call is None:
            return screen("", None, (), truncated)
        ref = call.arguments
        if not isinstance(ref, str) and ref.sha256 not in self._content.blobs:
            self.missing.add(ref.sha256)
            return None
        arguments = self._content.arguments(call)
        return screen(call.name, arguments, self.state.config.tools, truncated)

    def _call(self, responded: EventId, ordinal: int) -> MessageCall | None:
        for event in self.events:
            if event.event_id == responded and isinstance(event.body, ModelResponded):
                call = event.body.calls[ordinal]
                return MessageCall(call_id(responded, ordinal), call.name, call.arguments)
        return self._content.transcript.call(call_id(responded, ordinal))

    def _request(self, intent: RequestCalls) -> None:
        for call in intent.calls:
            screened = self._screen(intent.responded, call.ordinal, truncated=intent.truncated)
            if screened is None:
                return
            body = ToolRequested(
                ordinal=call.ordinal,
                gate=screened.gate,
                effect=screened.effect,
                command=screened.command,
                reason=screened.reason or None,
            )
            self.add(body, EventId(call.call_id), intent.responded, actor="model")

    def _close(self, call: Call, *, cancelled: bool) -> None:
        turn = self.state.turn
        assert turn is not None
        assert turn.step.responded is not None
        reason, message = "interrupted", ""
        if call.cancelled or turn.cancel is not None:
            reason = "cancelled"
        if not cancelled:
            truncated = turn.step.stop == "length"
            screened = self._screen(turn.step.responded, call.ordinal, truncated=truncated)
            if screened is None:
                return
            reason, message = screened.reason or "refused", screened.message
        body = ToolFinished(
            call_id=call.call_id,
            attempt=call.attempt,
            by="planner",
            outcome="not_started",
            reason=reason,
            output=message,
        )
        event_id = finished_id(call.call_id, call.attempt, "planner")
        self.add(body, event_id, call.cause)

    def _claim(self, intent: ClaimStep, model: Model) -> None:
        """Render the request, then claim it: the hash of its bytes is in the claim."""
        config = self.state.config
        assert config.model is not None
        messages = self._content.transcript.messages(self.events, intent.admits)
        self.missing = self._content.missing(messages)
        if self.missing:
            return
        request = model_request(config, self._content, messages)
        rendered = model.render(request)
        step, worker = intent.step, self.writer.worker
        assert worker is not None
        body = StepStarted(
            number=step.number,
            attempt=step.attempt,
            decided_at=self.head,
            admits=intent.admits,
            model=config.model,
            manifest=manifest(request, rendered, model.renderer),
        )
        event_id = claim_id(intent.turn.turn_id, step.number, step.attempt, worker, self.head)
        event = self.add(body, event_id, step.cause)
        self.claim = OwnClaim(event, Request(model, config.model, rendered))


def intent_provider(state: ThreadState) -> str:
    """The provider of the thread's model, empty when it has none."""
    return "" if state.config.model is None else state.config.model.provider


def finished_id(call: CallId, attempt: int, by: str) -> EventId:
    """The id of a call's `tool.finished`."""
    return caused_id(call, "tool.finished", attempt, by)
