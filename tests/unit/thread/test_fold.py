"""The fold as a whole: streams, unknown types, bad bodies, and that no reason goes untested."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.thread_events import (
    MODEL,
    bent,
    configured,
    created,
    message,
    step_started,
    turn_started,
    unknown,
)
from tests.helpers.threads import CLAIMED, DONE, OPEN, Move, Story, keep, void_of
from tests.unit.thread import (
    test_fold_calls,
    test_fold_inputs,
    test_fold_outcomes,
    test_fold_steps,
    test_fold_turns,
)
from threadlog.events.catalog import BODIES
from threadlog.events.thread import ThreadCreated
from threadlog.ids import NO_SEQ
from threadlog.thread import fold as fold_module
from threadlog.thread.fold import fold
from threadlog.thread.state import ThreadState

FOREIGN = b'{"kind":"of another year","ns":[1,2]}'
CASES: dict[str, tuple[tuple[Move, ...], str | None]] = {
    "a thread begins": ((created(),), None),
    "a thread begins once": ((created(), created()), "repeat"),
    "a thread begins once, in the middle": ((*OPEN, created("again")), "repeat"),
    "nothing before the thread: an input": ((message(),), "no_thread"),
    "nothing before the thread: a turn": ((turn_started(),), "no_thread"),
    "nothing before the thread: an unknown type": ((unknown(),), "no_thread"),
    "an unknown type": ((created(), unknown(data=FOREIGN)), None),
    "a newer version": ((created(), unknown("turn.started", version=2)), None),
    "a known type with a bad body": ((created(), unknown("turn.started")), "invalid"),
    "an unknown type whose body is no object": ((created(), unknown(data=b"null")), "invalid"),
    "an unknown critical type": ((created(), unknown(critical=True)), "halted"),
    "an unknown critical type as the first record": ((unknown(critical=True),), "halted"),
    "a newer version of thread.created": (
        (unknown("thread.created", version=2, critical=True),),
        "halted",
    ),
    "a critical type with no body is void, not a halt": (
        (created(), unknown(critical=True, data=b"")),
        "invalid",
    ),
}


@pytest.mark.parametrize(("steps", "void"), CASES.values(), ids=CASES)
def test_a_record_is_judged(steps: tuple[Move, ...], void: str | None) -> None:
    assert void_of(*steps) == void


def test_a_seq_is_given_to_accepted_events_alone_and_without_a_gap() -> None:
    story = Story()
    steps: tuple[Move, ...] = (created(), created(), message(), unknown(), turn_started())
    story.run(*steps, turn_started(), message())
    seqs = [entry.judgement.seq for entry in story.entries]
    assert seqs == [0, None, 1, 2, 3, None, 4]
    assert story.state.head == 4


@pytest.mark.parametrize("step", [unknown("turn.started"), step_started(), created()])
def test_a_void_event_leaves_the_state_as_it_was(step: Move) -> None:
    story = Story().go(*CLAIMED)
    before = story.state
    assert story.run(step).void is not None
    assert story.state is before


def test_nothing_is_judged_behind_a_halt() -> None:
    story = Story().go(*OPEN)
    before = story.state
    story.run(unknown("turn.merged", version=3, critical=True))
    halted = story.state.halted
    assert halted is not None
    assert (halted.type, halted.version) == ("turn.merged", 3)
    assert story.state.head == before.head
    after = story.state
    story.run(step_started(), message(), created(), unknown())
    assert story.voids == ["halted"] * 5
    assert story.state is after
    assert replace(after, halted=None) == before


def test_a_halt_stops_that_thread_only() -> None:
    halted = Story().go(created())
    halted.run(unknown(critical=True))
    assert halted.run(message()).void == "halted"
    Story().go(*DONE)


def test_fold_is_the_state_of_the_judgement() -> None:
    story = Story().go(*OPEN)
    event = step_started()(story.state)
    assert fold(story.state, event) == story.run(keep("e", step_started()), "e").state


def test_an_empty_state_has_no_head() -> None:
    story = Story()
    assert story.state == ThreadState(story.state.tenant_id, story.state.thread_id)
    assert story.state.head == NO_SEQ


def test_the_time_of_an_event_is_never_read() -> None:
    """RELIABILITY C69: any text folds alike."""
    times = ["", "-1", "9999-12-31T23:59:59+23:59", str(2**63 - 1), "2026-02-30T25:61:61Z"]
    states = [
        Story().go(*(bent(step, occurred_at=time) for step in OPEN if callable(step))).state
        for time in times
    ]
    assert len(set(map(repr, states))) == 1


def test_every_type_of_the_catalog_has_a_rule() -> None:
    ruled = {*fold_module._RULES, ThreadCreated}
    assert ruled == set(BODIES)


def test_every_reason_to_be_void_has_a_case() -> None:
    tables = [CASES]
    for module in (
        test_fold_inputs,
        test_fold_turns,
        test_fold_steps,
        test_fold_calls,
        test_fold_outcomes,
    ):
        tables += [module.CASES]
    tested = {void for table in tables for _, void in table.values() if void is not None}
    package = Path(fold_module.__file__).parent
    written = {
        reason
        for path in [*package.glob("fold*.py"), package / "closing.py"]
        for reason in _reasons(ast.parse(path.read_text()))
    }
    assert {"late", "halted", "foreign_claim", "not_writer"} <= written, "the scan sees nothing"
    assert tested == written


def _reasons(tree: ast.Module) -> set[str]:
    """The texts that a fold module answers: in a `return`, a `void =` or a `Judgement(...)`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Return(value=ast.expr() as value):
                found |= _texts(value)
            case ast.Assign(targets=[ast.Name(id="void")], value=value):
                found |= _texts(value)
            case _:
                pass
    return found


def _texts(value: ast.expr) -> set[str]:
    """The constants in an answer, not those that it is compared with."""
    match value:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=orelse):
            return _texts(body) | _texts(orelse)
        case ast.Call(args=args):
            return set().union(*map(_texts, args))
        case _:
            return set()


def test_settings_before_a_model_are_settings_too() -> None:
    story = Story().go(created(), configured(model=MODEL), configured(system_prompt="be brief"))
    assert story.state.config.model == MODEL
    assert story.state.config.system_seq == 2
