"""What should happen next: a table of states and intents."""

from dataclasses import replace

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
    tool_closed,
    tool_finished,
    tool_released,
    tool_settled,
    tool_started,
    turn_finished,
    turn_started,
    unknown,
)
from tests.helpers.threads import CALLS, CLAIMED, DONE, OPEN, RUNNING, SETTLED, Move, Story
from threadlog.events.content import Usage
from threadlog.events.thread import Limits
from threadlog.events.tool import Effect
from threadlog.thread.decide import (
    ClaimCall,
    ClaimStep,
    CloseCalls,
    FinishStep,
    FinishTurn,
    Intent,
    RequestCalls,
    StartTurn,
    WaitUntil,
    decide,
    open_claims,
)

BEGUN: tuple[Move, ...] = (created(), configured(model=MODEL))
EMPTY_TURN: tuple[Move, ...] = (*OPEN, message(), cancel(), turn_finished())
AT_END: tuple[Move, ...] = (*SETTLED, step_finished())
WAITING: tuple[Move, ...] = (*CLAIMED, attempt_failed(delay_ms=500, due_at_ms=10_000))
BOUND = configured(limits=Limits(steps_max=1))
LOOPING: tuple[Move, ...] = (
    *CLAIMED,
    responded(calls=1),
    requested(0),
    tool_started(0),
    tool_finished(0),
    step_finished(),
)
NOW_MS = 9_700


def brief(intent: Intent) -> str:
    match intent:
        case StartTurn():
            return f"start turn {intent.number} with {len(intent.admits)}"
        case ClaimStep():
            step = intent.step
            return f"claim step {step.number} attempt {step.attempt} with {len(intent.admits)}"
        case RequestCalls():
            numbers = "".join(str(call.ordinal) for call in intent.calls)
            return f"request {numbers}" + (" cut" if intent.truncated else "")
        case CloseCalls():
            numbers = "".join(str(call.ordinal) for call in intent.calls)
            return f"close {numbers}" + (" stopped" if intent.cancelled else " refused")
        case ClaimCall():
            return f"claim call {intent.call.ordinal} attempt {intent.call.attempt}"
        case FinishStep():
            return f"finish step {intent.number} of {intent.attempts}"
        case FinishTurn():
            return f"finish turn {intent.verdict} {intent.cause} of {intent.steps}"
        case WaitUntil():
            return f"wait {intent.wait_ms}"


CASES: dict[str, tuple[tuple[Move, ...], list[str]]] = {
    # between turns
    "nothing waits": (BEGUN, []),
    "a message waits": ((*BEGUN, message()), ["start turn 1 with 1"]),
    "many wait, of all kinds": (
        (*BEGUN, message("reject"), message("interrupt"), message("next_step")),
        ["start turn 1 with 3"],
    ),
    "the next turn": ((*DONE, message()), ["start turn 2 with 1"]),
    "a message behind an empty turn": (EMPTY_TURN, []),
    "and an input behind that": ((*EMPTY_TURN, message()), ["start turn 2 with 2"]),
    # between steps
    "the first step": (OPEN, ["claim step 1 attempt 1 with 0"]),
    "the first step, steered": (
        (*OPEN, message("next_step"), message("next_turn")),
        ["claim step 1 attempt 1 with 1"],
    ),
    "no model": (
        (created(), message(), turn_started()),
        ["finish turn error no_model of 0"],
    ),
    "after calls": (LOOPING, ["claim step 2 attempt 1 with 0"]),
    "the answer": (AT_END, ["finish turn completed None of 1"]),
    "the answer, and a follow-up": (
        (*AT_END, message("next_turn")),
        ["finish turn completed None of 1"],
    ),
    "the answer, steered": ((*AT_END, message("next_step")), ["claim step 2 attempt 1 with 1"]),
    "the answer, cancelled": ((*AT_END, cancel()), ["finish turn cancelled user:test of 1"]),
    "cancelled before its first step": (
        (*OPEN, cancel()),
        ["finish turn cancelled user:test of 0"],
    ),
    "cancelled, an unknown claim released": (
        (*OPEN, cancel(), step_released()),
        ["finish turn cancelled user:test of 0"],
    ),
    "cancelled and steered": (
        (*AT_END, message("interrupt"), cancel()),
        ["finish turn cancelled user:test of 1"],
    ),
    "cut by the token limit": (
        (*CLAIMED, responded(stop="length"), step_finished()),
        ["finish turn max_tokens None of 1"],
    ),
    "refused": (
        (*CLAIMED, responded(stop="refusal"), step_finished()),
        ["finish turn blocked None of 1"],
    ),
    "failed for good": (
        (*CLAIMED, attempt_failed(retryable=False), step_finished()),
        ["finish turn error overloaded of 1"],
    ),
    "failed for good, steered": (
        (*CLAIMED, attempt_failed(retryable=False), step_finished(), message("next_step")),
        ["finish turn error overloaded of 1"],
    ),
    "no more steps": ((*LOOPING, BOUND), ["finish turn budget steps of 1"]),
    "no more steps, after a cut": (
        (
            *CLAIMED,
            responded(calls=1, stop="length"),
            requested(0, gate="refused"),
            tool_closed(0),
            step_finished(),
            BOUND,
        ),
        ["finish turn max_tokens steps of 1"],
    ),
    "no more steps, but the answer is there": (
        (*AT_END, BOUND),
        ["finish turn completed None of 1"],
    ),
    # within a step
    "a request runs": (CLAIMED, []),
    "a request runs, cancelled": ((*CLAIMED, cancel()), []),
    "answered": (SETTLED, ["finish step 1 of 1"]),
    "interrupted": ((*CLAIMED, interrupted()), ["finish step 1 of 1"]),
    "failed": ((*CLAIMED, attempt_failed(retryable=False)), ["finish step 1 of 1"]),
    "released": ((*CLAIMED, step_released()), ["claim step 1 attempt 2 with 0"]),
    "failed, due later": (WAITING, ["wait 300"]),
    "failed, due later, steered": ((*WAITING, message("next_step")), ["wait 300"]),
    "failed, due later, interrupted": (
        (*WAITING, message("interrupt")),
        ["claim step 1 attempt 2 with 1"],
    ),
    "failed, due later, cancelled": ((*WAITING, cancel()), ["finish step 1 of 1"]),
    "failed, due long ago": (
        (*CLAIMED, attempt_failed(delay_ms=500, due_at_ms=1)),
        ["claim step 1 attempt 2 with 0"],
    ),
    "failed, due by a clock ahead": (
        (*CLAIMED, attempt_failed(delay_ms=500, due_at_ms=10**12)),
        ["wait 500"],
    ),
    "failed, though no more steps are left": (
        (*LOOPING, step_started(), attempt_failed(), BOUND),
        ["claim step 2 attempt 2 with 0"],
    ),
    # calls
    "new calls": ((*CLAIMED, responded(calls=2)), ["request 01"]),
    "new calls of a cut response": (
        (*CLAIMED, responded(calls=1, stop="length")),
        ["request 0 cut"],
    ),
    "one requested": (
        (*CLAIMED, responded(calls=2), requested(0)),
        ["request 1", "claim call 0 attempt 1"],
    ),
    "the second requested first": ((*CLAIMED, responded(calls=2), requested(1)), ["request 0"]),
    "unsafe calls, one by one": (CALLS, ["claim call 0 attempt 1"]),
    "the first runs": (RUNNING, []),
    "the first is settled": ((*RUNNING, tool_finished(0)), ["claim call 1 attempt 1"]),
    "the first is unknown": ((*RUNNING, tool_settled(0)), ["claim call 1 attempt 1"]),
    "the first was released": ((*RUNNING, tool_released(0)), ["claim call 0 attempt 2"]),
    "a refused call": (
        (*CLAIMED, responded(calls=2), requested(0, gate="refused"), requested(1)),
        ["close 0 refused", "claim call 1 attempt 1"],
    ),
    "all stopped": ((*CALLS, cancel()), ["close 01 stopped"]),
    "interrupted calls": ((*CALLS, message("interrupt")), ["close 01 stopped"]),
    "stopped while new": ((*CLAIMED, responded(calls=1), cancel()), ["request 0"]),
    "one stopped": ((*CALLS, cancel(0)), ["close 0 stopped"]),
    "the other stopped": ((*CALLS, cancel(1)), ["close 1 stopped", "claim call 0 attempt 1"]),
    "stopped beside one that runs": ((*RUNNING, cancel()), ["close 1 stopped"]),
    "refused in a stopped turn": (
        (*CLAIMED, responded(calls=1), requested(0, gate="refused"), cancel()),
        ["close 0 refused"],
    ),
    "all settled": ((*CALLS, cancel(), tool_closed(0), tool_closed(1)), ["finish step 1 of 1"]),
    "an unknown event in between": ((*BEGUN, message(), unknown()), ["start turn 1 with 1"]),
}


@pytest.mark.parametrize(("steps", "expected"), CASES.values(), ids=CASES)
def test_what_should_happen_next(steps: tuple[Move, ...], expected: list[str]) -> None:
    state = Story().go(*steps).state
    assert [brief(intent) for intent in decide(state, NOW_MS)] == expected
    assert decide(state, NOW_MS) == decide(state, NOW_MS)


def test_a_halted_thread_is_left_alone() -> None:
    for steps in (OPEN, CALLS, SETTLED):
        story = Story().go(*steps)
        assert decide(story.state, 0)
        story.run(unknown(critical=True))
        assert decide(story.state, 0) == ()


@pytest.mark.parametrize(
    ("effects", "running", "expected"),
    [
        (("pure", "pure", "pure"), (), (0, 1, 2)),
        (("pure", "pure", "pure"), (1,), (0, 2)),
        (("pure", "unsafe", "pure"), (), (0,)),
        (("pure", "unsafe", "pure"), (0,), ()),
        (("unsafe", "pure", "pure"), (), (0,)),
        (("unsafe", "pure", "pure"), (0,), ()),
        (("idempotent", "pure"), (), (0,)),
        (("pure", "pure", "idempotent"), (0,), (1,)),
    ],
)
def test_pure_calls_run_together_and_any_other_alone(
    effects: tuple[Effect, ...], running: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    story = Story().go(*CLAIMED, responded(calls=len(effects)))
    story.go(*(requested(n, effect=effect) for n, effect in enumerate(effects)))
    story.go(*(tool_started(n) for n in running))
    claims = [i.call.ordinal for i in decide(story.state, 0) if isinstance(i, ClaimCall)]
    assert tuple(claims) == expected


def test_an_unsafe_call_waits_for_the_one_before_it_to_be_requested() -> None:
    story = Story().go(*CLAIMED, responded(calls=3), requested(0), tool_started(0))
    story.go(tool_finished(0), requested(2))
    assert [brief(i) for i in decide(story.state, 0)] == ["request 1"]


def test_the_end_of_a_step_carries_what_its_attempts_were_billed() -> None:
    one = Usage(input=1)
    story = Story().go(*CLAIMED, attempt_failed(usage=one), step_started(), responded(usage=one))
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishStep)
    assert (intent.attempts, intent.usage) == (2, Usage(input=2))
    assert intent.caused_by == story.accepted[-1].event_id


def test_intents_name_the_cause_that_the_fold_asks_for() -> None:
    cancelled = Story().go(*AT_END, cancel())
    [intent] = decide(cancelled.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.caused_by == cancelled.accepted[-1].event_id
    cancelled.go(bent(turn_finished(), caused_by=intent.caused_by))
    answered = Story().go(*AT_END)
    [intent] = decide(answered.state, 0)
    assert isinstance(intent, FinishTurn)
    answered.go(bent(turn_finished(), caused_by=intent.caused_by))


def test_a_request_of_calls_says_where_their_content_is() -> None:
    story = Story().go(*CLAIMED, responded(calls=2))
    [intent] = decide(story.state, 0)
    assert isinstance(intent, RequestCalls)
    assert intent.responded == story.accepted[-1].event_id
    assert intent.responded_seq == story.state.head


def test_open_claims_are_the_steps_or_those_of_its_calls() -> None:
    assert open_claims(Story().go(*BEGUN).state) == ()
    assert open_claims(Story().go(*OPEN).state) == ()
    claimed = Story().go(*CLAIMED)
    assert open_claims(claimed.state) == ((claimed.step.claim, None),)
    running = Story().go(*RUNNING)
    assert open_claims(running.state) == ((running.call(0).claim, running.call(0)),)
    assert open_claims(running.go(tool_finished(0)).state) == ()


def test_a_long_actor_is_cut_to_what_a_cause_holds() -> None:
    story = Story().go(*OPEN, bent(cancel(), actor="x" * 256))
    [intent] = decide(story.state, 0)
    assert isinstance(intent, FinishTurn)
    assert intent.cause == "x" * 200


def test_a_cancel_that_no_user_asked_for_says_why_and_by_whom() -> None:
    story = Story().go(*OPEN, bent(cancel(), actor="service:planner"))
    policy = story.state
    assert policy.turn is not None
    assert policy.turn.cancel is not None
    turn = replace(policy.turn, cancel=replace(policy.turn.cancel, cause="deadline"))
    [intent] = decide(replace(policy, turn=turn), 0)
    assert isinstance(intent, FinishTurn)
    assert intent.cause == "deadline:service:planner"
