"""P1, P3, X6 with real processes: killed at every named point, the next one ends the turn.

The first step's call is unsafe and leaves a line each time that it starts; the second one's is
pure, so that a tool-runner's second visit to a point is about it.
"""

import signal
from pathlib import Path

import pytest

from tests.helpers.machine import NOTE, Machine, until
from tests.helpers.nursery import Nursery
from threadlog.faults import POINTS

SCRIPT: tuple[dict[str, object], ...] = (
    {"calls": [NOTE]},
    {"calls": ["read notes.txt"]},
    {"text": "done"},
)
DIED_IN_THE_CALL = {
    "tool_runner.claim.after_append": 0,
    "tool_runner.effect.before": 0,
    "tool_runner.effect.after": 1,
    "tool_runner.outcome.before_append": 1,
}
"""Points between the claim and the outcome, and how often the command has started by then."""


def killed_at(machine: Machine, fault: str) -> None:
    """A run that dies at this point."""
    run = machine.start(*RUN, machine.script(*SCRIPT), "--json", THREADLOG_FAULT=fault)
    assert machine.nursery.wait(run) == -signal.SIGKILL, (run.stdout, run.stderr)
    assert run.stdout == ""


RUN = ("run", "go", "--workspace", ".", "--script")


@pytest.mark.parametrize("fault", ["typo", f"{POINTS[0]}:x", f"{POINTS[0]}:0", f"{POINTS[0]}:²"])
def test_a_fault_that_is_no_point_is_wrong_use(
    fault: str, children: Nursery, short_dir: Path
) -> None:
    machine = Machine(children, short_dir)
    run = machine.start(*RUN, machine.script(*SCRIPT), THREADLOG_FAULT=fault)
    assert machine.nursery.wait(run) == 2, run.stderr
    assert "Traceback" not in run.stderr
    assert all(point in run.stderr for point in ("THREADLOG_FAULT", *POINTS))


@pytest.mark.parametrize("point", POINTS)
def test_P3_a_run_killed_at_a_point_is_carried_on_by_up(
    point: str, children: Nursery, short_dir: Path
) -> None:
    machine = Machine(children, short_dir)
    killed_at(machine, point)
    assert machine.accepted(), "the message was in the log"
    up = machine.start("up", "--script", machine.script(*SCRIPT))
    until(machine.verdicts, f"the turn has ended after {point}", [up])
    up.send(signal.SIGTERM)
    assert children.wait(up) == 0, up.stderr
    assert machine.verdicts() == ["completed"]
    machine.check_effects()
    first, second = machine.outcomes()
    assert second.outcome == "ok"
    if point in DIED_IN_THE_CALL:
        assert (first.outcome, first.by) == ("unknown", "settlement")
        assert len(machine.effects()) == DIED_IN_THE_CALL[point]
    elif point.startswith("projection"):  # it dies whenever a batch is stored, also in the call
        assert first.outcome == "ok" or first.by == "settlement"
    else:
        assert first.outcome == "ok"
        assert len(machine.effects()) == 1


@pytest.mark.parametrize("point", POINTS)
def test_P3_a_run_killed_at_the_second_visit_is_carried_on_by_another_run(
    point: str, children: Nursery, short_dir: Path
) -> None:
    """What the tool-runner visits a second time is about the pure call, which is repeated."""
    machine = Machine(children, short_dir)
    killed_at(machine, f"{point}:2")
    run = machine.start(*RUN, machine.script(*SCRIPT))
    assert children.wait(run) == 0, run.stderr
    assert machine.verdicts() == ["completed", "completed"]
    machine.check_effects()
    outcomes = machine.outcomes()
    assert len(outcomes) == 4
    unknown = [o for o in outcomes if o.outcome != "ok"]
    if unknown:
        assert point.startswith("projection")
        assert [o.by for o in unknown] == ["settlement"]
    else:
        assert len(machine.effects()) == 2
