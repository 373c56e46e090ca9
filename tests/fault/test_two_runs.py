"""Q3: several commands on one file at once. One carries the turns of all; when it dies, another."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.machine import NOTE, Machine, until
from tests.helpers.nursery import Child, Nursery
from threadlog.adapters.sqlite.lock import FileLock, Holder, read_holder
from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.events.step import StepStarted
from threadlog.ids import ThreadId

SLOW = (
    {"calls": [NOTE], "delay_ms": 250},
    {"calls": ["read notes.txt"], "delay_ms": 250},
    {"text": "done", "delay_ms": 250},
)
RUN = ("run", "--workspace", ".", "--script")


@pytest.fixture
def machine(children: Nursery, short_dir: Path) -> Machine:
    return Machine(children, short_dir)


def instances(events: list[Event]) -> set[str]:
    """The processes whose workers wrote these events."""
    return {e.worker[2:] for e in events if e.worker is not None}


def threads(machine: Machine) -> list[ThreadId]:
    """Those that have a message, in the order of the messages."""
    return [e.thread_id for e in machine.accepted() if isinstance(e.body, MessageReceived)]


def asking(machine: Machine, number: int) -> bool:
    """Whether the model was asked for `number` threads."""
    claims = [e for e in machine.accepted() if isinstance(e.body, StepStarted)]
    return len({e.thread_id for e in claims}) >= number


def test_F29_a_second_command_goes_through_the_first(machine: Machine) -> None:
    """It starts no workers of its own: every event of its thread is of the first one's."""
    script = machine.script({"text": "done"})
    up = machine.start("up", "--script", script)
    until(lambda: "ready" in up.stderr, "it is ready", [up])
    holder = read_holder(machine.file)
    assert holder is not None
    assert holder.pid == up.pid
    for prompt in ("one", "two"):
        run = machine.start(*RUN, script, prompt)
        assert machine.nursery.wait(run) == 0, run.stderr
        assert read_holder(machine.file) == holder, "the lock stays where it is"
    assert machine.verdicts() == ["completed", "completed"]
    assert len(set(threads(machine))) == 2
    assert instances(machine.accepted()) == {holder.instance}
    up.send(signal.SIGTERM)
    assert machine.nursery.wait(up) == 0


def test_a_second_run_with_another_script_is_refused(machine: Machine) -> None:
    """Its turn would be answered by the first one's script, under the name of its own."""
    up = machine.start("up", "--script", machine.script({"text": "of the first"}))
    until(lambda: "ready" in up.stderr, "it is ready", [up])
    run = machine.start(*RUN, machine.script({"text": "of the second"}), "hello")
    assert machine.nursery.wait(run) == 1
    assert "another scripted model" in run.stderr
    assert machine.accepted() == []
    up.send(signal.SIGTERM)
    assert machine.nursery.wait(up) == 0


@pytest.mark.parametrize("gone", ["lock", "file"])
def test_a_runtime_whose_lock_or_file_is_replaced_ends(machine: Machine, gone: str) -> None:
    """Another process may run on the new one; of two that believe to be alone one must go."""
    up = machine.start("up", "--script", machine.script({"text": "done"}))
    until(lambda: "ready" in up.stderr, "it is ready", [up])
    path = machine.file.with_name("threadlog.db.lock") if gone == "lock" else machine.file
    path.unlink()
    assert machine.nursery.wait(up) == 1
    assert "removed or replaced" in up.stderr


def test_Q3_the_first_run_stays_until_the_seconds_turn_has_ended(machine: Machine) -> None:
    script = machine.script(*SLOW)
    first = machine.start(*RUN, script, "one")
    until(lambda: asking(machine, 1), "the first turn runs", [first])
    second = machine.start(*RUN, script, "two")
    for child in (second, first):
        assert machine.nursery.wait(child) == 0, child.stderr
        assert child.stdout.strip() == "done"
    assert "staying until the turns that this process carries have ended" in first.stderr
    assert machine.verdicts() == ["completed", "completed"]
    assert len(instances(machine.accepted())) == 1, "the first one carried both"
    machine.check_effects()
    assert len(machine.effects()) == 2
    assert read_holder(machine.file) is None
    assert not [*(machine.home / "run").rglob("*.sock")], "nothing is left behind"


def test_Q3_when_the_first_run_is_killed_the_second_carries_both_turns_on(
    machine: Machine,
) -> None:
    # Long enough that both turns are open when the first process dies, however busy the machine is.
    script = machine.script({"calls": [NOTE], "delay_ms": 2_500}, *SLOW[1:])
    first = machine.start(*RUN, script, "one")
    until(lambda: asking(machine, 1), "the first turn runs", [first])
    second = machine.start(*RUN, script, "two")
    until(lambda: asking(machine, 2), "it carries the second one's turn", [first, second])
    machine.nursery.kill(first)
    assert machine.nursery.wait(second) == 0, second.stderr
    assert second.stdout.strip() == "done"
    assert "carrying on from the log" in second.stderr
    assert machine.verdicts() == ["completed", "completed"]
    assert len(instances(machine.accepted())) == 2
    machine.check_effects()


def test_Q3_five_at_once_on_a_file_that_does_not_exist_yet(machine: Machine) -> None:
    script = machine.script({"calls": [NOTE]}, {"text": "done"})
    runs = [machine.start(*RUN, script, f"number {n}") for n in range(5)]
    for child in runs:
        assert machine.nursery.wait(child) == 0, child.stderr
        assert child.stdout.strip() == "done"
    assert machine.verdicts() == ["completed"] * 5
    assert len(set(threads(machine))) == 5
    machine.check_effects()
    assert len(machine.effects()) == 5


def test_Q3_five_at_once_of_which_the_carrier_is_killed_again_and_again(
    machine: Machine,
) -> None:
    script = machine.script(*SLOW)
    runs = [machine.start(*RUN, script, f"number {n}") for n in range(5)]
    until(lambda: asking(machine, 5), "all turns run", runs)
    for _ in range(3):
        until(lambda: carrier(machine, runs), "one of them holds the lock", runs)
        found = carrier(machine, runs)
        assert found is not None
        machine.nursery.kill(found)
        runs.remove(found)
    for child in runs:
        assert machine.nursery.wait(child) == 0, child.stderr
    assert machine.verdicts() == ["completed"] * 5, "also the turns of those who died"
    machine.check_effects()


def carrier(machine: Machine, runs: list[Child]) -> Child | None:
    """The run that holds the lock and serves its socket."""
    holder = read_holder(machine.file)
    if holder is None or holder.socket is None:
        return None
    return next((c for c in runs if c.pid == holder.pid and c.status is None), None)


def test_Q3_the_socket_of_a_dead_runtime_is_in_nobodys_way(machine: Machine) -> None:
    script = machine.script(*SLOW)
    first = machine.start(*RUN, script, "one")
    until(lambda: asking(machine, 1), "the first turn runs", [first])
    machine.nursery.kill(first)
    holder = read_holder(machine.file)
    assert holder is not None
    assert holder.socket is not None
    assert Path(holder.socket).exists(), "a socket and a note of the dead are there"
    second = machine.start(*RUN, script, "two")
    assert machine.nursery.wait(second) == 0, second.stderr
    assert machine.verdicts() == ["completed", "completed"]


@pytest.mark.parametrize("socket", [None, "gone.sock"])
def test_Q3_a_run_waits_for_a_runtime_that_does_not_answer_yet(
    machine: Machine, socket: str | None
) -> None:
    """Its note names no socket while it starts, or one that is closed while it ends."""
    script = machine.script({"text": "done"})
    assert machine.nursery.wait(machine.start(*RUN, script, "before")) == 0
    lock = FileLock(machine.file)
    where = None if socket is None else str(machine.home / socket)
    lock.acquire(Holder(os.getpid(), "starting", "2026-11-30T18:00:00Z", where))
    records = len(machine.judged())
    run = machine.start(*RUN, script, "one")
    reads = machine.start("thread", "ls", "--json")
    assert machine.nursery.wait(reads) == 0, "reads ask nobody"
    assert run.status is None
    assert len(machine.judged()) == records, "without the lock nothing is written"
    lock.release()
    assert machine.nursery.wait(run) == 0, run.stderr
    assert machine.verdicts() == ["completed", "completed"]


def test_Q3_a_second_up_is_refused_and_told_who_is_there(machine: Machine) -> None:
    script = machine.script({"text": "done"})
    up = machine.start("up", "--script", script)
    until(lambda: "ready" in up.stderr, "it is ready", [up])
    again = machine.start("up", "--script", script)
    assert machine.nursery.wait(again) != 0
    assert f"process {up.pid}" in again.stderr
    up.send(signal.SIGTERM)
    assert machine.nursery.wait(up) == 0


def test_law_9_what_was_accepted_is_there_after_a_kill(machine: Machine) -> None:
    """Accepted through the socket, killed at once: the message is in the log and is answered."""
    script = machine.script({"text": "done", "delay_ms": 5_000})
    up = machine.start("up", "--script", script)
    until(lambda: "ready" in up.stderr, "it is ready", [up])
    run = machine.start(*RUN, script, "one", THREADLOG_SANDBOX="off")
    until(lambda: "thread " in run.stderr, "the command was accepted", [run])
    machine.nursery.kill(up)
    machine.nursery.kill(run)
    [message] = [e for e in machine.accepted() if isinstance(e.body, MessageReceived)]
    assert message.thread_id[:8] in run.stderr
    quick = machine.script({"text": "done"})
    up = machine.start("up", "--script", quick)
    until(machine.verdicts, "it is answered", [up])
