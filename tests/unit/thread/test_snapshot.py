"""Snapshots: canonical, checked, and a few KiB at any age (F75)."""

import hashlib
import json
from dataclasses import replace
from functools import cache

import orjson
import pytest

from tests.helpers.thread_events import (
    MODEL,
    attempt_failed,
    configured,
    created,
    file_changed,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_finished,
    tool_started,
    turn_finished,
    turn_started,
    unknown,
)
from tests.helpers.threads import CALLS, CLAIMED, DONE, OPEN, RUNNING, Move, Story
from threadlog.errors import CorruptError
from threadlog.events.content import COUNT_MAX, MICROS_MAX, Usage
from threadlog.events.thread import Limits
from threadlog.limits import INPUT_WINDOW, SNAPSHOT_EVERY_EVENTS
from threadlog.thread.fold import judge
from threadlog.thread.snapshot import decode_state, encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState

SNAPSHOT_BYTES_MAX = 8 * 1024
STATES: dict[str, tuple[Move, ...]] = {
    "empty": (),
    "created": (created(),),
    "configured": (
        created(),
        configured(model=MODEL, tools=("cli", "x"), limits=Limits(steps_max=2), system_prompt="p"),
    ),
    "queued": (created(), message(), message("interrupt")),
    "claimed": CLAIMED,
    "waiting": (*CLAIMED, attempt_failed(delay_ms=3, due_at_ms=7, usage=Usage(cost_micros=5))),
    "calls": CALLS,
    "running": (*RUNNING, file_changed(0)),
    "done": DONE,
    "opaque": (*OPEN, unknown()),
}


@pytest.mark.parametrize("steps", STATES.values(), ids=STATES)
def test_a_state_comes_back_as_it_was(steps: tuple[Move, ...]) -> None:
    state = Story().go(*steps).state
    encoded = encode_state(state)
    again = decode_state(encoded, FOLD_VERSION, state_hash(encoded))
    assert again == state
    assert encode_state(again) == encoded


def test_a_halted_state_comes_back_as_it_was() -> None:
    story = Story().go(*OPEN)
    story.run(unknown(critical=True))
    encoded = encode_state(story.state)
    assert decode_state(encoded, FOLD_VERSION, state_hash(encoded)) == story.state


def test_the_bytes_are_canonical_json() -> None:
    encoded = encode_state(Story().go(*RUNNING).state)
    plain = json.loads(encoded)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert encoded == text.encode()
    assert b"." not in orjson.dumps([v for v in plain.values() if isinstance(v, int | float)])


def test_the_hash_is_sha256_of_the_bytes() -> None:
    assert state_hash(b"x") == hashlib.sha256(b"x").hexdigest()


def test_the_largest_bill_is_encoded() -> None:
    largest = Usage(cost_micros=MICROS_MAX, input=COUNT_MAX)
    story = Story().go(*CLAIMED, responded(usage=largest), step_finished(), message("next_step"))
    story.go(step_started(), responded(usage=largest), step_finished())
    assert story.state.totals.usage == largest
    encoded = encode_state(story.state)
    assert decode_state(encoded, FOLD_VERSION, state_hash(encoded)) == story.state


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"tenant_id":"local"}',
        b'{"tenant_id":"local","thread_id":"x","inputs":7}',
        b'{"tenant_id":"local","thread_id":"x","inputs":{"window":[]}}',
        b'{"tenant_id":"local","thread_id":"x","inputs":{"window":{"ids":"*","steps":[]}}}',
        b'{"tenant_id":"local","thread_id":"x","inputs":{"window":{"ids":"","steps":[1]}}}',
        b'{"tenant_id":"local","thread_id":"x","inputs":{"window":{"ids":"","steps":["a"]}}}',
        b"\x80\x04\x95pickle",
        b'{"lc":2,"type":"constructor","id":["os","system"]}',
    ],
)
def test_c71_what_is_no_state_is_refused_even_with_a_hash_that_fits(encoded: bytes) -> None:
    with pytest.raises(CorruptError):
        decode_state(encoded, FOLD_VERSION, state_hash(encoded))


def test_a_changed_byte_and_another_fold_version_are_refused() -> None:
    encoded = encode_state(Story().go(*OPEN).state)
    with pytest.raises(CorruptError, match="hash"):
        decode_state(encoded.replace(b"local", b"lokal"), FOLD_VERSION, state_hash(encoded))
    with pytest.raises(CorruptError, match="fold version 0"):
        decode_state(encoded, "0", state_hash(encoded))


@cache
def grown(turns: int) -> tuple[Story, int]:
    """A thread of many turns, ten events each; with the most bytes that its state ever took."""
    story, largest = Story(), 0
    story.go(created(), configured(model=MODEL))
    for n in range(turns):
        story.go(message(text=f"turn {n}"), turn_started(), step_started())
        story.go(responded(calls=1, usage=Usage(input=n, output=7)), requested(0))
        largest = max(largest, len(encode_state(story.state)))
        story.go(tool_started(0), tool_finished(0), step_finished())
        if n % 2:
            story.go(step_started(), responded(), step_finished())
            story.go(turn_finished())
        else:
            story.run(message("reject"))
            story.go(step_started("p2"), responded(), step_finished(), turn_finished())
    return story, largest


def test_F75_a_cold_10_000_event_thread_folds_only_snapshot_and_tail() -> None:
    story, largest = grown(850)
    entries = story.entries
    assert len(story.accepted) > 10_000
    assert len(story.state.inputs.window) == INPUT_WINDOW < 850
    assert largest <= SNAPSHOT_BYTES_MAX

    # The newest snapshot is at most SNAPSHOT_EVERY_EVENTS old; only what lies behind it is folded.
    at = len(entries) - SNAPSHOT_EVERY_EVENTS
    encoded = encode_state(entries[at - 1].judgement.state)
    assert len(encoded) <= SNAPSHOT_BYTES_MAX
    state = decode_state(encoded, FOLD_VERSION, state_hash(encoded))
    for entry in entries[at:]:
        judgement = judge(state, entry.event)
        assert (judgement.seq, judgement.void) == (entry.judgement.seq, entry.judgement.void)
        state = judgement.state
    assert encode_state(state) == encode_state(story.state)


def test_F75_a_snapshot_does_not_grow_with_the_age_of_its_thread() -> None:
    young, old = grown(260)[0].state, grown(850)[0].state
    assert len(encode_state(old)) - len(encode_state(young)) < 64


def test_F75_a_snapshot_holds_structure_and_no_content() -> None:
    secret = "the content of a message"
    story = Story().go(
        created(), configured(model=MODEL, system_prompt=secret), message(text=secret)
    )
    story.go(turn_started(), step_started(), responded(calls=1, text=secret, arguments=secret))
    story.go(requested(0, command=secret), tool_started(0), file_changed(0, secret))
    story.go(tool_finished(0, output=secret))
    assert secret.encode() not in encode_state(story.state)


def test_two_states_that_differ_have_other_bytes() -> None:
    state = Story().go(*OPEN).state
    assert encode_state(replace(state, opaque=1)) != encode_state(state)
    assert encode_state(ThreadState(state.tenant_id, state.thread_id)) != encode_state(state)
