"""Documents stay short and name only what is there."""

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.arch.tree import PACKAGE, ROOT, files, name_of

README_LINES_MAX = 200
DECISION_LINES_MAX = 60
LINE_CHARS_MAX = 200

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# A path in back ticks that starts like ours; a star or an angle bracket makes it a pattern.
PATH = re.compile(
    r"`((?:services|tests|docs|schemas|examples|deploy|helm|\.ci)/[\w./-]*|[A-Z]+\.md|Makefile)`"
)
TARGET = re.compile(r"\bmake ([a-z-]+)\b")


def documents() -> Iterator[tuple[str, str]]:
    for path in files():
        if path.suffix == ".md":
            yield name_of(path), path.read_text()


def test_readme_and_decisions_are_short() -> None:
    lengths = {name: len(text.splitlines()) for name, text in documents()}
    assert lengths["README.md"] <= README_LINES_MAX
    decisions = {name: n for name, n in lengths.items() if name.startswith("docs/decisions/")}
    assert not [name for name, lines in decisions.items() if lines > DECISION_LINES_MAX]


def test_decisions_are_numbered_without_a_gap_and_have_their_parts() -> None:
    names = sorted(
        name.rpartition("/")[2]
        for name, _ in documents()
        if name.startswith("docs/decisions/") and not name.endswith("README.md")
    )
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for name, text in documents():
        if name.rpartition("/")[2] in names and name.startswith("docs/decisions/"):
            for part in ("## Problem", "## Decision", "## Alternatives", "## Costs"):
                assert part in text, f"{name} has no {part}"


def test_links_lead_somewhere() -> None:
    dead = []
    for name, text in documents():
        for target in LINK.findall(FENCE.sub("", text)):
            path = target.partition("#")[0]
            if ":" in target or not path:
                continue
            if not (ROOT / name).parent.joinpath(path).exists():
                dead.append(f"{name}: {target}")
    assert not dead


def test_paths_in_documents_exist() -> None:
    dead = [
        f"{name}: {path}"
        for name, text in documents()
        for path in PATH.findall(text)
        if not (ROOT / path).exists()
    ]
    assert not dead


def test_make_targets_in_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    dead = [
        f"{name}: make {target}"
        for name, text in documents()
        for span in re.findall(r"`[^`\n]*`", text) + FENCE.findall(text)
        for target in TARGET.findall(span)
        if target not in targets
    ]
    assert not dead


def test_every_make_target_is_in_its_own_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    helped = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    assert targets == helped


def test_the_changelog_knows_the_version() -> None:
    scope: dict[str, str] = {}
    exec((ROOT / "services/threadlog/version.py").read_text(), scope)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {scope['VERSION']}" in changelog
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    assert hatch["version"]["path"] == "services/threadlog/version.py"


@pytest.mark.parametrize("service", ["planner", "tool_runner", "projection"])
def test_the_table_of_services_says_what_their_modules_say(service: str) -> None:
    """Column `appends` of services/README.md = `Out:` of the service's own docstring."""
    event_type = re.compile(r"\b[a-z]+\.[a-z]+(?:_[a-z]+)*\b")
    module = ast.parse((PACKAGE / service / "service.py").read_text())
    out = (ast.get_docstring(module) or "").partition("Out:")[2]
    table = (ROOT / "services/README.md").read_text()
    [row] = [x for x in table.splitlines() if x.startswith(f"| {service.replace('_', '-')} |")]
    assert set(event_type.findall(row.split("|")[3])) == set(event_type.findall(out))
