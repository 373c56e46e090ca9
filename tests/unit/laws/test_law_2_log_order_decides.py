"""Law 2: conflicts are settled by the fold; the first valid event in log order wins, for ever."""

from itertools import permutations

import pytest

from tests.helpers.thread_events import (
    MODEL,
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
    tool_finished,
    tool_settled,
    tool_started,
    turn_finished,
    turn_started,
)
from tests.helpers.threads import CALLS, CLAIMED, OPEN, RUNNING, SETTLED, Move, Story, keep

START: tuple[Move, ...] = (created(), configured(model=MODEL), message(), message())
CONFLICTS: dict[str, tuple[tuple[Move, ...], tuple[Move, ...]]] = {
    "two claims of a step": (OPEN, (step_started("p1"), step_started("p2"))),
    "two claims of a call": (CALLS, (tool_started(0, "t1"), tool_started(0, "t2"))),
    "two starts of a turn": (
        START,
        (turn_started(), lambda s: turn_started((s.queue[0].message_id,))(s)),
    ),
    "three ends of a request": (CLAIMED, (responded(), attempt_failed(), interrupted())),
    "an outcome and a settlement": (RUNNING, (tool_finished(0), tool_settled(0))),
    "two outcomes": (RUNNING, (tool_finished(0, "ok"), tool_finished(0, "error"))),
    "two requests of a call": (
        (*CLAIMED, responded(calls=1)),
        (requested(0), requested(0, gate="refused")),
    ),
    "a response and a release": (CLAIMED, (responded(), step_released())),
    "two verdicts": ((*SETTLED, step_finished()), (turn_finished(), turn_finished("error"))),
    "two cancels": (OPEN, (cancel(key="a"), cancel(key="b"))),
    "two first messages that mind each other": (
        (created(),),
        (message("reject", key="a"), message("reject", key="b")),
    ),
}


@pytest.mark.parametrize(("before", "rivals"), CONFLICTS.values(), ids=CONFLICTS)
def test_law_2_the_first_valid_event_wins_in_every_order(
    before: tuple[Move, ...], rivals: tuple[Move, ...]
) -> None:
    for order in permutations(range(len(rivals))):
        story = Story().go(*before)
        for n, rival in enumerate(rivals):
            assert callable(rival)
            story.run(keep(str(n), rival))
        voids = [story.run(str(n)).void for n in order]
        assert voids[0] is None
        assert all(void is not None for void in voids[1:])
        winner = story.state
        for n in order:
            assert story.run(str(n)).void is not None, "for ever"
        assert story.state == winner


@pytest.mark.parametrize("time", ["1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "no time"])
def test_law_2_clocks_never_order_anything(time: str) -> None:
    early = bent(step_started("p1"), occurred_at="2020-01-01T00:00:00Z")
    late = bent(step_started("p2"), occurred_at=time)
    story = Story().go(*OPEN, keep("early", early), keep("late", late), "late")
    assert story.run("early").void == "claimed"
