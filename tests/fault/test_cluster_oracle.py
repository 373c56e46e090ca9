"""The oracle of the cluster's fault tests can fail: one planted fault for each thing it watches."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.helpers.cluster_log import LogTold
from tests.helpers.cluster_oracle import RULES, Evidence, Viewed, figures, findings
from tests.helpers.events import LOCAL, event_id
from tests.helpers.thread_events import (
    MODEL,
    configured,
    created,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_finished,
    tool_released,
    tool_settled,
    tool_started,
    turn_finished,
    turn_started,
)
from tests.helpers.threads import Move, Story
from threadlog.commands.requests import Accepted
from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.events.step import StepStarted
from threadlog.events.tool import ToolStarted
from threadlog.ids import Partition, Position, Seq, WorkerId
from threadlog.ports.log import Record
from threadlog.ports.views import StoredEvent
from threadlog.projection.rows import thread_row
from threadlog.thread.snapshot import encode_state, state_hash

PLANNER, RUNNER = WorkerId("p1"), WorkerId("t1")
TURN: tuple[Move, ...] = (
    *(created(), configured(model=MODEL), message(), turn_started(), step_started()),
    *(responded(calls=1), requested(0), tool_started(0), tool_finished(0), step_finished()),
    *(step_started(), responded(), step_finished(), turn_finished()),
)
SETTLED: tuple[Move, ...] = (*TURN[:8], tool_settled(0), *TURN[9:])
ONE = Partition(0)
Plant = Callable[[Evidence], None]


def evidence_of(*moves: Move) -> Evidence:
    """The evidence of a run that left this log, in which all is well otherwise."""
    story = Story()
    story.run(*moves)
    log = LogTold()
    for n, entry in enumerate(story.entries):
        log.add(ONE, Record(Position(n + 1), entry.event.key, entry.event))
    return complete(log)


def complete(log: LogTold) -> Evidence:
    end = max(entry.position for entry in log.entries)
    log.ends = {ONE: end}
    evidence = Evidence(log=log, innocent=frozenset((PLANNER, RUNNER)), asked=[], effects=[])
    sent, effects, asked = [], [], []
    for entry in log.accepted:
        body, seq = entry.event.body, entry.judgement.seq
        assert seq is not None
        if isinstance(body, MessageReceived):
            sent.append(Accepted(entry.event.thread_id, entry.event.event_id, entry.position, seq))
        if isinstance(body, ToolStarted):
            effects.append(f"{body.call_id} {body.attempt} 77")
        if isinstance(body, StepStarted):
            asked.append(body.manifest.request_sha256)
    evidence.sent, evidence.effects, evidence.asked = sent, effects, asked
    evidence.marker = "true"
    evidence.watermarks = {ONE: end}
    evidence.committed = {("planner", ONE): end}
    evidence.views = {key: seen(log, key) for key in log.threads}
    return evidence


def seen(log: LogTold, key: str) -> Viewed:
    told = log.threads[key]
    last = told.entries[-1].position
    return Viewed(
        row=thread_row(told.state, last, told.title, told.created_at, told.updated_at),
        events=[StoredEvent(e.position, e.judgement.seq, e.event) for e in told.accepted],
        voids=[StoredEvent(e.position, None, e.event, e.judgement.void) for e in told.voids],
        state_sha256=told.hash,
        snapshot=(last, state_hash(encode_state(told.state))),
    )


def test_a_run_in_which_all_is_well_has_no_findings() -> None:
    again = (message(), turn_started(), step_started(), responded(), step_finished())
    evidence = evidence_of(*TURN, *again, turn_finished())
    assert findings(evidence) == []
    assert figures(evidence.log).verdicts == {"completed": 2}
    assert "2 completed" in str(figures(evidence.log))


def test_a_death_excuses_an_unknown_outcome() -> None:
    evidence = evidence_of(*SETTLED)
    evidence.innocent = frozenset((PLANNER,))
    assert findings(evidence) == []
    assert figures(evidence.log).outcomes == {"unknown": 1}


# -- planted faults


def input_missing(e: Evidence) -> None:
    [first] = e.sent
    e.sent = [replace(first, event_id=event_id("lost"))]


def input_elsewhere(e: Evidence) -> None:
    [first] = e.sent
    e.sent = [replace(first, seq=Seq(first.seq + 1))]


def inputs_reordered(e: Evidence) -> None:
    [first] = e.sent
    e.sent = [first, first]


def effect_twice(e: Evidence) -> None:
    e.effects = [*e.effects, e.effects[0].replace("77", "78")]


def effect_without_claim(e: Evidence) -> None:
    e.effects = [*e.effects, e.effects[0].replace(" 1 ", " 2 ")]


def effect_missing(e: Evidence) -> None:
    e.effects = []


def asked_twice(e: Evidence) -> None:
    assert e.asked
    e.asked = [*e.asked, e.asked[0]]


def never_asked(e: Evidence) -> None:
    e.asked = []


def view_behind(e: Evidence) -> None:
    e.watermarks = {ONE: Position(3)}


def commit_beyond_the_end(e: Evidence) -> None:
    e.committed = {("planner", ONE): Position(e.log.ends[ONE] + 1)}


def only_view(e: Evidence) -> Viewed:
    assert e.views
    [viewed] = e.views.values()
    return viewed


def change_view(e: Evidence, **changes: object) -> None:
    [key] = e.log.threads
    e.views = {key: replace(only_view(e), **changes)}  # type: ignore[arg-type]  # members by name


def event_unseen(e: Evidence) -> None:
    change_view(e, events=only_view(e).events[:-1])


def event_changed(e: Evidence) -> None:
    first, *rest = only_view(e).events
    other = first.event.model_copy(update={"occurred_at": "2027-01-01T00:00:00.000Z"})
    change_view(e, events=[replace(first, event=other), *rest])


def void_invented(e: Evidence) -> None:
    first = only_view(e).events[0]
    change_view(e, voids=[replace(first, seq=None, void="repeat")])


def state_differs(e: Evidence) -> None:
    change_view(e, state_sha256="0" * 64)


def snapshot_differs(e: Evidence) -> None:
    change_view(e, snapshot=(e.log.ends[ONE], "0" * 64))


def snapshot_of_nowhere(e: Evidence) -> None:
    change_view(e, snapshot=(Position(e.log.ends[ONE] + 5), "0" * 64))


def row_differs(e: Evidence) -> None:
    row = only_view(e).row
    assert row is not None
    change_view(e, row=replace(row, turns=7))


def row_missing(e: Evidence) -> None:
    change_view(e, row=None)


def thread_unseen(e: Evidence) -> None:
    e.views = {}


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (input_missing, "inputs"),
        (input_elsewhere, "inputs"),
        (inputs_reordered, "inputs"),
        (effect_twice, "effects"),
        (effect_without_claim, "effects"),
        (effect_missing, "effects"),
        (asked_twice, "requests"),
        (never_asked, "requests"),
        (view_behind, "watermarks"),
        (commit_beyond_the_end, "watermarks"),
        (event_unseen, "views"),
        (event_changed, "views"),
        (void_invented, "views"),
        (state_differs, "views"),
        (snapshot_differs, "views"),
        (snapshot_of_nowhere, "views"),
        (row_differs, "views"),
        (row_missing, "views"),
        (thread_unseen, "views"),
    ],
)
def test_a_planted_fault_is_found_by_its_rule(plant: Plant, rule: str) -> None:
    evidence = evidence_of(*TURN)
    plant(evidence)
    assert {text.partition(":")[0] for text in findings(evidence)} == {rule}


def test_a_living_workers_claim_that_was_settled_is_found() -> None:
    found = findings(evidence_of(*SETTLED))
    assert [text.partition(":")[0] for text in found] == ["settlements"]
    assert "who lived" in found[0]


def test_a_released_attempt_that_started_is_found() -> None:
    moves = (*TURN[:8], tool_released(0), tool_started(0), *TURN[8:])
    evidence = evidence_of(*moves)
    [text] = findings(evidence)
    assert text.startswith("effects:")
    assert "was released" in text
    evidence.effects = [line for line in evidence.effects if " 2 " in line]
    assert findings(evidence) == []


def test_a_turn_that_has_not_ended_is_found() -> None:
    for length in range(4, len(TURN)):
        [text] = {text.partition(":")[0] for text in findings(evidence_of(*TURN[:length]))}
        assert text == "ends", length


def test_a_message_that_no_turn_took_is_found() -> None:
    [text] = findings(evidence_of(*TURN, message()))
    assert text.startswith("ends:")


def test_an_event_that_is_accepted_twice_is_found() -> None:
    """No log folds so; a fold with this bug would, so the watcher is shown what it would say."""
    evidence = evidence_of(*TURN)
    [told] = evidence.log.threads.values()
    entry = told.accepted[-1]
    judged = copy.copy(entry.judgement)
    before = told.entries[-2].judgement.state
    with pytest.raises(AssertionError, match="accepted twice"):
        told.history.watch(before, entry.event, judged)


def test_a_record_of_nobody_is_kept_apart() -> None:
    log = LogTold()
    event: Event = Story().go(created()).accepted[0]
    log.add(ONE, Record(Position(1), "", None, "no key"))
    log.add(ONE, Record(Position(2), f"{LOCAL}/other", event))
    log.add(ONE, Record(Position(3), event.key, event))
    assert [record.position for _, record in log.bad] == [1, 2]
    assert len(log.threads) == 1


def test_every_rule_is_planted_against() -> None:
    planted = {"history", "inputs", "ends", "effects", "requests", "settlements", "watermarks"}
    assert {rule.__name__.strip("_") for rule in RULES} == planted | {"views"}
