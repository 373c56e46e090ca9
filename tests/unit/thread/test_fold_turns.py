"""Rules `turn` and `verdict`, the edges between steps, and law 8."""

import pytest

from tests.helpers.events import event_id
from tests.helpers.thread_events import (
    MODEL,
    NOBODY,
    attempt_failed,
    bent,
    cancel,
    configured,
    created,
    interrupted,
    message,
    requested,
    responded,
    step_finished,
    step_released,
    step_started,
    tool_closed,
    tool_finished,
    tool_started,
    turn_finished,
    turn_started,
)
from tests.helpers.threads import (
    CALLS,
    CLAIMED,
    DONE,
    OPEN,
    RUNNING,
    SETTLED,
    Move,
    Story,
    keep,
    named,
    void_of,
)
from threadlog.events.content import Usage
from threadlog.ids import EventId, turn_id
from threadlog.limits import DEATHS_MAX
from threadlog.thread.state import ThreadState, Totals

QUEUED: tuple[Move, ...] = (created(), configured(model=MODEL), named("m", message()))
AT_END: tuple[Move, ...] = (*SETTLED, step_finished())
EMPTY_TURN: tuple[Move, ...] = (*OPEN, cancel(), turn_finished())
GIVEN_UP: tuple[Move, ...] = (*CLAIMED, step_released(), cancel())
DIED: tuple[Move, ...] = (
    *OPEN,
    *(move for _ in range(DEATHS_MAX) for move in (step_started(), step_released(settles=True))),
)
CUT: tuple[Move, ...] = (*CLAIMED, responded(stop="length"), step_finished())
BLOCKED: tuple[Move, ...] = (*CLAIMED, responded(stop="refusal"), step_finished())
FAILED: tuple[Move, ...] = (*CLAIMED, attempt_failed(retryable=False), step_finished())
CASES: dict[str, tuple[tuple[Move, ...], str | None]] = {
    # turn.started
    "a turn starts": ((*QUEUED, turn_started()), None),
    "inside an open turn": ((*OPEN, message(), turn_started()), "turn_open"),
    "the same turn again": ((*QUEUED, named("t", turn_started()), "t"), "turn_open"),
    "the same turn again, later": (
        (
            *QUEUED,
            named("t", turn_started()),
            step_started(),
            responded(),
            step_finished(),
            turn_finished(),
            message(),
            "t",
        ),
        "wrong_turn",
    ),
    "the turn after the next": ((*QUEUED, bent(turn_started(), number=2)), "wrong_turn"),
    "with the id of another turn": ((*QUEUED, bent(turn_started(), turn_id=NOBODY)), "wrong_id"),
    "with an id of its own": ((*QUEUED, bent(turn_started(), event_id=NOBODY)), "wrong_id"),
    "after an empty turn": ((*EMPTY_TURN, turn_started()), "no_input"),
    "after an empty turn and an input": ((*EMPTY_TURN, message(), turn_started()), None),
    "after an empty turn and settings": (
        (*OPEN, message(), cancel(), turn_finished(), configured(system_prompt=""), turn_started()),
        None,
    ),
    "a queued message does not end an empty turn's rest": (
        (*OPEN, message(), cancel(), turn_finished(), turn_started()),
        "no_input",
    ),
    "of nothing that waits": ((created(), turn_started()), "not_in_queue"),
    "of a message that was admitted": (
        (*DONE, message(), turn_started((event_id("not queued"),))),
        "not_in_queue",
    ),
    "of one message twice": (
        (*QUEUED, lambda s: turn_started((s.queue[0].message_id,) * 2)(s)),
        "not_in_queue",
    ),
    "caused by another message": (
        (*QUEUED, message(), lambda s: bent(turn_started(), caused_by=s.queue[1].message_id)(s)),
        "wrong_cause",
    ),
    # step.finished
    "a step ends": ((*SETTLED, step_finished()), None),
    "a step ends twice": ((*SETTLED, named("f", step_finished()), "f"), "wrong_step"),
    "a step without a turn": ((*DONE, step_finished()), "no_turn"),
    "a step of another turn": ((*SETTLED, bent(step_finished(), turn_id=NOBODY)), "wrong_turn"),
    "the step after this one": ((*SETTLED, bent(step_finished(), number=2)), "wrong_step"),
    "a step that was not claimed": ((*OPEN, step_finished()), "step_open"),
    "a step whose request runs": ((*CLAIMED, step_finished()), "step_open"),
    "a step with open calls": ((*CALLS, step_finished()), "step_open"),
    "a step with one open call": (
        (*RUNNING, tool_finished(0), step_finished()),
        "step_open",
    ),
    "a step that waits for its next attempt": (
        (*CLAIMED, attempt_failed(), step_finished()),
        "step_open",
    ),
    "that one once the turn is cancelled": ((*GIVEN_UP, step_finished()), None),
    "an unclaimed step of a cancelled turn": ((*OPEN, cancel(), step_finished()), "step_open"),
    "a claimed step of a cancelled turn": ((*CLAIMED, cancel(), step_finished()), "step_open"),
    "a step that failed for good": (
        (*CLAIMED, attempt_failed(retryable=False), step_finished()),
        None,
    ),
    "a step that died too often": ((*DIED, step_finished()), None),
    "a step that was interrupted": ((*CLAIMED, interrupted(), step_finished()), None),
    "caused by an earlier outcome": (
        (*SETTLED, bent(step_finished(), caused_by=NOBODY)),
        "wrong_cause",
    ),
    # turn.finished
    "a turn ends": ((*AT_END, turn_finished()), None),
    "a turn ends twice": ((*AT_END, named("f", turn_finished()), "f"), "no_turn"),
    "a turn that never was": ((*OPEN, bent(turn_finished(), turn_id=NOBODY)), "wrong_turn"),
    "in the midst of a request": ((*CLAIMED, turn_finished()), "step_open"),
    "in the midst of a request, cancelled": ((*CLAIMED, cancel(), turn_finished()), "step_open"),
    "with open calls": ((*CALLS, turn_finished()), "step_open"),
    "before its step has ended": ((*SETTLED, turn_finished()), "step_open"),
    "in a retry that was given up": ((*GIVEN_UP, turn_finished()), "step_open"),
    "with another number of steps": ((*AT_END, bent(turn_finished(), steps=0)), "wrong_step"),
    "cancelled, without a cancel": ((*AT_END, turn_finished("cancelled")), "wrong_verdict"),
    "completed, though cancelled": (
        (*AT_END, cancel(), turn_finished("completed")),
        "wrong_verdict",
    ),
    "an error, though cancelled": ((*AT_END, cancel(), turn_finished("error")), "wrong_verdict"),
    "cancelled": ((*AT_END, cancel(), turn_finished()), None),
    "cancelled without a step": ((*OPEN, cancel(), turn_finished()), None),
    "an error without a step": ((*OPEN, turn_finished("error")), None),
    "caused by the cancel": (
        (
            *AT_END,
            cancel(),
            lambda s: bent(turn_finished(), caused_by=_cancel_of(s))(s),
        ),
        None,
    ),
    "caused by nothing": ((*AT_END, bent(turn_finished(), caused_by=None)), "wrong_cause"),
    "caused by nothing, without a step": (
        (*OPEN, bent(turn_finished("error"), caused_by=None)),
        "wrong_cause",
    ),
    "caused by something else": ((*AT_END, bent(turn_finished(), caused_by=NOBODY)), "wrong_cause"),
    "decided before a steer": (
        (*AT_END, keep("f", turn_finished()), message("next_step"), "f"),
        "input_since",
    ),
    "decided before a follow-up": (
        (*AT_END, keep("f", turn_finished()), message("next_turn"), "f"),
        None,
    ),
    # law 8
    "completed after a cut": ((*CUT, turn_finished("completed")), "sticky_verdict"),
    "max_tokens after a cut": ((*CUT, turn_finished("max_tokens")), None),
    "completed after a refusal": ((*BLOCKED, turn_finished("completed")), "sticky_verdict"),
    "completed after a failure": ((*FAILED, turn_finished("completed")), "sticky_verdict"),
    "an error after a failure": ((*FAILED, turn_finished("error")), None),
}


def _cancel_of(state: ThreadState) -> EventId:
    assert state.turn is not None
    assert state.turn.cancel is not None
    return state.turn.cancel.event_id


@pytest.mark.parametrize(("steps", "void"), CASES.values(), ids=CASES)
def test_a_turn_is_judged(steps: tuple[Move, ...], void: str | None) -> None:
    assert void_of(*steps) == void


def test_rule_turn_opens_and_admits_in_one_event() -> None:
    story = Story().go(created(), configured(model=MODEL), message(), message("next_step"))
    waiting = tuple(q.message_id for q in story.state.queue)
    story.go(turn_started())
    turn = story.turn
    assert (turn.admitted, story.state.queue) == (waiting, ())
    assert (turn.number, turn.turn_id) == (1, turn_id(story.state.thread_id, 1))
    assert (turn.step.number, turn.step.phase, turn.steps) == (1, "open", 0)


def test_rule_turn_admits_some_and_leaves_the_rest_in_the_queue() -> None:
    story = Story().go(created(), message(), message(), message())
    first, second, third = (q.message_id for q in story.state.queue)
    story.go(turn_started((second,)))
    assert tuple(q.message_id for q in story.state.queue) == (first, third)


def test_rule_turn_numbers_are_never_given_twice() -> None:
    story = Story()
    for n in (1, 2, 3):
        story.go(*(DONE if n == 1 else (message(), *DONE[3:])))
        assert story.state.turns == n
    opened = [e.turn_id for e in story.accepted if e.type == "turn.started"]
    assert opened == [turn_id(story.state.thread_id, n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "since", [message("next_step"), message("interrupt"), configured(system_prompt="brief")]
)
def test_rule_verdict_an_input_since_it_was_decided_voids_it(since: Move) -> None:
    assert void_of(*AT_END, keep("f", turn_finished()), since, "f") == "input_since"


def test_rule_verdict_a_cancel_since_it_was_decided_voids_it() -> None:
    assert void_of(*AT_END, keep("f", turn_finished()), cancel(), "f") == "input_since"
    assert void_of(*OPEN, keep("f", turn_finished("error")), cancel(), "f") == "input_since"


def test_rule_verdict_counts_from_the_seq_of_the_input_itself() -> None:
    story = Story().go(*AT_END, message("next_step"))
    head = story.state.head
    assert story.run(turn_finished(decided_at=head - 1)).void == "input_since"
    story.go(turn_finished(decided_at=head))


def test_rule_first_a_turn_ends_once() -> None:
    story = Story().go(*AT_END, keep("other", turn_finished("error")), turn_finished())
    assert story.run("other").void == "no_turn"
    assert story.state.verdict == "completed"


def test_a_finished_turn_leaves_its_verdict_and_what_waits() -> None:
    story = Story().go(*AT_END, message("next_turn"), turn_finished())
    state = story.state
    assert (state.turn, state.verdict, state.turns) == (None, "completed", 1)
    assert len(state.queue) == 1
    assert not state.idle_since_empty_turn
    story.go(turn_started())


def test_a_step_ends_with_the_next_one_open() -> None:
    story = Story().go(*CALLS, tool_started(0), tool_finished(0), tool_started(1), tool_finished(1))
    last = story.accepted[-1]
    story.go(step_finished())
    finished = story.accepted[-1]
    assert finished.caused_by == last.event_id, "the last settling event in log order"
    turn = story.turn
    assert (turn.steps, turn.step.number, turn.step.phase) == (1, 2, "open")
    assert turn.step.cause == turn.cause == finished.event_id


def test_a_failed_step_says_why_its_turn_must_end() -> None:
    story = Story().go(*FAILED)
    turn = story.turn
    assert (turn.error, turn.final) == ("overloaded", True)
    died = Story().go(*DIED, step_finished()).state.turn
    assert died is not None
    assert (died.error, died.final) == ("internal", True)


def test_a_later_step_keeps_no_error_of_an_attempt_that_was_made_good() -> None:
    story = Story().go(*CLAIMED, attempt_failed(), step_started(), responded(), step_finished())
    turn = story.turn
    assert turn.error is None
    story.go(turn_finished("completed"))


@pytest.mark.parametrize(
    ("stops", "floor"),
    [
        (("end",), None),
        (("length",), "max_tokens"),
        (("length", "end"), "max_tokens"),
        (("refusal",), "blocked"),
        (("refusal", "end"), "blocked"),
        (("refusal", "length"), "max_tokens"),
        (("length", "refusal"), "max_tokens"),
    ],
)
def test_law_8_the_floor_of_a_verdict_only_rises(stops: tuple[str, ...], floor: str | None) -> None:
    story = Story().go(*OPEN)
    for stop in stops:
        answer = responded(stop=stop)  # type: ignore[arg-type]  # a table holds plain texts
        story.go(step_started(), answer, step_finished(), message("next_step"))
    turn = story.turn
    assert turn.floor == floor


def test_law_8_a_refusal_next_to_calls_is_no_floor() -> None:
    refusing = Story().go(*CLAIMED, responded(calls=1, stop="refusal"))
    cut = Story().go(*CLAIMED, responded(calls=1, stop="length"))
    assert refusing.state.turn is not None
    assert cut.state.turn is not None
    assert refusing.state.turn.floor is None
    assert cut.state.turn.floor == "max_tokens"


def test_totals_move_when_a_step_ends_and_not_before() -> None:
    usage = Usage(input=5, output=7)
    story = Story().go(*CLAIMED, responded(calls=1, usage=usage), requested(0, gate="refused"))
    assert story.state.totals == Totals()
    story.go(tool_closed(0), step_finished())
    assert story.state.totals == Totals(steps=1, usage=usage)
    assert story.turn.usage == usage
