"""The demo judges itself, and its script fits the example."""

import hashlib
import json
from pathlib import Path

import pytest

import threadlog
from tests.arch.tree import ROOT
from tests.helpers.turns import finished, happened, requested, stored
from threadlog.adapters.model_api.script import load_script
from threadlog.cli import demo as module
from threadlog.cli.demo import clone, demo, is_repaired
from threadlog.cli.terminal import Screen
from threadlog.errors import RefusedError
from threadlog.events.envelope import Body
from threadlog.ports.tools import Finding
from threadlog.settings import Settings
from threadlog.thread.command_line import Edit, Read, ReplaceText, ShellLine, parse

EXAMPLE = ROOT / "examples/broken-calculator"
SCRIPT = ROOT / "examples/demo-script.json"


def outcomes(*runs: tuple[str, str]) -> bool:
    """Whether the demo is content with these commands and outcomes."""
    bodies: list[tuple[str, Body]] = []
    for n, (command, outcome) in enumerate(runs):
        bodies.append((f"c{n}", requested(0, command)))
        if outcome:
            bodies.append((f"f{n}", finished(f"c{n}", outcome)))
    return is_repaired(stored([happened(name, body) for name, body in bodies]))


def test_only_the_last_run_of_the_tests_counts() -> None:
    tests = "python3 -m unittest"
    assert outcomes((tests, "error"), ("ls", "error"), (tests, "ok"), ("ls", "error"))
    assert not outcomes((tests, "ok"), (tests, "error"))
    assert not outcomes((tests, "ok"), (tests, ""))
    assert not outcomes(("ls", "ok"))
    assert not outcomes()


def test_the_script_repairs_the_example_as_it_is() -> None:
    replies = load_script(SCRIPT).replies
    lines = [
        json.loads(str(call.arguments))["command"] for r in replies for call in r.model_calls(0)
    ]
    commands = [parse(line) for line in lines]
    assert [type(command) for command in commands] == [Read, Read, ShellLine, Edit, ShellLine]
    assert {command.path for command in commands if isinstance(command, Read)} == {
        path.name for path in EXAMPLE.glob("*.py")
    }
    edit = commands[3]
    assert isinstance(edit, Edit)
    assert isinstance(edit.change, ReplaceText)
    content = (EXAMPLE / edit.path).read_bytes()
    assert hashlib.sha256(content).hexdigest().startswith(edit.base)
    assert content.decode().count(edit.change.old) == 1
    assert replies[-1].text
    assert not replies[-1].calls


def test_the_clone_is_found_and_a_wheel_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert clone() == ROOT
    monkeypatch.setattr(threadlog, "__file__", str(tmp_path / "a/b/__init__.py"))
    with pytest.raises(RefusedError, match="make demo"):
        clone()


class NoSandbox:
    """Tools on a machine where no sandbox can be had."""

    def __init__(self, finding: Finding) -> None:
        self._finding = finding

    async def check(self) -> tuple[Finding, ...]:
        return (Finding("ok", "bwrap", "/usr/bin/bwrap"), self._finding)


@pytest.mark.parametrize("fix", ["install bubblewrap", "or set THREADLOG_SANDBOX=off"])
async def test_without_a_sandbox_it_says_why_and_names_the_switch(
    fix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("fail", "start", "No permissions to create a new namespace", fix)
    monkeypatch.setattr(module, "make_tools", lambda _: NoSandbox(finding))
    with pytest.raises(RefusedError) as caught:
        await demo(Settings(), Screen())
    message = str(caught.value)
    assert finding.evidence in message
    assert fix in message
    assert message.count("THREADLOG_SANDBOX=off") == 1
    assert capsys.readouterr().out == ""
