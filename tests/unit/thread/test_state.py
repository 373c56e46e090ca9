"""The state's own functions, and its invariants: each one can be broken, and is then named."""

from dataclasses import fields, replace

import pytest

from tests.helpers.thread_events import message
from tests.helpers.threads import CALLS, CLAIMED, OPEN, RUNNING, SETTLED, Story
from threadlog.events.content import COUNT_MAX, MICROS_MAX, Usage
from threadlog.ids import EventId, Seq, WorkerId
from threadlog.limits import INPUT_WINDOW
from threadlog.thread.evolve import evolve
from threadlog.thread.invariants import violations
from threadlog.thread.marks import Inputs
from threadlog.thread.state import (
    Call,
    Claim,
    Step,
    ThreadState,
    Turn,
    add_usage,
    is_stopping,
    steering,
)


def test_nothing_reported_is_not_zero() -> None:
    one = Usage(input=1)
    assert add_usage(None, None) is None
    assert add_usage(one, None) == add_usage(None, one) == one


def test_a_sum_is_by_kind_and_an_unknown_price_makes_an_unknown_price() -> None:
    a = Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5, cost_micros=6)
    b = Usage(input=10, output=20, cache_read=30, cache_write=40, reasoning=50, cost_micros=60)
    assert add_usage(a, b) == Usage(
        input=11, output=22, cache_read=33, cache_write=44, reasoning=55, cost_micros=66
    )
    for x, y in ((a, Usage(input=1)), (Usage(input=1), a)):
        total = add_usage(x, y)
        assert total is not None
        assert total.cost_micros is None


def test_a_sum_names_a_price_list_that_all_of_it_was_billed_by() -> None:
    first, second = Usage(price_version="1"), Usage(price_version="2")
    same, mixed = add_usage(first, first), add_usage(first, second)
    assert same is not None
    assert mixed is not None
    assert (same.price_version, mixed.price_version) == ("1", None)


def test_a_sum_stays_at_the_largest_number_there_is() -> None:
    most = Usage(
        input=COUNT_MAX,
        output=COUNT_MAX,
        cache_read=COUNT_MAX,
        cache_write=COUNT_MAX,
        reasoning=COUNT_MAX,
        cost_micros=MICROS_MAX,
    )
    assert add_usage(most, most) == most


def test_nothing_steers_or_stops_without_a_turn() -> None:
    story = Story()
    assert (steering(story.state), is_stopping(story.state)) == ((), False)


def test_evolve_changes_what_it_names_and_shares_the_rest() -> None:
    state = Story().go(*OPEN).state
    changed = evolve(state, opaque=7)
    assert changed == replace(state, opaque=7)
    assert all(
        getattr(changed, f.name) is getattr(state, f.name)
        for f in fields(ThreadState)
        if f.name != "opaque"
    )
    assert evolve(state) == state


# -- invariants

CLAIM = Claim(EventId("e"), WorkerId("w"), Seq(1))
OTHER = Claim(EventId("f"), WorkerId("x"), Seq(1))


def turn(state: ThreadState) -> Turn:
    assert state.turn is not None
    return state.turn


def with_step(state: ThreadState, step: Step) -> ThreadState:
    return replace(state, turn=replace(turn(state), step=step))


def with_calls(state: ThreadState, *calls: Call) -> ThreadState:
    return with_step(state, replace(turn(state).step, calls=calls))


def both_claimed(state: ThreadState) -> list[Call]:
    pairs = zip(turn(state).step.calls, (CLAIM, OTHER), strict=True)
    return [replace(call, claim=claim) for call, claim in pairs]


def long_window(state: ThreadState) -> ThreadState:
    window = tuple((EventId(str(n)), Seq(0)) for n in range(INPUT_WINDOW + 1))
    return replace(state, inputs=Inputs(window))


def queued_twice(state: ThreadState) -> ThreadState:
    return replace(state, queue=state.queue * 2)


def admitted_and_queued(state: ThreadState) -> ThreadState:
    queued = replace(state.queue[0], message_id=turn(state).admitted[0])
    return replace(state, queue=(queued,))


BASE = Story().go(*OPEN, message()).state
CALLING, RUNS = Story().go(*CALLS).state, Story().go(*RUNNING).state
BROKEN = {
    "window too long": long_window(BASE),
    "input seq ahead of the head": replace(BASE, inputs=Inputs(guard_seq=Seq(BASE.head + 1))),
    "forgotten seq ahead of the head": replace(
        BASE, inputs=Inputs(forgotten_seq=Seq(BASE.head + 2))
    ),
    "message queued twice": queued_twice(BASE),
    "open turn is not the last one": replace(BASE, turns=7),
    "step number does not follow the finished steps": replace(
        BASE, turn=replace(turn(BASE), steps=3)
    ),
    "admitted message still queued": admitted_and_queued(BASE),
    "interrupted by nothing that waits": replace(BASE, turn=replace(turn(BASE), interrupted=True)),
    "claim and phase disagree": with_step(BASE, replace(turn(BASE).step, claim=CLAIM)),
    "begun and phase disagree": with_step(BASE, replace(turn(BASE).step, begun=True)),
    "open calls and phase disagree": with_step(
        CALLING, replace(turn(CALLING).step, phase="settled")
    ),
    "two workers in one workspace": with_calls(RUNS, *both_claimed(RUNS)),
    "claim of a call that cannot run": with_calls(
        RUNS, replace(turn(RUNS).step.calls[0], status="refused"), turn(RUNS).step.calls[1]
    ),
    "calls out of order": with_calls(CALLING, *reversed(turn(CALLING).step.calls)),
}


@pytest.mark.parametrize(("name", "state"), BROKEN.items(), ids=BROKEN)
def test_a_broken_invariant_is_named(name: str, state: ThreadState) -> None:
    assert name in violations(state)


@pytest.mark.parametrize("steps", [(), OPEN, CLAIMED, CALLS, RUNNING, SETTLED])
def test_a_reached_state_breaks_none(steps: tuple[object, ...]) -> None:
    assert violations(Story().go(*steps).state) == ()  # type: ignore[arg-type]  # a list of moves
