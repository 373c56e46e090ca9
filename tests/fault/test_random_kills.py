"""P3: ten kills at random moments, with a model server of its own, end where no kill would have.

Which moments follows from the seed and from how far the log has grown; the seed is printed.
"""

import random
import signal
from pathlib import Path

import pytest

from tests.helpers.machine import NOTE, Machine, until
from tests.helpers.nursery import Child, Nursery
from threadlog.thread.messages import AssistantMessage, ToolMessage, UserMessage
from threadlog.thread.transcript import Transcript

KILLS = 10
SEED = 20_261_130
STEPS = 14
SCRIPT = (
    *(
        {
            "text": f"step {n}",
            "calls": [f"{NOTE}; echo {n}", "read notes.txt"],
            "delay_ms": 20,
        }
        for n in range(STEPS)
    ),
    {"text": "done", "delay_ms": 20},
)
MODEL = ("--model", "openai/scripted")


@pytest.fixture
def server(children: Nursery, short_dir: Path) -> str:
    """The address of `threadlog scripted-model`, a process of its own."""
    home = short_dir / "server"
    home.mkdir()
    machine = Machine(children, home)
    child = machine.start("scripted-model", machine.script(*SCRIPT))
    until(lambda: "\n" in child.stdout, "the server says its address", [child])
    return child.stdout.strip()


def told(machine: Machine) -> list[tuple[str, ...]]:
    """Who said what, without ids; the text of a call whose worker died is `unknown`."""
    transcript = Transcript()
    for event in machine.accepted():
        transcript.add(event)
    lines: list[tuple[str, ...]] = []
    for said in transcript.messages():
        match said:
            case UserMessage(parts=parts):
                lines.append(("user", str(parts)))
            case AssistantMessage(parts=parts, calls=calls):
                lines.append(("model", str(parts), *(str(c.arguments) for c in calls)))
            case ToolMessage(text=text):
                lines.append(("tool", "unknown" if "outcome unknown" in str(text) else str(text)))
    return lines


def run_to_end(machine: Machine) -> None:
    run = machine.start("run", "go", "--workspace", ".", *MODEL)
    assert machine.nursery.wait(run) == 0, run.stderr


def records(machine: Machine) -> int:
    return len(machine.judged())


@pytest.mark.timeout(90)
def test_P3_ten_kills_at_random_moments_end_where_no_kill_would_have(
    children: Nursery, short_dir: Path, server: str
) -> None:
    undisturbed, killed = (Machine(children, short_dir / name, server) for name in ("a", "b"))
    for machine in (undisturbed, killed):
        machine.home.mkdir()
    run_to_end(undisturbed)
    rng = random.Random(SEED)
    print(f"seed {SEED}")  # noqa: T201  # a failure is run again with it
    child: Child = killed.start("run", "go", "--workspace", ".", *MODEL)
    for _ in range(KILLS):
        # A claim, its settlement and the next claim are three: more of them is progress.
        grown = max(records(killed), 3) + rng.randint(3, 8)
        until(lambda grown=grown: records(killed) >= grown, "the log grows", [child])  # type: ignore[misc]  # bound now
        children.kill(child)
        assert child.status == -signal.SIGKILL, "it had ended before the kill"
        assert not killed.verdicts(), "the turn had ended before the kill"
        child = killed.start("up")
    until(killed.verdicts, "the turn has ended", [child])
    child.send(signal.SIGTERM)
    assert children.wait(child) == 0, child.stderr
    assert killed.verdicts() == undisturbed.verdicts() == ["completed"]
    lines = told(killed)
    unknown = ("tool", "unknown")
    for line, wanted in zip(lines, told(undisturbed), strict=True):
        assert line in (wanted, unknown)
    settled = [o for o in killed.outcomes() if o.outcome == "unknown"]
    assert [o.by for o in settled] == ["settlement"] * lines.count(unknown)
    assert lines.count(unknown) <= KILLS
    for machine in (undisturbed, killed):
        machine.check_effects()
    assert len(undisturbed.effects()) == STEPS
    assert STEPS - lines.count(unknown) <= len(killed.effects()) <= STEPS
