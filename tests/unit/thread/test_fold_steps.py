"""Rules of steps: `occ`, `atresp`, `release`, `burn`, `first`, `late`."""

import pytest

from tests.helpers.events import event_id
from tests.helpers.thread_events import (
    NOBODY,
    attempt_failed,
    bent,
    cancel,
    configured,
    interrupted,
    message,
    requested,
    responded,
    step_finished,
    step_released,
    step_started,
    tool_started,
    turn_finished,
    turn_of,
)
from tests.helpers.threads import (
    CALLS,
    CLAIMED,
    DONE,
    OPEN,
    SETTLED,
    Move,
    Story,
    keep,
    named,
    void_of,
)
from threadlog.events.content import Usage
from threadlog.ids import call_id
from threadlog.limits import DEATHS_MAX
from threadlog.thread.state import Step

RETRY: tuple[Move, ...] = (*CLAIMED, attempt_failed())
NAMED: tuple[Move, ...] = (*OPEN, named("c", step_started()))
CASES: dict[str, tuple[tuple[Move, ...], str | None]] = {
    # step.started
    "a claim": ((*OPEN, step_started()), None),
    "the next attempt's": ((*RETRY, step_started("p2")), None),
    "the next step's": ((*SETTLED, step_finished(), step_started()), None),
    "without a turn": ((*DONE, step_started()), "no_turn"),
    "of another turn": ((*OPEN, bent(step_started(), turn_id=NOBODY)), "wrong_turn"),
    "of the step after this": ((*OPEN, bent(step_started(), number=2)), "wrong_step"),
    "of an attempt to come": ((*OPEN, bent(step_started(), attempt=2)), "wrong_attempt"),
    "of an attempt that is over": ((*RETRY, bent(step_started(), attempt=1)), "wrong_attempt"),
    "of a claimed step": ((*CLAIMED, step_started("p2")), "claimed"),
    "of a step with open calls": ((*CALLS, step_started()), "claimed"),
    "of a step that is settled": ((*SETTLED, step_started()), "claimed"),
    "of a step that failed for good": (
        (*CLAIMED, attempt_failed(retryable=False), step_started()),
        "claimed",
    ),
    "in a cancelled turn": ((*OPEN, cancel(), step_started()), "stopping"),
    "without a worker": ((*OPEN, bent(step_started(), worker=None)), "no_worker"),
    "caused by something else": ((*OPEN, bent(step_started(), caused_by=NOBODY)), "wrong_cause"),
    "caused by the turn, in its second step": (
        (
            *NAMED,
            responded(),
            step_finished(),
            lambda s: bent(step_started(), caused_by=turn_of(s).turn_id)(s),
        ),
        "wrong_cause",
    ),
    "decided before a steer": (
        (*OPEN, keep("c", step_started()), message("next_step"), "c"),
        "input_since",
    ),
    "admitting what does not wait": (
        (*OPEN, bent(step_started(), admits=(event_id("x"),))),
        "not_in_queue",
    ),
    "admitting a follow-up": (
        (*OPEN, message(), lambda s: bent(step_started(), admits=(s.queue[0].message_id,))(s)),
        "not_in_queue",
    ),
    "admitting one message twice": (
        (
            *OPEN,
            message("next_step"),
            lambda s: bent(step_started(), admits=(s.queue[0].message_id,) * 2)(s),
        ),
        "not_in_queue",
    ),
    "the same claim again": ((*NAMED, "c"), "claimed"),
    "the same claim again, released": ((*NAMED, step_released(), "c"), "wrong_attempt"),
    # what closes a claim
    "a response": ((*CLAIMED, responded()), None),
    "a response of another worker": ((*CLAIMED, bent(responded(), worker="p2")), "not_writer"),
    "a response to another claim": ((*CLAIMED, bent(responded(), claim=NOBODY)), "late"),
    "a response of another attempt": ((*CLAIMED, bent(responded(), attempt=2)), "late"),
    "a response of another turn": ((*CLAIMED, bent(responded(), turn_id=NOBODY)), "late"),
    "a response with another cause": (
        (*CLAIMED, bent(responded(), caused_by=NOBODY)),
        "wrong_cause",
    ),
    "a response without a claim": ((*OPEN, responded()), "late"),
    "a second response": ((*CLAIMED, named("r", responded()), "r"), "late"),
    "a response after its turn": (
        (*CLAIMED, named("r", responded()), step_finished(), turn_finished(), "r"),
        "late",
    ),
    "a response after a release": (
        (*CLAIMED, keep("r", responded()), step_released(), "r"),
        "late",
    ),
    "a response to the first of two claims": (
        (*CLAIMED, keep("r", responded()), step_released(), step_started(), "r"),
        "late",
    ),
    "a failure": ((*CLAIMED, attempt_failed()), None),
    "a failure of another worker": ((*CLAIMED, bent(attempt_failed(), worker="p2")), "not_writer"),
    "a failure without a claim": ((*OPEN, attempt_failed()), "late"),
    "an interruption": ((*CLAIMED, interrupted()), None),
    "an interruption without a claim": ((*OPEN, interrupted()), "late"),
    # step.released
    "a release": ((*CLAIMED, step_released()), None),
    "a release by its writer before it knew the claim's fate": (
        (*NAMED, lambda s: bent(step_released(), caused_by=turn_of(s).step.cause)(s)),
        None,
    ),
    "a release of another worker": ((*CLAIMED, step_released(worker="p2")), "not_writer"),
    "a settlement by another worker": ((*CLAIMED, step_released(settles=True, worker="p2")), None),
    "a release of another claim": ((*CLAIMED, bent(step_released(), claim=NOBODY)), "late"),
    "a release twice": ((*CLAIMED, named("r", step_released()), "r"), "late"),
    "a release without a turn": ((*DONE, step_released()), "no_turn"),
    "a release in another turn": (
        (*CLAIMED, bent(step_released(), turn_id=NOBODY)),
        "wrong_turn",
    ),
    "a release in another step": ((*CLAIMED, bent(step_released(), number=2)), "wrong_step"),
    "a release with another cause": (
        (*CLAIMED, bent(step_released(), caused_by=NOBODY)),
        "wrong_cause",
    ),
    "a release of a claim that never arrived": ((*OPEN, step_released()), None),
    "that in a retry": ((*RETRY, step_released()), None),
    "that in a cancelled turn": ((*OPEN, cancel(), step_released()), None),
    "that twice": ((*OPEN, named("r", step_released()), "r"), "late"),
    "that as a settlement": ((*OPEN, step_released(settles=True)), "no_claim"),
    "that by nobody": ((*OPEN, bent(step_released(), worker=None)), "no_worker"),
    "that with another cause": ((*OPEN, bent(step_released(), caused_by=NOBODY)), "wrong_cause"),
    "that once the step is settled": ((*SETTLED, step_released()), "no_claim"),
    "that while calls are open": ((*CALLS, step_released()), "no_claim"),
}


@pytest.mark.parametrize(("steps", "void"), CASES.values(), ids=CASES)
def test_a_step_is_judged(steps: tuple[Move, ...], void: str | None) -> None:
    assert void_of(*steps) == void


def step_of(*steps: Move) -> Step:
    turn = Story().go(*steps).state.turn
    assert turn is not None
    return turn.step


@pytest.mark.parametrize(
    ("since", "void"),
    [
        (message("next_step"), "input_since"),
        (message("interrupt"), "input_since"),
        (configured(system_prompt="brief"), "input_since"),
        (message("next_turn"), None),
    ],
    ids=["steer", "interrupt", "settings", "follow-up"],
)
def test_rule_occ_a_claim_decided_before_an_input_is_void(since: Move, void: str | None) -> None:
    assert void_of(*OPEN, keep("c", step_started()), since, "c") == void


def test_rule_occ_a_claim_decided_before_a_cancel_is_void() -> None:
    """The cancel stops it first; that it is old news, too, shows where the cancel was of a call."""
    assert void_of(*OPEN, keep("c", step_started()), cancel(), "c") == "stopping"
    story = Story().go(*CLAIMED, responded(calls=1), cancel(0))
    assert story.state.inputs.guard_seq == story.state.head


def test_rule_occ_counts_from_the_seq_of_the_input_itself() -> None:
    story = Story().go(*OPEN, message("next_step"))
    head = story.state.head
    assert story.run(step_started(decided_at=head - 1)).void == "input_since"
    story.go(step_started(decided_at=head))


def test_rule_occ_a_void_reject_is_no_news() -> None:
    story = Story().go(*OPEN)
    story.run(keep("c", step_started()), message("reject"))
    assert story.run("c").void is None


def test_a_claim_admits_steering_and_a_later_attempt_keeps_it() -> None:
    story = Story().go(*OPEN, message("next_step"), message("next_turn"))
    steer, follow_up = (q.message_id for q in story.state.queue)
    story.go(step_started(), step_released(), message("next_step"))
    late = story.state.queue[-1].message_id
    story.go(step_started())
    turn = story.turn
    assert turn.step.admitted == (steer, late)
    assert tuple(q.message_id for q in story.state.queue) == (follow_up,)


def test_a_claim_that_admits_the_interrupt_runs_and_one_that_leaves_it_must_stop() -> None:
    steps: tuple[Move, ...] = (*CLAIMED, message("interrupt"), interrupted(), step_finished())
    assert Story().go(*steps).turn.interrupted
    assert not Story().go(*steps, step_started()).turn.interrupted
    assert Story().go(*steps, bent(step_started(), admits=())).turn.interrupted


def test_rule_atresp_a_response_opens_its_calls_at_once() -> None:
    story = Story().go(*CLAIMED, responded(calls=3))
    event = story.accepted[-1]
    step = story.step
    assert [c.call_id for c in step.calls] == [call_id(event.event_id, n) for n in range(3)]
    assert all(c.status == "new" and c.outcome is None for c in step.calls)
    assert (step.phase, step.claim, step.responded) == ("calls", None, event.event_id)
    for move in (step_finished(), step_started(), turn_finished()):
        assert void_of(*CLAIMED, responded(calls=3), move) in ("step_open", "claimed")


def test_rule_atresp_no_call_starts_before_it_was_requested() -> None:
    assert void_of(*CLAIMED, responded(calls=1), tool_started(0)) == "not_ready"
    assert void_of(*CLAIMED, responded(calls=1), requested(0), tool_started(0)) is None


def test_a_response_without_calls_settles_the_step() -> None:
    assert step_of(*CLAIMED, responded()).phase == "settled"
    assert step_of(*CLAIMED, interrupted()).phase == "settled"


def test_rule_release_opens_the_next_attempt() -> None:
    step = step_of(*CLAIMED, step_released())
    assert (step.phase, step.attempt, step.claim, step.begun) == ("retry", 2, None, True)
    assert step.failures == step.deaths == 0


def test_rule_burn_opens_the_next_attempt_so_that_the_lost_claim_stays_void() -> None:
    story = Story().go(*OPEN, keep("lost", step_started()), step_released(worker="p1"))
    step = story.step
    assert (step.phase, step.attempt, step.begun) == ("open", 2, False)
    assert story.run("lost").void == "wrong_attempt"
    story.go(step_started("p2"))


def test_rule_first_of_two_claims_the_first_counts() -> None:
    story = Story().go(*OPEN, keep("a", step_started("p1")), keep("b", step_started("p2")))
    assert story.run("b").void is None
    assert story.run("a").void == "claimed"
    assert story.run(responded()).void is None


def test_rule_first_one_outcome_closes_an_attempt() -> None:
    story = Story().go(*CLAIMED, keep("r", responded()), keep("f", attempt_failed()))
    assert story.run("f").void is None
    assert story.run("r").void == "late"


def test_rule_late_a_response_that_overtakes_the_cancel_counts() -> None:
    story = Story().go(*CLAIMED, cancel(), responded(calls=1))
    assert story.step.phase == "calls"


def test_a_failed_attempt_waits_and_a_permanent_one_does_not() -> None:
    step = step_of(*CLAIMED, attempt_failed(delay_ms=500, due_at_ms=9_000))
    assert (step.phase, step.attempt, step.failures) == ("retry", 2, 1)
    assert (step.delay_ms, step.due_at_ms, step.error) == (500, 9_000, "overloaded")
    failed = step_of(*CLAIMED, attempt_failed(retryable=False))
    assert (failed.phase, failed.attempt, failed.failures) == ("failed", 1, 1)


def test_a_release_forgets_when_the_attempt_before_it_was_due() -> None:
    steps = (attempt_failed(delay_ms=500, due_at_ms=9_000), step_started(), step_released())
    step = step_of(*CLAIMED, *steps)
    assert (step.delay_ms, step.due_at_ms, step.attempt, step.failures) == (0, 0, 3, 1)


def test_a_step_that_dies_too_often_fails() -> None:
    story = Story().go(*OPEN)
    for n in range(1, DEATHS_MAX + 1):
        story.go(step_started(), step_released(settles=True))
        assert story.step.deaths == n
        assert story.step.phase == ("failed" if n == DEATHS_MAX else "retry")
    assert (story.step.attempt, story.step.error) == (DEATHS_MAX, "internal")


def test_usage_sums_over_the_attempts_of_a_step() -> None:
    one = Usage(input=1, output=2)
    step = step_of(
        *CLAIMED,
        attempt_failed(usage=one),
        step_started(),
        step_released(),
        step_started(),
        responded(usage=one),
    )
    assert step.usage == Usage(input=2, output=4)
    assert step_of(*CLAIMED, interrupted(usage=one)).usage == one
    assert step_of(*CLAIMED, attempt_failed(retryable=False, usage=one)).usage == one
