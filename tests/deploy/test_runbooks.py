"""Every runbook has its parts, and each command in it is one that the command line has."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.helpers.alerts import RUNBOOKS, rules
from threadlog.cli.main import make_app

PAGES = sorted(path for path in RUNBOOKS.glob("*.md") if path.stem != "README")
PARTS = [
    "Meaning",
    "Impact",
    "First three commands",
    "Decide",
    "Recovered when",
    "When it says nothing",
]
COMMANDS_EACH = 3
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`(threadlog [^`\n]+)`")


def commands(text: str) -> list[str]:
    """What a reader may type: lines of the block, and spans in the sentences."""
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    return [*lines, *SPAN.findall(FENCE.sub("", text))]


def parse(line: str) -> None:
    """Parses a command as the command line would, and runs nothing.

    Raises:  Exception: of click, there is no such command, option or argument.
    """
    program, *arguments = shlex.split(line, comments=True)
    assert program == "threadlog", line
    command: Any = typer.main.get_command(make_app())
    parent = None
    while hasattr(command, "commands"):
        parent = command.make_context(command.name, [], parent=parent, resilient_parsing=True)
        assert arguments, f"{line}: no command"
        name, *arguments = arguments
        assert name in command.commands, f"{line}: no command {name}"
        command = command.commands[name]
    command.make_context(command.name, arguments, parent=parent)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_F104_a_runbook_has_its_parts_and_its_commands_exist(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    [block] = FENCE.findall(text)
    assert len(block.splitlines()) == COMMANDS_EACH
    for line in commands(text):
        parse(line)


@pytest.mark.parametrize(
    "line",
    ["threadlog lag", "threadlog doctor --deep", "threadlog thread show", "threadlog topics"],
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    with pytest.raises((AssertionError, Exception), match=r"no command|No such option|Missing"):
        parse(line)


def test_a_runbook_says_the_severities_of_its_alert() -> None:
    for page in PAGES:
        [said] = re.findall(r"^Severity: (.+?)\. ", page.read_text(), re.MULTILINE)
        real = {rule.labels["severity"] for rule in rules() if rule.name == page.stem}
        assert set(re.findall(r"page|ticket|warning", said)) == real, page.stem


def test_the_index_names_every_runbook() -> None:
    index = (RUNBOOKS / "README.md").read_text()
    assert re.findall(r"\| \[(\w+)\]\(\1\.md\)", index) == [page.stem for page in PAGES]


def test_runbooks_name_alerts_that_exist() -> None:
    names = {rule.name for rule in rules()}
    for page in PAGES:
        assert set(re.findall(r"\bThreadlog[A-Z]\w+", page.read_text())) <= names, page.stem
