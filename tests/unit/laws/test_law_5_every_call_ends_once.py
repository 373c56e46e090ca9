"""Law 5: every open call ends in exactly one accepted outcome, and no prompt lacks a result."""

from itertools import product
from typing import get_args

import pytest

from tests.helpers.thread_driver import Driver
from tests.helpers.thread_events import (
    cancel,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_closed,
    tool_finished,
    tool_settled,
    tool_started,
    turn_finished,
)
from tests.helpers.threads import CALLS, CLAIMED, RUNNING, Move, Story, keep, void_of
from threadlog.events.step import ModelResponded
from threadlog.events.tool import Outcome, ToolFinished
from threadlog.ids import call_id
from threadlog.thread.messages import ToolMessage
from threadlog.thread.transcript import Transcript

ENDS = {
    "ok": (tool_started(0), tool_finished(0, "ok")),
    "error": (tool_started(0), tool_finished(0, "error")),
    "timeout": (tool_started(0), tool_finished(0, "timeout")),
    "cancelled": (tool_started(0), cancel(0), tool_finished(0, "cancelled")),
    "unknown": (tool_started(0), tool_settled(0)),
    "not_started": (cancel(0), tool_closed(0)),
    "denied": (cancel(0), tool_closed(0, "denied")),
}
ONE: tuple[Move, ...] = (*CLAIMED, responded(calls=1), requested(0))


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_law_5_a_call_ends_once_in_any_of_seven_ways(outcome: str) -> None:
    rivals = {
        "writer": tool_finished(0, "ok"),
        "settlement": tool_settled(0),
        "planner": tool_closed(0),
    }
    story = Story().go(*ONE)
    for move in ENDS[outcome]:
        for name, rival in rivals.items():
            story.run(keep(name, rival))
        story.go(move)
    assert story.call(0).outcome == outcome
    assert [story.run(name).void for name in rivals] == ["late"] * 3
    story.go(step_finished())


@pytest.mark.parametrize("edge", [step_finished(), step_started(), turn_finished()])
@pytest.mark.parametrize("open_calls", [CALLS, RUNNING, (*RUNNING, tool_finished(0))])
def test_law_5_no_step_or_turn_ends_over_an_open_call(
    edge: Move, open_calls: tuple[Move, ...]
) -> None:
    for mark in ((), (cancel(),), (message("interrupt"),), (message("next_step"),)):
        void = void_of(*open_calls, *mark, edge)
        assert void in ("step_open", "claimed", "stopping")


def test_law_5_holds_over_random_lives() -> None:
    for seed in range(100, 140):
        story = Driver(seed).run()
        asked = [
            call_id(event.event_id, n)
            for event in story.accepted
            if isinstance(event.body, ModelResponded)
            for n in range(len(event.body.calls))
        ]
        ended = [e.body.call_id for e in story.accepted if isinstance(e.body, ToolFinished)]
        assert sorted(asked) == sorted(ended)


def test_law_5_a_prompt_has_a_result_for_each_of_its_calls() -> None:
    for first, second in product(ENDS, ENDS):
        story = Story().go(*ONE, *ENDS[first], step_finished())
        if story.turn.cancel is None:
            story.go(step_started(), responded(calls=1), requested(0), *ENDS[second])
        transcript = Transcript()
        for event in story.accepted:
            transcript.add(event)
        found = transcript.messages()
        asked = [call.call_id for m in found for call in getattr(m, "calls", ())]
        assert asked == [m.call_id for m in found if isinstance(m, ToolMessage)]
        assert len(asked) == 2
