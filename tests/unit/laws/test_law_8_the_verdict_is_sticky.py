"""Law 8: once a step was cut by the token limit, a later clean step does not complete the turn."""

from itertools import product

import pytest

from tests.helpers.thread_events import (
    cancel,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_closed,
    tool_finished,
    tool_started,
    turn_finished,
)
from tests.helpers.threads import OPEN, Move, Story
from threadlog.events.step import StopReason
from threadlog.thread.decide import FinishTurn, decide

STOPS: tuple[StopReason, ...] = ("end", "calls", "length")


def step(stop: StopReason, *, calls: bool) -> tuple[Move, ...]:
    if not calls:
        return (step_started(), responded(stop=stop), step_finished())
    gate = "refused" if stop == "length" else "free"
    ends: tuple[Move, ...] = (tool_started(0), tool_finished(0))
    if stop == "length":
        ends = (tool_closed(0),)
    asked = requested(0, gate=gate)  # type: ignore[arg-type]  # one of two texts
    return (step_started(), responded(1, stop=stop), asked, *ends, step_finished())


@pytest.mark.parametrize("stops", list(product(STOPS, repeat=3)))
def test_law_8_the_verdict_of_three_steps(stops: tuple[StopReason, ...]) -> None:
    story = Story().go(*OPEN)
    for n, stop in enumerate(stops):
        story.go(*step(stop, calls=n < 2))
    expected = "max_tokens" if "length" in stops else "completed"
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.verdict == expected
    if expected == "max_tokens":
        assert story.run(turn_finished("completed")).void == "sticky_verdict"
    story.go(turn_finished(expected))


def test_law_8_steering_does_not_wash_it_off() -> None:
    story = Story().go(*OPEN, *step("length", calls=False), message("next_step"))
    story.go(*step("end", calls=False))
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.verdict == "max_tokens"


def test_law_8_a_cancel_is_a_verdict_of_its_own() -> None:
    story = Story().go(*OPEN, *step("length", calls=False), cancel())
    assert story.run(turn_finished("max_tokens")).void == "wrong_verdict"
    story.go(turn_finished("cancelled"))
