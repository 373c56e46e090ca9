"""Features whose subject is the pure core."""

import pytest

from tests.helpers.events import thread_id
from tests.helpers.thread_checks import ROOTS
from tests.helpers.thread_driver import Driver
from tests.helpers.thread_events import (
    MODEL,
    NOBODY,
    attempt_failed,
    bent,
    cancel,
    configured,
    created,
    file_changed,
    interrupted,
    message,
    requested,
    responded,
    step_finished,
    step_released,
    step_started,
    tool_closed,
    tool_finished,
    tool_released,
    tool_settled,
    tool_started,
    turn_finished,
    turn_started,
    unknown,
)
from tests.helpers.threads import CLAIMED, DONE, OPEN, Move, Story, keep, void_of
from threadlog.events.catalog import CATALOG
from threadlog.events.content import ModelRef, Usage
from threadlog.events.envelope import Event, Opaque
from threadlog.events.step import StepFinished
from threadlog.events.thread import Limits
from threadlog.ids import EventId
from threadlog.thread import fold as fold_module
from threadlog.thread.decide import ClaimStep, FinishTurn, decide
from threadlog.thread.fold import judge
from threadlog.thread.state import ThreadState, add_usage

EVERYTHING: tuple[Move, ...] = (
    *(*CLAIMED, attempt_failed(), step_started(), step_released(), step_started(), responded(3)),
    *(requested(0), requested(1, effect="pure"), requested(2, gate="refused")),
    *(tool_started(0), file_changed(0, "a"), file_changed(0, "b"), tool_finished(0)),
    *(tool_started(1), tool_released(1), tool_started(1), tool_settled(1), tool_closed(2)),
    *(step_finished(), message("interrupt"), step_started(), interrupted(), step_finished()),
    *(cancel(), turn_finished(), message(), turn_started(), step_started(), responded()),
    *(step_finished(), turn_finished()),
)


def ancestors(event: Event, by_id: dict[EventId, Event]) -> list[Event]:
    found = [event]
    while (cause := found[-1].caused_by) is not None:
        found.append(by_id[cause])
    return found


# -- F05


def test_F05_every_accepted_event_names_an_accepted_cause() -> None:
    for story in (Story().go(*EVERYTHING), *(Driver(seed).run() for seed in range(20))):
        seen: set[EventId] = set()
        for event in story.accepted:
            is_root = isinstance(event.body, (*ROOTS, Opaque))
            assert (event.caused_by is None) == is_root, event
            assert event.caused_by is None or event.caused_by in seen, event
            seen.add(event.event_id)


@pytest.mark.parametrize("cause", [None, NOBODY], ids=["no cause", "a cause that is not there"])
def test_F05_no_event_is_accepted_without_its_cause(cause: EventId | None) -> None:
    """Whatever the event and the state: with another cause than the state asks for it is void."""
    story = Story()
    for move in EVERYTHING:
        assert callable(move)
        event = bent(move, caused_by=cause)(story.state)
        if not isinstance(event.body, ROOTS):
            assert judge(story.state, event).void in ("wrong_cause", "late"), event
        story.go(move)


def test_F05_ancestors_of_a_file_reach_the_users_message_over_call_step_and_turn() -> None:
    story = Story().go(*EVERYTHING)
    by_id = {event.event_id: event for event in story.accepted}
    changed = [event for event in story.accepted if event.type == "file.changed"]
    assert len(changed) == 2
    for event in changed:
        assert [a.type for a in ancestors(event, by_id)] == [
            *("file.changed", "tool.started", "tool.requested", "model.responded"),
            *("step.started", "step.released", "step.started", "model.attempt_failed"),
            *("step.started", "turn.started", "message.received"),
        ]


def test_F05_every_accepted_event_reaches_a_root() -> None:
    story = Story().go(*EVERYTHING)
    by_id = {event.event_id: event for event in story.accepted}
    roots = {ancestors(event, by_id)[-1].type for event in story.accepted}
    assert roots == {"thread.created", "thread.configured", "message.received", "cancel.requested"}


# -- F09


def test_F09_an_unknown_type_takes_a_seq_is_counted_and_decides_nothing() -> None:
    plain, mixed = Story(), Story()
    plain.go(*DONE)
    for move in DONE:
        mixed.go(move)
        before = mixed.state
        mixed.go(unknown("note.added", version=4))
        assert mixed.state.head == before.head + 1
        assert mixed.state.opaque == before.opaque + 1
        assert mixed.state.turn == before.turn
    assert mixed.state.opaque == len(DONE)
    assert mixed.state.head == 2 * len(DONE) - 1
    assert mixed.state.verdict == plain.state.verdict


def test_F09_an_old_and_a_new_reader_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one does not know a type that the new one folds, if that type is not critical."""
    story = Story().go(*OPEN, unknown("note.added"), step_started(), responded())
    new = [(e.judgement.seq, e.judgement.void) for e in story.entries]
    monkeypatch.setattr(fold_module, "_RULES", dict(fold_module._RULES))
    monkeypatch.delitem(CATALOG, ("note.added", 1), raising=False)
    state = Story().state
    old = []
    for entry in story.entries:
        judgement = judge(state, entry.event)
        state = judgement.state
        old.append((judgement.seq, judgement.void))
    assert old == new


def test_F09_a_critical_unknown_type_stops_that_thread_alone() -> None:
    stopped, other = Story(thread_id(1)), Story(thread_id(2))
    for move in OPEN:
        stopped.go(move)
        other.go(move)
    stopped.run(unknown("turn.merged", critical=True))
    assert stopped.state.halted is not None
    assert decide(stopped.state, 0) == ()
    assert stopped.run(step_started()).void == "halted"
    other.go(step_started(), responded(), step_finished(), turn_finished())


# -- F12, F13


def test_F12_a_turn_opens_durably_and_admits_its_input_in_one_event() -> None:
    story = Story().go(created(), configured(model=MODEL), message(), message())
    waiting = {q.message_id for q in story.state.queue}
    story.go(turn_started())
    assert story.accepted[-1].type == "turn.started"
    assert set(story.turn.admitted) == waiting
    assert story.state.queue == ()


def test_F12_a_turn_may_have_zero_steps() -> None:
    story = Story().go(*OPEN, cancel(), turn_finished())
    assert story.state.verdict == "cancelled"
    assert story.state.totals.steps == 0


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ((step_started(), responded(), step_finished()), "completed"),
        ((cancel(),), "cancelled"),
        ((step_started(), responded(stop="refusal"), step_finished()), "blocked"),
        (
            (
                configured(limits=Limits(steps_max=1)),
                *(step_started(), responded(1), requested(0, gate="refused"), tool_closed(0)),
                step_finished(),
            ),
            "budget",
        ),
        ((step_started(), responded(stop="length"), step_finished()), "max_tokens"),
        ((step_started(), attempt_failed(retryable=False), step_finished()), "error"),
    ],
)
def test_F12_a_turn_closes_with_exactly_one_verdict(steps: tuple[Move, ...], verdict: str) -> None:
    story = Story().go(*OPEN, *steps)
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.verdict == verdict
    end = bent(turn_finished(intent.verdict), caused_by=intent.caused_by)
    story.go(keep("other", turn_finished("error")), keep("end", end), "end")
    assert story.run("end").void == "no_turn"
    assert story.run("other").void == "no_turn"
    assert story.state.verdict == verdict


def test_F12_a_cancelled_turn_says_by_whom() -> None:
    story = Story().go(*OPEN, bent(cancel(), actor="user:ann"))
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.cause == "user:ann"


def test_F13_after_one_cut_step_later_clean_ones_do_not_complete_the_turn() -> None:
    story = Story().go(*CLAIMED, responded(1, stop="length"), requested(0, gate="refused"))
    story.go(tool_closed(0), step_finished())
    for _ in range(3):
        story.go(step_started(), responded(1), requested(0), tool_started(0), tool_finished(0))
        story.go(step_finished())
    story.go(step_started(), responded(), step_finished())
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.verdict == "max_tokens"
    assert story.run(turn_finished("completed")).void == "sticky_verdict"
    story.go(turn_finished("max_tokens"))


def test_F13_the_next_turn_starts_clean() -> None:
    story = Story().go(*CLAIMED, responded(stop="length"), step_finished(), turn_finished())
    story.go(message(), turn_started(), step_started(), responded(), step_finished())
    story.go(turn_finished("completed"))


# -- F18


def billed(n: int) -> Usage:
    """A bill of which every kind can be told from every other bill's."""
    one = 10**n
    return Usage(
        input=one, output=2 * one, cache_read=3 * one, cache_write=4 * one, reasoning=5 * one,
        cost_micros=6 * one, price_version="1",
    )  # fmt: skip


BILLS = ("model.responded", "model.attempt_failed", "model.interrupted")


def test_F18_totals_of_step_turn_and_thread_are_folds_attempts_included() -> None:
    story = Story().go(*CLAIMED, attempt_failed(usage=billed(0)))
    story.go(step_started(), step_released(), step_started(), attempt_failed(usage=billed(1)))
    story.go(step_started(), responded(1, usage=billed(2)), requested(0), tool_started(0))
    assert story.step.usage == sum_of(0, 1, 2)
    story.go(tool_finished(0), step_finished(), step_started(), message("interrupt"))
    story.go(interrupted(usage=billed(3)), step_finished())
    assert story.turn.usage == sum_of(0, 1, 2, 3)
    story.go(step_started(), attempt_failed(retryable=False, usage=billed(4)), step_finished())
    story.go(turn_finished(), message(), turn_started(), step_started())
    story.go(responded(usage=billed(5)), step_finished())
    assert story.turn.usage == billed(5)
    assert story.state.totals.usage == sum_of(0, 1, 2, 3, 4, 5)
    assert story.state.totals.steps == 4


def sum_of(*bills: int) -> Usage | None:
    total: Usage | None = None
    for n in bills:
        total = add_usage(total, billed(n))
    return total


def test_F18_no_step_is_counted_twice() -> None:
    """Each billed event once, whatever copies, races and deaths there were."""
    for seed in range(40):
        story = Driver(seed).run()
        total: Usage | None = None
        for event in story.accepted:
            if event.type in BILLS:
                total = add_usage(total, getattr(event.body, "usage", None))
        finished = [e.body for e in story.accepted if isinstance(e.body, StepFinished)]
        of_steps: Usage | None = None
        for body in finished:
            of_steps = add_usage(of_steps, body.usage)
        assert story.state.totals.usage == total == of_steps
        assert story.state.totals.steps == len(finished)


def test_F18_a_copy_of_a_bill_is_void() -> None:
    story = Story().go(*CLAIMED, keep("r", responded(usage=billed(0))), "r")
    assert story.run("r").void == "late"
    assert story.step.usage == billed(0)


# -- F19

LARGE = ModelRef(provider="scripted", name="large")


def test_F19_settings_change_by_event_and_take_effect_at_the_next_step() -> None:
    story = Story().go(*CLAIMED)
    change = configured(
        model=LARGE, system_prompt="brief", tools=(), limits=Limits(output_tokens_max=5)
    )
    story.go(change, responded(1), requested(0, gate="refused"), tool_closed(0), step_finished())
    [intent] = decide(story.state, 0)
    assert isinstance(intent, ClaimStep)
    config = story.state.config
    assert (config.model, config.tools, config.output_tokens_max) == (LARGE, (), 5)
    assert config.system_seq == 5
    story.go(step_started())
    assert getattr(story.accepted[-1].body, "model", None) == LARGE
    asked = [e.body for e in story.accepted if e.type == "step.started"]
    assert [getattr(body, "model", None) for body in asked] == [MODEL, LARGE]


def test_F19_a_step_claimed_before_a_change_that_it_does_not_know_is_void() -> None:
    steps: tuple[Move, ...] = (*OPEN, keep("old", step_started()), configured(model=LARGE))
    assert void_of(*steps, "old") == "input_since"
    assert void_of(*steps, step_started()) is None


def test_F19_a_running_step_is_not_disturbed_by_a_change() -> None:
    state: ThreadState = Story().go(*CLAIMED, configured(model=LARGE), responded()).state
    assert state.turn is not None
    assert state.turn.step.phase == "settled"
