"""Rules `window` and `seen`, and what each input does: messages, settings, cancels."""

import pytest

from tests.helpers.thread_events import (
    MODEL,
    NOBODY,
    cancel,
    configured,
    created,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_closed,
    tool_started,
    turn_finished,
    turn_started,
    unknown,
)
from tests.helpers.threads import CALLS, DONE, OPEN, RUNNING, Move, Story, named, void_of
from threadlog.events.content import ModelRef
from threadlog.events.thread import Limits
from threadlog.ids import TurnId
from threadlog.limits import CALL_TIMEOUT_MS, INPUT_WINDOW, QUEUE_MAX
from threadlog.thread.snapshot import decode_state, encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState, is_stopping, steering

BEGUN: tuple[Move, ...] = (created(), configured(model=MODEL))
EMPTY_TURN: tuple[Move, ...] = (*OPEN, message("next_turn"), cancel(), turn_finished())
CASES: dict[str, tuple[tuple[Move, ...], str | None]] = {
    "a message": ((*BEGUN, message()), None),
    "the same message again": ((*BEGUN, named("m", message()), "m"), "repeat"),
    "the same message, admitted meanwhile": (
        (*BEGUN, named("m", message()), turn_started(), step_started(), "m"),
        "repeat",
    ),
    "the same settings again": ((created(), named("c", configured(model=MODEL)), "c"), "repeat"),
    "the same cancel again": ((*OPEN, named("x", cancel()), "x"), "repeat"),
    "a known id with another body": (
        (*BEGUN, message(key="k"), message(text="other", key="k")),
        "repeat",
    ),
    "one that was looked up too long ago": (
        (*BEGUN, *(message(key=f"n{n}") for n in range(INPUT_WINDOW + 1)), message(base_seq=1)),
        "stale",
    ),
    "reject in an idle thread": ((*BEGUN, message("reject")), None),
    "reject while a turn is open": ((*OPEN, message("reject")), "turn_open"),
    "reject while a message waits": ((*BEGUN, message(), message("reject")), "turn_open"),
    "reject where what waits does not start": ((*EMPTY_TURN, message("reject")), None),
    "the others while a turn is open": (
        (*OPEN, message("next_turn"), message("next_step"), message("interrupt")),
        None,
    ),
    "a message to a full inbox": (
        (*BEGUN, *(message(key=f"m{n}") for n in range(QUEUE_MAX)), message(key="one too many")),
        "queue_full",
    ),
    "cancel without a turn": ((*BEGUN, cancel()), "no_turn"),
    "cancel of a finished turn": ((*DONE, cancel()), "no_turn"),
    "cancel of another turn": ((*OPEN, cancel(turn=TurnId(NOBODY))), "wrong_turn"),
    "a second cancel": ((*OPEN, cancel(), cancel()), "already_cancelled"),
    "cancel of a call that is not": ((*OPEN, cancel(0)), "no_call"),
    "cancel of a call": ((*CALLS, cancel(1)), None),
    "a second cancel of a call": ((*CALLS, cancel(1), cancel(1)), "already_cancelled"),
    "cancel of a call in a cancelled turn": ((*CALLS, cancel(), cancel(1)), None),
    "cancel of the turn after one of a call": ((*CALLS, cancel(1), cancel()), None),
    "cancel of a settled call": ((*CALLS, cancel(1), tool_closed(1), cancel(1)), "late"),
}


@pytest.mark.parametrize(("steps", "void"), CASES.values(), ids=CASES)
def test_an_input_is_judged(steps: tuple[Move, ...], void: str | None) -> None:
    assert void_of(*steps) == void


# -- window, seen


def crowd(story: Story, count: int) -> None:
    for n in range(count):
        story.go(message(key=f"crowd {n}"))


def test_rule_window_remembers_the_last_inputs_void_ones_included() -> None:
    story = Story().go(*OPEN)
    rejected = message("reject", key="rejected")(story.state)
    assert story.append(rejected).void == "turn_open"
    assert story.append(rejected).void == "repeat"
    story.go(step_started(), responded(), step_finished())
    assert story.append(rejected).void == "repeat", "its moment has passed"
    story.go(turn_finished())
    assert story.append(rejected).void == "repeat"


def test_rule_window_is_part_of_the_state_and_not_of_a_reader() -> None:
    story = Story().go(*BEGUN, named("m", message()))
    encoded = encode_state(story.state)
    reader = Story()
    reader.state = decode_state(encoded, FOLD_VERSION, state_hash(encoded))
    assert reader.append(story.kept["m"]).void == "repeat"
    assert reader.state == story.state


def test_rule_window_holds_a_fixed_number_of_ids_and_forgets_the_oldest() -> None:
    story = Story().go(*BEGUN)
    crowd(story, INPUT_WINDOW - 1)
    assert len(story.state.inputs.window) == INPUT_WINDOW
    assert story.state.inputs.forgotten_seq == -1
    story.go(message(key="one more"))
    assert len(story.state.inputs.window) == INPUT_WINDOW
    assert story.state.inputs.forgotten_seq == 1, "the settings, seq 1, are forgotten"


@pytest.mark.parametrize(("base_seq", "void"), [(2, "stale"), (3, None), (4, None)])
def test_rule_seen_voids_an_input_looked_up_before_the_newest_forgotten_one(
    base_seq: int, void: str | None
) -> None:
    story = Story().go(*BEGUN)
    crowd(story, INPUT_WINDOW + 2)
    assert story.state.inputs.forgotten_seq == 3
    assert story.run(message(key="new", base_seq=base_seq)).void == void


def test_rule_seen_voids_the_copy_of_an_accepted_input_that_was_forgotten() -> None:
    story = Story().go(*BEGUN, named("m", message(key="old")))
    crowd(story, INPUT_WINDOW)
    before = story.state
    assert story.run("m").void == "stale"
    assert story.state is before, "a stale input is not remembered: it may come again, looked up"


def test_rule_seen_voids_the_copy_of_a_void_input_that_was_forgotten() -> None:
    """Its gateway answered 409: it may not run later, when its moment would fit again."""
    story = Story().go(*OPEN)
    rejected = message("reject", key="rejected")(story.state)
    story.append(rejected)
    for n in range(INPUT_WINDOW):
        assert story.run(message("reject", key=f"n{n}")).void == "turn_open"
    assert all(known != rejected.event_id for known, _ in story.state.inputs.window)
    assert story.append(rejected).void == "turn_open", "nothing was accepted since: judged alike"
    story.go(step_started(), responded(), step_finished(), turn_finished())
    assert story.append(rejected).void == "stale"
    assert not story.state.queue


def test_rule_seen_takes_an_input_while_nothing_newer_can_be_seen() -> None:
    """More void inputs than the window holds must not lock a cancel out."""
    story = Story().go(*OPEN)
    for n in range(INPUT_WINDOW + 2):
        story.run(message("reject", key=f"n{n}"))
    assert story.state.inputs.forgotten_seq > story.state.head
    story.go(cancel())


def test_an_unknown_type_is_no_input() -> None:
    story = Story().go(*BEGUN, unknown())
    assert len(story.state.inputs.window) == 1


# -- messages


def test_messages_queue_in_log_order_and_interrupts_steer_first() -> None:
    story = Story().go(*OPEN)
    for delivery in ("next_turn", "next_step", "interrupt", "next_step"):
        story.go(message(delivery))
    ids = [q.message_id for q in story.state.queue]
    assert [q.seq for q in story.state.queue] == [4, 5, 6, 7]
    assert steering(story.state) == (ids[2], ids[1], ids[3])


@pytest.mark.parametrize(
    ("delivery", "guards", "stops"),
    [("next_turn", False, False), ("next_step", True, False), ("interrupt", True, True)],
)
def test_what_a_message_stops(delivery: str, guards: bool, stops: bool) -> None:
    story = Story().go(*RUNNING)
    before = story.state.inputs.guard_seq
    story.go(message(delivery))  # type: ignore[arg-type]  # a table holds plain texts
    assert (story.state.inputs.guard_seq == story.state.head) == guards
    assert guards or story.state.inputs.guard_seq == before
    assert is_stopping(story.state) == stops
    assert is_stopping(story.state, story.call(0)) == stops


def test_an_interrupt_without_a_turn_only_waits() -> None:
    story = Story().go(*BEGUN, message("interrupt"), turn_started())
    assert not story.turn.interrupted
    assert not is_stopping(Story().go(*BEGUN, message("interrupt")).state)


# -- settings


def settings_of(*steps: Move) -> ThreadState:
    return Story().go(created(), *steps).state


def test_settings_change_what_they_name_and_nothing_else() -> None:
    other = ModelRef(provider="scripted", name="large")
    first = settings_of(
        configured(model=MODEL, tools=("cli",), limits=Limits(steps_max=3)),
        configured(model=other),
    ).config
    assert (first.model, first.tools, first.steps_max) == (other, ("cli",), 3)
    second = settings_of(
        configured(system_prompt="brief", limits=Limits(output_tokens_max=9)),
        configured(tools=(), limits=Limits(call_timeout_ms=5)),
    ).config
    assert (second.system_seq, second.output_tokens_max, second.tools) == (1, 9, ())
    assert second.call_timeout_ms == 5


def test_settings_have_defaults() -> None:
    config = settings_of().config
    assert (config.model, config.tools, config.system_seq) == (None, ("cli",), -1)
    assert (config.call_timeout_ms, config.workspace.kind) == (CALL_TIMEOUT_MS, "managed")


# -- cancels (rule `writer`)


def test_rule_writer_a_cancel_marks_and_settles_nothing() -> None:
    story = Story().go(*RUNNING)
    before = story.state.turn
    story.go(cancel())
    turn = story.turn
    assert before is not None
    assert turn.step == before.step, "no outcome, no claim closed"
    assert turn.cancel is not None
    assert (turn.cancel.cause, turn.cancel.actor) == ("user", "user:test")
    assert is_stopping(story.state)


def test_rule_writer_a_cancel_of_one_call_stops_no_other() -> None:
    story = Story().go(*CALLS, cancel(1))
    first, second = story.step.calls
    assert not is_stopping(story.state, first)
    assert is_stopping(story.state, second)
    assert (second.cancelled, second.outcome) == (True, None)
    story.go(tool_started(0))


def test_a_cancel_of_a_call_that_was_not_requested_yet_marks_it() -> None:
    story = Story().go(*OPEN, step_started(), responded(calls=1), cancel(0), requested(0))
    assert story.run(tool_started(0)).void == "stopping"
