"""What must hold of every log, watched as it grows.

Source: PROTOCOL "What must hold", RELIABILITY I2 to I4, DESIGN laws 2, 4, 5.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from threadlog.events.envelope import Event, Opaque
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.step import ModelResponded, StepFinished, StepStarted
from threadlog.events.thread import ThreadConfigured, ThreadCreated
from threadlog.events.tool import FileChanged, ToolFinished, ToolReleased, ToolStarted
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import CallId, EventId, call_id
from threadlog.thread.fold import Judgement
from threadlog.thread.invariants import violations
from threadlog.thread.marks import Inputs
from threadlog.thread.state import ThreadState

ROOTS = (ThreadCreated, ThreadConfigured, MessageReceived, CancelRequested)


@dataclass(slots=True)
class History:
    """Facts about the accepted events so far, kept apart from the state that the fold keeps."""

    ids: set[EventId] = field(default_factory=set)
    outcomes: Counter[CallId] = field(default_factory=Counter)
    calls: list[CallId] = field(default_factory=list)
    admitted: Counter[EventId] = field(default_factory=Counter)
    claims: dict[CallId, EventId] = field(default_factory=dict)
    changes: Counter[EventId] = field(default_factory=Counter)
    guards: list[int] = field(default_factory=lambda: [-1])
    is_cancelled: bool = False

    def watch(self, before: ThreadState, event: Event, judgement: Judgement) -> None:
        """The next record was judged.

        Raises:  AssertionError: something that must hold does not.
        """
        after = judgement.state
        assert violations(after) == ()
        if judgement.seq is None:
            assert judgement.void is not None
            assert replace(after, inputs=Inputs(), halted=None) == replace(
                before, inputs=Inputs(), halted=None
            ), "a void event changed the state"
            return
        assert judgement.void is None
        assert judgement.seq == after.head == before.head + 1
        is_ours = not isinstance(event.body, Opaque)
        assert not is_ours or event.event_id not in self.ids, "an id was accepted twice"
        self._watch_cause(event)
        self.ids.add(event.event_id)
        self._watch_inputs(event, judgement.seq)
        self._watch_calls(event)
        self._watch_edges(event)

    def _watch_cause(self, event: Event) -> None:
        is_root = isinstance(event.body, (*ROOTS, Opaque)) and event.caused_by is None
        assert is_root or event.caused_by in self.ids, "the cause is not an accepted event"

    def _watch_inputs(self, event: Event, seq: int) -> None:
        body = event.body
        match body:
            case CancelRequested() | ThreadConfigured():
                self.guards.append(seq)
                is_of_turn = isinstance(body, CancelRequested) and body.call_id is None
                self.is_cancelled = self.is_cancelled or is_of_turn
            case MessageReceived(delivery="next_step" | "interrupt"):
                self.guards.append(seq)
            case StepStarted(decided_at=at, admits=admits):
                assert at >= self.guards[-1], "a claim passed an input"
                assert not self.is_cancelled
                self._admit(admits)
            case TurnFinished(decided_at=at, verdict=verdict):
                assert at >= self.guards[-1], "a verdict passed an input"
                assert (verdict == "cancelled") == self.is_cancelled
                self.is_cancelled = False
            case TurnStarted(admits=admits):
                self._admit(admits)
            case _:
                pass

    def _admit(self, admits: tuple[EventId, ...]) -> None:
        self.admitted.update(admits)
        assert all(self.admitted[name] == 1 for name in admits), "an input was delivered twice"
        assert self.ids.issuperset(admits), "an input was delivered that was never accepted"

    def _watch_calls(self, event: Event) -> None:
        match event.body:
            case ModelResponded(calls=calls):
                self.calls += [call_id(event.event_id, n) for n in range(len(calls))]
            case ToolStarted(call_id=call):
                assert call not in self.claims, "two open claims of one call"
                self.claims[call] = event.event_id
            case ToolReleased(call_id=call):
                self.claims.pop(call, None)
            case FileChanged(claim=claim):
                self.changes[claim] += 1
            case ToolFinished(call_id=call, outcome=outcome, by=by) as body:
                self.outcomes[call] += 1
                assert self.outcomes[call] == 1, "a call has two outcomes"
                started = self.claims.pop(call, None)
                has_claim = outcome not in ("not_started", "denied", "cancelled")
                assert not has_claim or started is not None, "an outcome without a claim"
                assert outcome not in ("not_started", "denied") or started is None
                assert by != "writer" or self.changes[started or event.event_id] == body.files
            case _:
                pass

    def _watch_edges(self, event: Event) -> None:
        if isinstance(event.body, StepStarted | StepFinished | TurnStarted | TurnFinished):
            assert all(self.outcomes[call] == 1 for call in self.calls), "an open call at an edge"
            assert not self.claims, "an open claim at an edge"
