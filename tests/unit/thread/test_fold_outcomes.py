"""Rules of what comes of a call: `files`, `late`, `writer`, `first`, and law 5."""

import pytest

from tests.helpers.thread_events import (
    NOBODY,
    bent,
    cancel,
    file_changed,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_closed,
    tool_finished,
    tool_released,
    tool_settled,
    tool_started,
)
from tests.helpers.threads import (
    CALLS,
    CLAIMED,
    DONE,
    RUNNING,
    Move,
    Story,
    keep,
    named,
    void_of,
)
from threadlog.events.tool import Outcome

REFUSED: tuple[Move, ...] = (*CLAIMED, responded(calls=1), requested(0, gate="refused"))
ONE: tuple[Move, ...] = (*CLAIMED, responded(calls=1), requested(0))
ALONE: tuple[Move, ...] = (*ONE, tool_started(0))
CASES: dict[str, tuple[tuple[Move, ...], str | None]] = {
    # file.changed
    "a change": ((*RUNNING, file_changed(0)), None),
    "two changes": ((*RUNNING, file_changed(0), file_changed(0, "b")), None),
    "a change twice": ((*RUNNING, named("f", file_changed(0)), "f"), "repeat"),
    "the second change first": ((*RUNNING, bent(file_changed(0), ordinal=2)), "files_missing"),
    "a change of another worker": ((*RUNNING, bent(file_changed(0), worker="t2")), "not_writer"),
    "a change under another claim": ((*RUNNING, bent(file_changed(0), claim=NOBODY)), "late"),
    "a change with another cause": (
        (*RUNNING, bent(file_changed(0), caused_by=NOBODY)),
        "wrong_cause",
    ),
    "a change of another attempt": ((*RUNNING, bent(file_changed(0), attempt=2)), "late"),
    "a change without a claim": ((*CALLS, file_changed(0)), "late"),
    "a change by no call": ((*CALLS, file_changed(2)), "no_call"),
    "a change after the outcome": (
        (*RUNNING, keep("f", file_changed(0)), tool_finished(0), "f"),
        "late",
    ),
    "a change after the release": (
        (*RUNNING, keep("f", file_changed(0)), tool_released(0), "f"),
        "late",
    ),
    "a change while the turn stops": ((*RUNNING, cancel(), file_changed(0)), None),
    # tool.finished by the writer
    "an outcome": ((*RUNNING, tool_finished(0)), None),
    "an outcome with its change": ((*RUNNING, file_changed(0), tool_finished(0)), None),
    "an outcome whose change is missing": (
        (*RUNNING, bent(tool_finished(0), files=1)),
        "files_missing",
    ),
    "an outcome that forgets a change": (
        (*RUNNING, file_changed(0), bent(tool_finished(0), files=0)),
        "files_missing",
    ),
    "an outcome twice": ((*RUNNING, named("o", tool_finished(0)), "o"), "late"),
    "an outcome without a claim": ((*CALLS, tool_finished(0)), "late"),
    "an outcome that names no claim": ((*RUNNING, bent(tool_finished(0), claim=None)), "late"),
    "an outcome of another claim": ((*RUNNING, bent(tool_finished(0), claim=NOBODY)), "late"),
    "an outcome of another attempt": ((*RUNNING, bent(tool_finished(0), attempt=2)), "late"),
    "an outcome of another worker": ((*RUNNING, bent(tool_finished(0), worker="t2")), "not_writer"),
    "an outcome with another cause": (
        (*RUNNING, bent(tool_finished(0), caused_by=NOBODY)),
        "wrong_cause",
    ),
    "an outcome of no call": ((*CALLS, tool_finished(2)), "no_call"),
    "an outcome in another turn": ((*RUNNING, bent(tool_finished(0), turn_id=NOBODY)), "late"),
    "an outcome without a turn": ((*DONE, tool_finished(0)), "late"),
    "an outcome after the release": (
        (*RUNNING, keep("o", tool_finished(0)), tool_released(0), "o"),
        "late",
    ),
    "an outcome after the settlement": (
        (*RUNNING, keep("o", tool_finished(0)), tool_settled(0), "o"),
        "late",
    ),
    "the first attempt's outcome in the second": (
        (*RUNNING, keep("o", tool_finished(0)), tool_released(0), tool_started(0), "o"),
        "late",
    ),
    "not_started of a call that started": (
        (*RUNNING, tool_finished(0, "not_started")),
        "wrong_outcome",
    ),
    "denied of a call that started": ((*RUNNING, tool_finished(0, "denied")), "wrong_outcome"),
    # by a settlement
    "unknown by a settlement": ((*RUNNING, tool_settled(0)), None),
    "unknown by a settlement, with changes": ((*RUNNING, file_changed(0), tool_settled(0)), None),
    "ok by a settlement": ((*RUNNING, bent(tool_settled(0), outcome="ok")), "wrong_outcome"),
    "a settlement without a claim": ((*CALLS, tool_settled(0)), "late"),
    "a settlement of another claim": ((*RUNNING, bent(tool_settled(0), claim=NOBODY)), "late"),
    # by the planner
    "not_started of a refused call": ((*REFUSED, tool_closed(0)), None),
    "denied of a refused call": ((*REFUSED, tool_closed(0, "denied")), None),
    "not_started in a cancelled turn": ((*ONE, cancel(), tool_closed(0)), None),
    "not_started of a cancelled call": ((*ONE, cancel(0), tool_closed(0)), None),
    "not_started past an interrupt": ((*ONE, message("interrupt"), tool_closed(0)), None),
    "not_started of a call that may start": ((*ONE, tool_closed(0)), "not_stopping"),
    "not_started past a steer": ((*ONE, message("next_step"), tool_closed(0)), "not_stopping"),
    "not_started of a running call": ((*ALONE, cancel(), tool_closed(0)), "claimed"),
    "not_started before the request": (
        (*CLAIMED, responded(calls=1), cancel(), tool_closed(0)),
        "wrong_outcome",
    ),
    "ok by the planner": ((*REFUSED, tool_closed(0, "ok")), "wrong_outcome"),
    "unknown by the planner": ((*REFUSED, tool_closed(0, "unknown")), "wrong_outcome"),
    "not_started twice": ((*CALLS, cancel(), named("o", tool_closed(0)), "o"), "late"),
    "not_started with another cause": (
        (*REFUSED, bent(tool_closed(0), caused_by=NOBODY)),
        "wrong_cause",
    ),
}


@pytest.mark.parametrize(("steps", "void"), CASES.values(), ids=CASES)
def test_an_outcome_is_judged(steps: tuple[Move, ...], void: str | None) -> None:
    assert void_of(*steps) == void


OUTCOMES: tuple[Outcome, ...] = ("ok", "error", "timeout", "cancelled", "unknown")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_of_a_writer_settles_the_call(outcome: Outcome) -> None:
    story = Story().go(*ALONE, tool_finished(0, outcome))
    step = story.step
    assert (step.phase, step.calls[0].outcome, step.calls[0].claim) == ("settled", outcome, None)
    assert step.cause == story.accepted[-1].event_id


def test_rule_files_counts_the_changes_of_one_attempt() -> None:
    story = Story().go(*RUNNING, file_changed(0, "a"), file_changed(0, "b"))
    assert story.call(0).files == 2
    story.go(tool_released(0))
    assert story.call(0).files == 0
    story.go(tool_started(0), file_changed(0, "a"), tool_finished(0))


def test_rule_files_a_lost_change_is_appended_again_and_then_the_outcome_counts() -> None:
    story = Story().go(*RUNNING, keep("a", file_changed(0, "a")))
    outcome = bent(tool_finished(0), files=1)
    assert story.run(keep("o", outcome), "o").void == "files_missing"
    story.go("a", "o")


def test_rule_late_an_outcome_that_overtakes_the_cancels_delivery_counts() -> None:
    """A cancel closes no claim: late means after the claim was closed."""
    for mark in (cancel(), cancel(0), message("interrupt")):
        story = Story().go(*ALONE, keep("o", tool_finished(0, "ok")), mark, "o")
        assert story.call(0).outcome == "ok"


def test_rule_late_an_outcome_after_the_claim_was_closed_is_void() -> None:
    assert void_of(*RUNNING, keep("o", tool_finished(0)), tool_settled(0), "o") == "late"
    assert void_of(*RUNNING, keep("o", tool_finished(0)), tool_released(0), "o") == "late"


def test_rule_writer_the_turn_ends_after_the_outcome_of_the_claimed_call() -> None:
    story = Story().go(*RUNNING, cancel(), tool_closed(1))
    assert story.run(step_finished()).void == "step_open"
    story.go(tool_finished(0, "cancelled"), step_finished())


def test_rule_first_one_outcome_of_many() -> None:
    story = Story().go(
        *RUNNING,
        keep("a", tool_finished(0, "ok")),
        keep("b", tool_finished(0, "error")),
        keep("c", tool_settled(0)),
    )
    assert [story.run(name).void for name in "bacb"] == [None, "late", "late", "late"]
    assert story.call(0).outcome == "error"


def test_the_last_outcome_settles_the_step_whatever_the_order() -> None:
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        story = Story().go(*CLAIMED, responded(calls=3))
        story.go(*(requested(n, gate="refused") for n in range(3)))
        for n in order:
            step = story.step
            assert step.phase == "calls"
            story.go(tool_closed(n))
        step = story.step
        assert (step.phase, step.cause) == ("settled", story.accepted[-1].event_id)


def test_an_outcome_of_an_earlier_step_is_of_no_call() -> None:
    story = Story().go(*ALONE, named("o", tool_finished(0)), step_finished(), step_started())
    assert story.run("o").void == "no_call"
    story.go(responded(calls=1), requested(0), tool_started(0))
    assert story.run("o").void == "no_call"
