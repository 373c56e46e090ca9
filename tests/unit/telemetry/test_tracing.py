"""Spans of events, by the tracer alone: who tells them, once, and with what ids after a restart."""

import pytest

from tests.helpers.samples import one_of_each
from threadlog.events.envelope import Event
from threadlog.events.trace import TraceParent, parse_parent, span_of, turn_root
from threadlog.ids import EventId, Seq, TurnId, WorkerId
from threadlog.limits import TRACE_LINKS_MAX, TRACE_TURNS_MAX
from threadlog.telemetry.spans import Ended
from threadlog.telemetry.tracing import EventTracer

EVENTS = one_of_each()
TURN = EVENTS["turn.started"].turn_id
assert TURN is not None
ROOT = turn_root(TURN, is_sampled=True)
ASKED = TraceParent("a" * 32, "b" * 16, is_sampled=True)
OURS, OTHERS = WorkerId("ours"), WorkerId("others")
NOW_MS = 1_800_000_000_000


class Kept:
    """Implements what a tracer needs of `Spans`."""

    def __init__(self) -> None:
        self.spans: list[Ended] = []

    def add(self, span: Ended) -> None:
        self.spans.append(span)


def tracer(kept: Kept, ratio: float = 1.0) -> EventTracer:
    return EventTracer(kept, lambda: NOW_MS, ratio)


def ours(event_type: str, worker: WorkerId = OURS, **changes: object) -> Event:
    """An event of the turn, written by this worker."""
    event = EVENTS[event_type]
    body = event.body.model_copy(update=changes)
    return event.model_copy(update={"worker": worker, "turn_id": TURN, "body": body})


def hear(one: EventTracer, *events: Event) -> None:
    for n, event in enumerate(events):
        one.heard("planner", OURS, event, Seq(n))


def message(n: int = 0) -> Event:
    name = EventId(f"00000000-0000-4000-8000-{n:012d}")
    return EVENTS["message.received"].model_copy(
        update={"event_id": name, "traceparent": ASKED.text(), "turn_id": None}
    )


def begun(*admitted: Event) -> Event:
    return ours("turn.started", admits=tuple(event.event_id for event in admitted))


def test_F103_a_turn_is_told_once_by_the_worker_that_ended_it() -> None:
    kept, there = Kept(), Kept()
    one, other = tracer(kept), tracer(there)
    events = (message(), begun(message()), ours("turn.finished"))
    hear(one, *events)
    for event in events:
        other.heard("planner", OTHERS, event, Seq(0))
    [span] = kept.spans
    assert (span.name, span.at, span.parent) == ("invoke_agent", ROOT, None)
    assert list(span.links) == [ASKED]
    assert there.spans == []


def test_F103_a_worker_that_takes_over_goes_on_in_the_same_trace() -> None:
    kept = Kept()
    hear(tracer(kept), ours("turn.finished"))
    [span] = kept.spans
    assert (span.at, span.parent, list(span.links)) == (ROOT, None, [])
    assert tracer(kept).trace_of(TURN) == (ROOT.text(), None)


def test_F103_a_claim_is_one_span_named_after_its_event() -> None:
    kept = Kept()
    started = ours("step.started")
    hear(tracer(kept), started, ours("model.responded", claim=started.event_id))
    [span] = kept.spans
    assert span.name == "chat"
    assert span.at == TraceParent(ROOT.trace_id, span_of(started.event_id), is_sampled=True)
    assert span.parent == ROOT


def test_F103_a_claim_of_the_dead_is_told_by_whoever_settled_it() -> None:
    kept = Kept()
    started = ours("tool.started", OTHERS)
    settled = ours("tool.finished", claim=started.event_id, by="settlement", outcome="unknown")
    hear(tracer(kept), started, settled)
    [span] = kept.spans
    assert (span.name, span.is_error) == ("execute_tool", True)
    assert span.attributes["error.type"] == "unknown"


def test_F103_whoever_began_the_turn_decided_whether_it_is_sampled() -> None:
    kept = Kept()
    never, always = tracer(kept, 0.0), tracer(kept, 1.0)
    assert never.trace_of(TURN)[0] == turn_root(ROOT_TURN, is_sampled=False).text()
    said = begun().model_copy(update={"traceparent": never.trace_of(TURN)[0]})
    hear(always, said, ours("turn.finished"))
    assert not kept.spans[-1].at.is_sampled
    hear(never, begun().model_copy(update={"traceparent": ROOT.text()}), ours("turn.finished"))
    assert kept.spans[-1].at.is_sampled


ROOT_TURN: TurnId = TURN


@pytest.mark.parametrize("said", [ASKED.text(), "malformed"])
def test_F103_a_turn_whose_event_names_another_trace_keeps_its_own(said: str) -> None:
    kept = Kept()
    hear(tracer(kept), begun().model_copy(update={"traceparent": said}), ours("turn.finished"))
    assert kept.spans[-1].at == ROOT


def test_F103_a_ratio_keeps_about_so_many_and_all_processes_keep_the_same() -> None:
    one, other = tracer(Kept(), 0.25), tracer(Kept(), 0.25)
    turns = [TurnId(f"turn-{n}") for n in range(4_000)]
    kept = [one.trace_of(turn) for turn in turns]
    assert kept == [other.trace_of(turn) for turn in turns]
    sampled = sum(str(parent).endswith("-01") for parent, _ in kept)
    assert 850 < sampled < 1_150


def test_F103_what_is_remembered_and_linked_is_bounded() -> None:
    kept = Kept()
    one = tracer(kept)
    messages = [message(n) for n in range(TRACE_TURNS_MAX + 100)]
    hear(one, *messages, begun(*messages[-TRACE_LINKS_MAX - 10 :]), ours("turn.finished"))
    assert len(kept.spans[-1].links) == TRACE_LINKS_MAX
    assert len(one._inputs) == TRACE_TURNS_MAX


@pytest.mark.parametrize("when", ["", "yesterday", "9999-99-99", "canary"])
def test_F103_a_time_that_is_none_is_now(when: str) -> None:
    kept = Kept()
    hear(tracer(kept), ours("turn.finished").model_copy(update={"occurred_at": when}))
    assert kept.spans[-1].ended_ms == NOW_MS


@pytest.mark.parametrize(
    ("parents", "states", "is_continued", "state"),
    [
        ([ASKED.text()], ["a=1", "b=2"], True, "a=1,b=2"),
        ([ASKED.text()], ["a=1,a=2"], True, None),
        ([ASKED.text(), ASKED.text()], ["a=1"], False, None),
        (["00-0-0-01"], ["a=1"], False, None),
        ([], ["a=1"], False, None),
    ],
)
def test_F103_a_request_goes_on_in_a_valid_trace_alone(
    parents: list[str], states: list[str], is_continued: bool, state: str | None
) -> None:
    kept = Kept()
    request = tracer(kept).request(parents, states)
    request.ended("/v1/threads", "POST", 503)
    [span] = kept.spans
    assert (span.parent == ASKED) == is_continued == (span.at.trace_id == ASKED.trace_id)
    assert request.trace == (span.at.text(), state)
    assert parse_parent(request.trace[0]) == span.at
    assert span.is_error
