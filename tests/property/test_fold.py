"""Properties of the fold over random lives of a thread, and over events out of any place."""

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.fold_hashes import hash_of
from tests.helpers.thread_driver import Driver
from tests.helpers.thread_events import NOBODY, bent
from tests.helpers.threads import Story
from threadlog.events.codec import decode_body
from threadlog.events.envelope import Body, Event, Opaque
from threadlog.thread import fold_inputs, invariants
from threadlog.thread.decide import decide
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.invariants import violations
from threadlog.thread.snapshot import decode_state, encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState
from threadlog.thread.transcript import Transcript

ROOT = Path(__file__).parents[2]
SEEDS = st.integers(0, 2**32)


def life(seed: int) -> Story:
    return Driver(seed).run()


def judged(state: ThreadState, events: list[Event]) -> list[Judgement]:
    found = []
    for event in events:
        found.append(judge(state, event))
        state = found[-1].state
    return found


def verdicts(judgements: list[Judgement]) -> list[tuple[int | None, str | None]]:
    return [(judgement.seq, judgement.void) for judgement in judgements]


@settings(max_examples=100)
@given(SEEDS)
def test_whatever_happens_the_thread_comes_to_rest_and_nothing_is_broken(seed: int) -> None:
    """The driver checks, after every record, all that `History` and `violations` know."""
    story = life(seed)
    assert decide(story.state, 10**12) == ()


@settings(max_examples=30)
@given(SEEDS)
def test_nothing_is_broken_while_inputs_are_forgotten(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_inputs, "INPUT_WINDOW", 3)
        patch.setattr(invariants, "INPUT_WINDOW", 3)
        story = Driver(seed, inputs_max=30).run()
    accepted = [e.event.event_id for e in story.entries if e.judgement.void is None]
    inputs = [e.event for e in story.entries if e.event.type == "message.received"]
    lost = {e.event_id for e in inputs if e.body.delivery != "reject"}  # type: ignore[union-attr]  # messages
    assert lost <= set(accepted), "an input is in the log and was never accepted"


@settings(max_examples=15)
@given(SEEDS)
def test_a_snapshot_and_its_tail_are_the_whole_at_every_record(seed: int) -> None:
    story = life(seed)
    events = [entry.event for entry in story.entries]
    whole = [entry.judgement for entry in story.entries]
    final = encode_state(story.state)
    for n, judgement in enumerate(whole):
        encoded = encode_state(judgement.state)
        state = decode_state(encoded, FOLD_VERSION, state_hash(encoded))
        tail = judged(state, events[n + 1 :])
        assert verdicts(tail) == verdicts(whole[n + 1 :])
        assert encode_state(tail[-1].state if tail else state) == final


@settings(max_examples=30)
@given(SEEDS, st.randoms(use_true_random=False))
def test_copies_of_what_was_accepted_change_no_verdict(seed: int, rng: random.Random) -> None:
    story = life(seed)
    state = ThreadState(story.state.tenant_id, story.state.thread_id)
    behind: list[Event] = []
    for entry in story.entries:
        for copy in rng.sample(behind, min(len(behind), rng.choice((0, 0, 1, 3)))):
            judgement = judge(state, copy)
            assert judgement.void is not None, copy
            assert judgement.state == state
        judgement = judge(state, entry.event)
        assert (judgement.seq, judgement.void) == (entry.judgement.seq, entry.judgement.void)
        state = judgement.state
        if judgement.void is None and not isinstance(entry.event.body, Opaque):
            behind.append(entry.event)
    assert state == story.state


@settings(max_examples=30)
@given(SEEDS, st.randoms(use_true_random=False))
def test_another_order_behind_a_point_changes_nothing_before_it(
    seed: int, rng: random.Random
) -> None:
    """And whatever the order, what comes of it is judged alike by all, and breaks nothing."""
    events = [entry.event for entry in life(seed).entries]
    at = rng.randint(1, len(events))
    tail = events[at:]
    rng.shuffle(tail)
    empty = ThreadState(events[0].tenant_id, events[0].thread_id)
    before, after = judged(empty, events), judged(empty, events[:at] + tail)
    assert verdicts(after[:at]) == verdicts(before[:at])
    assert all(violations(judgement.state) == () for judgement in after)
    seqs = [judgement.seq for judgement in after if judgement.seq is not None]
    assert seqs == list(range(len(seqs)))


@settings(max_examples=30)
@given(SEEDS, st.randoms(use_true_random=False))
def test_the_fold_is_total(seed: int, rng: random.Random) -> None:
    """Any event, bent in any way, in any state: a verdict, no violation, no exception."""
    story = life(seed)
    pool = [entry.event for entry in story.entries]
    names = [e.event_id for e in pool] + [NOBODY]
    for _ in range(60):
        state = rng.choice(story.entries).judgement.state
        event = mangled(rng.choice(pool), names, rng)
        judgement = judge(state, event)
        assert (judgement.seq is None) != (judgement.void is None)
        assert judgement.state.head - state.head == (judgement.void is None)
        assert violations(judgement.state) == ()
        assert judge(state, event) == judgement
        encoded = encode_state(judgement.state)
        assert decode_state(encoded, FOLD_VERSION, state_hash(encoded)) == judgement.state
        decide(judgement.state, rng.choice((0, 10**12)))


def mangled(event: Event, names: Sequence[str], rng: random.Random) -> Event:
    """The event with up to two members set to something else that may stand there."""
    changes: dict[str, object] = {}
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(
            ["turn_id", "caused_by", "worker", "event_id", *type(event.body).model_fields]
        )
        old = getattr(event.body, name, None)
        if name in (*ENVELOPE, "claim", "call_id") and name != "worker":
            changes[name] = rng.choice(names)
        elif name == "worker":
            changes[name] = rng.choice((None, "planner-1", "runner-3"))
        elif isinstance(old, bool):
            changes[name] = not old
        elif isinstance(old, int):
            changes[name] = max(0, old + rng.choice((-1, 1, 10**9)))
        elif name == "admits":
            changes[name] = tuple(rng.sample(names, rng.randint(1, min(3, len(names)))))
        elif name in CHOICES:
            changes[name] = rng.choice(CHOICES[name])
    return bent(lambda _: event, **changes)(ThreadState(event.tenant_id, event.thread_id))


ENVELOPE = ("turn_id", "caused_by", "worker", "event_id")
CHOICES = {
    "by": ("writer", "settlement", "planner"),
    "outcome": ("ok", "unknown", "not_started", "denied", "cancelled"),
    "verdict": ("completed", "cancelled", "error", "max_tokens"),
    "delivery": ("reject", "next_turn", "next_step", "interrupt"),
    "effect": ("pure", "unsafe", "idempotent"),
    "gate": ("free", "refused"),
    "stop": ("end", "length", "refusal"),
}


@settings(max_examples=20)
@given(SEEDS)
def test_a_transcript_never_asks_without_an_answer(seed: int) -> None:
    transcript = Transcript()
    for event in life(seed).accepted:
        transcript.add(event)
        messages = transcript.messages()
        asked = [call.call_id for m in messages for call in getattr(m, "calls", ())]
        told = [name for m in messages if (name := getattr(m, "call_id", None)) is not None]
        assert asked == told


@settings(max_examples=20)
@given(SEEDS)
def test_what_a_reader_decodes_is_what_was_folded(seed: int) -> None:
    """The state follows from the bytes in the log, not from the objects of the writer."""
    story = life(seed)
    decoded = [
        e.event.model_copy(
            update={"body": decode_body(e.event.type, e.event.version, e.event.data)}
        )
        for e in story.entries
    ]
    assert hash_of(decoded) == hash_of(e.event for e in story.entries)
    assert all(isinstance(e.body, Body | Opaque) for e in decoded)


def test_the_fold_gives_the_same_bytes_under_two_hash_seeds() -> None:
    names = [f"seed:{n}" for n in range(12)]
    printed = {
        subprocess.run(
            [sys.executable, "-m", "tests.helpers.fold_hashes", *names],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}/services:{ROOT}"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    }
    assert len(printed) == 1
    assert len(printed.pop().splitlines()) == len(names)
