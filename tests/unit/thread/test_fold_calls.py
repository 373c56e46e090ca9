"""Rules of calls up to their start: `gate`, `occ`, `onews`, `writer`, `release`, `burn`."""

import pytest

from tests.helpers.thread_events import (
    NOBODY,
    bent,
    call_of,
    cancel,
    message,
    requested,
    responded,
    step_started,
    tool_closed,
    tool_finished,
    tool_released,
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
from threadlog.limits import DEATHS_MAX

NEW: tuple[Move, ...] = (*CLAIMED, responded(calls=2))
ONE: tuple[Move, ...] = (*CLAIMED, responded(calls=1), requested(0))
PURE: tuple[Move, ...] = (*NEW, requested(0, effect="pure"), requested(1, effect="pure"))
LOST: tuple[Move, ...] = (*ONE, keep("lost", tool_started(0)))
CASES: dict[str, tuple[tuple[Move, ...], str | None]] = {
    # tool.requested
    "a request": ((*NEW, requested(0)), None),
    "in any order": ((*NEW, requested(1), requested(0)), None),
    "refused": ((*NEW, requested(0, gate="refused")), None),
    "while the turn stops": ((*NEW, cancel(), requested(0)), None),
    "twice": ((*NEW, named("q", requested(0)), "q"), "repeat"),
    "twice, otherwise": ((*NEW, requested(0), requested(0, gate="refused")), "repeat"),
    "twice, of a settled call": (
        (*NEW, named("q", requested(0)), tool_started(0), tool_finished(0), "q"),
        "late",
    ),
    "under another number": ((*NEW, bent(requested(0), ordinal=1)), "wrong_id"),
    "of a call that is not": ((*NEW, requested(2)), "no_call"),
    "of a step without calls": ((*CLAIMED, requested(0)), "no_call"),
    "without a turn": ((*DONE, requested(0)), "late"),
    "in another turn": ((*NEW, bent(requested(0), turn_id=NOBODY)), "late"),
    "caused by something else": ((*NEW, bent(requested(0), caused_by=NOBODY)), "wrong_cause"),
    # tool.started
    "a start": ((*CALLS, tool_started(0)), None),
    "a second call of the same worker": ((*PURE, tool_started(0), tool_started(1)), None),
    "without a request": ((*NEW, tool_started(0)), "not_ready"),
    "of a refused call": ((*NEW, requested(0, gate="refused"), tool_started(0)), "not_ready"),
    "of no call": ((*CALLS, tool_started(2)), "no_call"),
    "a start in another turn": ((*CALLS, bent(tool_started(0), turn_id=NOBODY)), "late"),
    "of a settled call": ((*RUNNING, tool_finished(0), tool_started(0)), "late"),
    "of a running call": ((*RUNNING, tool_started(0, "t2")), "claimed"),
    "the same start again": ((*ONE, named("s", tool_started(0)), "s"), "claimed"),
    "the same start again, released": (
        (*ONE, named("s", tool_started(0)), tool_released(0), "s"),
        "wrong_attempt",
    ),
    "of an attempt to come": ((*CALLS, bent(tool_started(0), attempt=2)), "wrong_attempt"),
    "in a cancelled turn": ((*CALLS, cancel(), tool_started(0)), "stopping"),
    "of a cancelled call": ((*CALLS, cancel(0), tool_started(0)), "stopping"),
    "past an interrupt": ((*CALLS, message("interrupt"), tool_started(0)), "stopping"),
    "past a steer": ((*CALLS, message("next_step"), tool_started(0)), None),
    "without a worker": ((*CALLS, bent(tool_started(0), worker=None)), "no_worker"),
    "beside another worker": ((*PURE, tool_started(0), tool_started(1, "t2")), "foreign_claim"),
    "on old news": (
        (*PURE, keep("s", tool_started(1, "t2")), tool_started(0), tool_finished(0), "s"),
        "tool_event_since",
    ),
    "a start caused by something else": (
        (*CALLS, bent(tool_started(0), caused_by=NOBODY)),
        "wrong_cause",
    ),
    # tool.released
    "a release": ((*RUNNING, tool_released(0)), None),
    "a release before its writer knew the claim's fate": (
        (*RUNNING, lambda s: bent(tool_released(0), caused_by=call_of(s, 0).cause)(s)),
        None,
    ),
    "a release of another worker": ((*RUNNING, tool_released(0, worker="t2")), "not_writer"),
    "a release of another claim": ((*RUNNING, bent(tool_released(0), claim=NOBODY)), "late"),
    "a release with another cause": (
        (*RUNNING, bent(tool_released(0), caused_by=NOBODY)),
        "wrong_cause",
    ),
    "a release of another attempt": ((*RUNNING, bent(tool_released(0), attempt=2)), "late"),
    "a release of no call": ((*RUNNING, tool_released(2)), "no_call"),
    "a release twice": ((*RUNNING, named("r", tool_released(0)), "r"), "late"),
    "a release of a settled call": (
        (*RUNNING, keep("r", tool_released(0)), tool_finished(0), "r"),
        "late",
    ),
    "a settlement of a pure call": (
        (*PURE, tool_started(0), tool_released(0, settles=True, worker="t2")),
        None,
    ),
    "a settlement of an unsafe call": (
        (*RUNNING, tool_released(0, settles=True)),
        "not_repeatable",
    ),
    "a release of a claim that never arrived": ((*ONE, tool_released(0)), None),
    "that of a stopped call": ((*ONE, cancel(0), tool_released(0)), None),
    "that twice": ((*ONE, named("r", tool_released(0)), "r"), "late"),
    "that as a settlement": ((*ONE, tool_released(0, settles=True)), "no_claim"),
    "that by nobody": ((*ONE, bent(tool_released(0), worker=None)), "no_worker"),
    "that with another cause": (
        (*ONE, bent(tool_released(0), caused_by=NOBODY)),
        "wrong_cause",
    ),
    "that before the request": ((*NEW, tool_released(0)), "no_claim"),
    "that of a refused call": ((*NEW, requested(0, gate="refused"), tool_released(0)), "no_claim"),
}


@pytest.mark.parametrize(("steps", "void"), CASES.values(), ids=CASES)
def test_a_call_is_judged(steps: tuple[Move, ...], void: str | None) -> None:
    assert void_of(*steps) == void


def test_rule_gate_a_request_carries_the_policys_word() -> None:
    free = Story().go(*NEW, requested(0, effect="idempotent"))
    assert (free.call().status, free.call().effect) == ("requested", "idempotent")
    assert free.call().requested_seq == free.state.head
    refused = Story().go(*NEW, requested(0, gate="refused"))
    assert refused.call().status == "refused"
    assert refused.call().outcome is None, "it ends by an event of its own"
    assert refused.run(tool_started(0)).void == "not_ready"
    refused.go(tool_closed(0))


def test_rule_onews_one_worker_at_a_time_in_a_workspace() -> None:
    story = Story().go(*PURE, tool_started(0, "t1"))
    assert story.run(tool_started(1, "t2")).void == "foreign_claim"
    story.go(tool_finished(0), tool_started(1, "t2"))


def test_rule_onews_holds_after_a_cancel_that_the_writer_has_not_read() -> None:
    story = Story().go(*PURE, tool_started(0, "t1"), cancel(0))
    assert story.run(tool_started(1, "t2")).void == "foreign_claim"


@pytest.mark.parametrize("between", [tool_finished(0), tool_released(0)])
def test_rule_occ_a_call_claimed_on_news_older_than_another_workers_is_void(between: Move) -> None:
    steps = (*PURE, keep("s", tool_started(1, "t2")), tool_started(0), between, "s")
    assert void_of(*steps) == "tool_event_since"


def test_rule_occ_a_workers_own_events_are_no_news_to_it() -> None:
    steps = (*PURE, keep("s", tool_started(1)), tool_started(0), tool_finished(0), "s")
    assert void_of(*steps) is None


def test_rule_occ_news_of_others_is_not_covered_by_a_workers_own() -> None:
    story = Story().go(
        *CLAIMED,
        responded(calls=3),
        *(requested(n, effect="pure") for n in range(3)),
        keep("old", tool_started(2, "t1")),
        tool_started(0, "t2"),
        tool_finished(0),
        tool_started(1, "t1"),
    )
    assert story.run("old").void == "tool_event_since"
    clock = story.state.tool_clock
    assert (clock.worker, clock.seq) == ("t1", story.state.head)
    assert clock.others_seq == story.state.head - 1


def test_rule_occ_counts_from_the_seq_of_the_tool_event_itself() -> None:
    story = Story().go(*PURE, tool_started(0), tool_finished(0))
    head = story.state.head
    assert story.run(tool_started(1, "t2", decided_at=head - 1)).void == "tool_event_since"
    story.go(tool_started(1, "t2", decided_at=head))


def test_rule_occ_a_request_or_a_call_that_never_ran_is_no_news() -> None:
    steps: tuple[Move, ...] = (*NEW, requested(1), keep("s", tool_started(1)))
    assert void_of(*steps, requested(0, gate="refused"), "s") is None
    assert void_of(*steps, requested(0, gate="refused"), tool_closed(0), "s") is None


def test_rule_occ_a_release_of_a_claim_that_never_arrived_is_news_of_its_writer() -> None:
    story = Story().go(*PURE, keep("s", tool_started(1, "t2")), tool_released(0, worker="t1"))
    assert story.state.tool_clock.worker == "t1"
    assert story.run("s").void == "tool_event_since"


def test_rule_occ_a_settlement_is_news_of_the_worker_that_is_gone() -> None:
    story = Story().go(*PURE, tool_started(0, "t1"))
    story.go(tool_released(0, settles=True, worker="t2"))
    assert story.state.tool_clock.worker == "t1"


def test_rule_release_opens_the_next_attempt() -> None:
    story = Story().go(*RUNNING, tool_released(0))
    call = story.call()
    assert (call.attempt, call.claim, call.outcome, call.deaths) == (2, None, None, 0)
    assert call.cause == story.accepted[-1].event_id
    story.go(tool_started(0, "t2"))


def test_rule_burn_opens_the_next_attempt_so_that_the_lost_claim_stays_void() -> None:
    story = Story().go(*LOST, tool_released(0))
    assert story.call().attempt == 2
    assert story.run("lost").void == "wrong_attempt"
    story.go(tool_started(0, "t2"))


def test_rule_writer_a_cancel_leaves_the_claim_with_its_writer() -> None:
    story = Story().go(*RUNNING, cancel(0))
    claim = story.call().claim
    assert claim is not None
    assert claim.worker == "t1"
    assert story.run(bent(tool_finished(0), worker="t2")).void == "not_writer"
    story.go(tool_finished(0, "cancelled"))
    assert story.call().outcome == "cancelled"


def test_a_pure_call_that_dies_too_often_is_not_repeated() -> None:
    story = Story().go(*PURE)
    for n in range(1, DEATHS_MAX):
        story.go(tool_started(0), tool_released(0, settles=True))
        assert story.call().deaths == n
    story.go(tool_started(0))
    assert story.run(tool_released(0, settles=True)).void == "not_repeatable"
    assert story.call().attempt == DEATHS_MAX


def test_a_release_by_its_writer_is_no_death() -> None:
    story = Story().go(*PURE)
    for _ in range(DEATHS_MAX + 1):
        story.go(tool_started(0), tool_released(0))
    assert (story.call().deaths, story.call().attempt) == (0, DEATHS_MAX + 2)


def test_a_claim_names_its_writer_and_its_seq() -> None:
    story = Story().go(*CALLS, tool_started(1, "t7"))
    claim = story.call(1).claim
    assert claim is not None
    assert (claim.worker, claim.seq) == ("t7", story.state.head)
    assert claim.event_id == story.accepted[-1].event_id
    assert story.call(0).claim is None


def test_a_step_claim_knows_nothing_of_tool_events() -> None:
    assert void_of(*CLAIMED, step_started()) == "claimed"
