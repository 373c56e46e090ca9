"""Spans made of events: a turn is one trace, whichever processes carry it.

The trace and root span of a turn, and the span of a claim, are derived from ids in the log. So
planner, tool-runner and projection, and a worker that goes on after another's death, name the same
spans without having told each other anything; the `traceparent` of an event says it to strangers,
and whether the turn is sampled, which whoever began the turn decided.

A span is told by the worker that wrote the event which ends it, once it has read that event back as
accepted: an outcome that is void is no span, and a claim that another worker settles is told by
that one. What began before this process read anything begins with the first thing that it read.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.events.trace import TraceParent, is_state, parse_parent, span_of, turn_root
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.events.writer import NO_TRACE, Trace
from threadlog.ids import EventId, Seq, TurnId, WorkerId
from threadlog.limits import TRACE_LINKS_MAX, TRACE_TURNS_MAX
from threadlog.telemetry import semantics as names
from threadlog.telemetry.facts import claim_of, ending, opening, thread_attributes
from threadlog.telemetry.requests import GatewayRequest
from threadlog.telemetry.spans import Ended, Taking, Value

K = TypeVar("K")
V = TypeVar("V")
_HALF = 64
"""Bits of a trace id that decide whether it is sampled."""


@dataclass(slots=True)
class _Turn:
    """What is known of a turn. `links`: the requests whose messages it admitted."""

    began_ms: int
    is_sampled: bool
    links: Sequence[TraceParent] = ()


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim that is open."""

    began_ms: int
    attributes: Mapping[str, Value]


class EventTracer:
    """Implements `runtime.tracer.Tracer`."""

    def __init__(self, spans: Taking, now_ms: Callable[[], int], ratio: float) -> None:
        """`ratio`: how many of the traces that begin here are sampled, 0 to 1."""
        self._spans = spans
        self._now_ms = now_ms
        self._bound: int = round(ratio * (1 << _HALF))
        self._turns: OrderedDict[TurnId, _Turn] = OrderedDict()
        self._inputs: OrderedDict[EventId, TraceParent] = OrderedDict()
        self._claims: OrderedDict[EventId, _Claim] = OrderedDict()

    def trace_of(self, turn: TurnId | None) -> Trace:
        """That of the turn's root span."""
        return NO_TRACE if turn is None else (self._root(turn).text(), None)

    def heard(self, service: str, worker: WorkerId, event: Event, seq: Seq | None) -> None:
        """What the event begins is remembered; what it ends, and is this worker's, is told."""
        body, said = event.body, parse_parent(event.traceparent)
        if isinstance(body, MessageReceived) and said is not None:
            _remember(self._inputs, event.event_id, said)
        if event.turn_id is None:
            return
        self._learn_turn(event, event.turn_id, said)
        if (attributes := opening(body)) is not None:
            _remember(self._claims, event.event_id, _Claim(_ms(event, self._now_ms), attributes))
        elif (claim := claim_of(body)) is not None:
            if event.worker == worker:
                self._tell_claim(service, event, claim)
        elif isinstance(body, TurnFinished) and event.worker == worker:
            self._tell_turn(service, event, body, seq)

    def planned(self, service: str, events: Sequence[Event], began_ms: int) -> None:
        """A span of the turn that the last event belongs to."""
        turn_id = events[-1].turn_id
        if turn_id is None:
            return
        root = self._root(turn_id)
        begun = next((e.body for e in events if isinstance(e.body, TurnStarted)), None)
        self._spans.add(
            Ended(
                names.PLAN if service == "planner" else names.APPEND,
                TraceParent(root.trace_id, secrets.token_hex(8), root.is_sampled),
                root,
                began_ms,
                self._now_ms(),
                {
                    **thread_attributes(service, events[-1]),
                    names.EVENTS: len(events),
                    names.TYPES: sorted({event.type for event in events}),
                },
                links=() if begun is None else self._links(begun),
            )
        )

    def projected(self, events: Sequence[Event], began_ms: int) -> None:
        """A span of every turn among them."""
        counts: dict[TurnId, int] = {}
        last: dict[TurnId, Event] = {}
        for event in events:
            if event.turn_id is not None:
                self._learn_turn(event, event.turn_id, parse_parent(event.traceparent))
                counts[event.turn_id] = counts.get(event.turn_id, 0) + 1
                last[event.turn_id] = event
        for turn_id, event in last.items():
            root = self._root(turn_id)
            at = TraceParent(root.trace_id, secrets.token_hex(8), root.is_sampled)
            attributes = thread_attributes("projection", event) | {names.EVENTS: counts[turn_id]}
            self._spans.add(Ended(names.PROJECT, at, root, began_ms, self._now_ms(), attributes))

    def request(self, parents: Sequence[str], states: Sequence[str]) -> GatewayRequest:
        """It goes on in the caller's trace if the caller named one, or begins its own."""
        parent = parse_parent(parents[0]) if len(parents) == 1 else None
        state = ",".join(states) if parent is not None else ""
        trace_id = secrets.token_hex(16) if parent is None else parent.trace_id
        is_sampled = self._is_sampled(trace_id) if parent is None else parent.is_sampled
        at = TraceParent(trace_id, secrets.token_hex(8), is_sampled)
        return GatewayRequest(
            self._spans, self._now_ms, at, parent, state if is_state(state) else None
        )

    def _root(self, turn_id: TurnId) -> TraceParent:
        root = turn_root(turn_id, is_sampled=False)
        known = self._turns.get(turn_id)
        is_sampled = self._is_sampled(root.trace_id) if known is None else known.is_sampled
        return root._replace(is_sampled=is_sampled)

    def _is_sampled(self, trace_id: str) -> bool:
        """As OpenTelemetry's own sampler of a ratio decides: alike in every process."""
        return int(trace_id[-(_HALF // 4) :], 16) < self._bound

    def _learn_turn(self, event: Event, turn_id: TurnId, said: TraceParent | None) -> None:
        """Whether the turn is sampled is what the first event of it that names its trace says."""
        known = self._turns.get(turn_id)
        if known is None:
            root = self._root(turn_id)
            is_ours = said is not None and said.trace_id == root.trace_id
            is_sampled = said.is_sampled if said is not None and is_ours else root.is_sampled
            known = _Turn(_ms(event, self._now_ms), is_sampled)
            _remember(self._turns, turn_id, known)
        if isinstance(event.body, TurnStarted):
            known.links = self._links(event.body)

    def _links(self, begun: TurnStarted) -> Sequence[TraceParent]:
        admitted = (self._inputs.get(each) for each in begun.admits[:TRACE_LINKS_MAX])
        return [each for each in admitted if each is not None]

    def _tell_turn(self, service: str, event: Event, body: TurnFinished, seq: Seq | None) -> None:
        assert event.turn_id is not None
        turn = self._turns[event.turn_id]
        root = turn_root(event.turn_id, is_sampled=turn.is_sampled)
        attributes = thread_attributes(service, event) | {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: "threadlog",
            names.OUTCOME: body.verdict,
            names.STEPS: body.steps,
        }
        if seq is not None:
            attributes[names.SEQ] = seq
        ended_ms = _ms(event, self._now_ms)
        self._spans.add(
            Ended(
                names.INVOKE_AGENT,
                root,
                None,
                turn.began_ms,
                ended_ms,
                attributes,
                is_error=body.verdict == "error",
                links=turn.links,
            )
        )

    def _tell_claim(self, service: str, event: Event, claim: EventId) -> None:
        assert event.turn_id is not None
        ended = ending(event.body)
        root = self._root(event.turn_id)
        ended_ms = _ms(event, self._now_ms)
        opened = self._claims.get(claim)
        known = {} if opened is None else opened.attributes
        attributes = {**thread_attributes(service, event), **known, **ended.attributes}
        self._spans.add(
            Ended(
                ended.operation,
                TraceParent(root.trace_id, span_of(claim), root.is_sampled),
                root,
                ended_ms if opened is None else opened.began_ms,
                ended_ms,
                attributes,
                kind=ended.kind,
                is_error=ended.is_error,
            )
        )


def _remember(table: OrderedDict[K, V], key: K, value: V) -> None:
    table[key] = value
    if len(table) > TRACE_TURNS_MAX:
        table.popitem(last=False)


def _ms(event: Event, now_ms: Callable[[], int]) -> int:
    """When the event says that it happened; now, where a stranger wrote no time."""
    try:
        return round(datetime.fromisoformat(event.occurred_at).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return now_ms()
