"""The page of commands and the schemas of their output are what the code says now."""

import json

import pytest

from tests.arch.render_cli_docs import CODES, PAGE, SCHEMAS, main, pages, schemas
from tests.helpers.json_schema import findings
from threadlog.cli.failures import ExitCode


def test_page_and_schemas_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["--check"]) == 0, "run: make docs"
    assert {path.name for path in SCHEMAS.iterdir()} == {path.name for path in schemas()}


def test_F83_every_exit_code_is_documented() -> None:
    assert list(CODES) == list(ExitCode)
    text = PAGE.read_text()
    for code in ExitCode:
        assert f"| {code.value} | " in text


def test_every_command_opens_its_help_with_examples() -> None:
    helped = dict(pages())
    assert {"threadlog run", "threadlog thread tree", "threadlog demo"} <= helped.keys()
    for path, text in helped.items():
        assert text.startswith("Examples:\n"), path
        assert max(map(len, text.splitlines())) <= 100, path


def test_the_validator_of_the_tests_finds_what_is_wrong() -> None:
    schema = json.loads((SCHEMAS / "run.schema.json").read_text())
    usage = dict.fromkeys(["input", "output", "cache_read", "cache_write", "reasoning"], 1)
    right = {
        "thread_id": "t",
        "turn_id": "u",
        "seq": 3,
        "verdict": "completed",
        "cause": None,
        "answer": "yes",
        "steps": 1,
        "usage": usage | {"cost_micros": None},
    }
    assert findings(right, schema) == []
    for wrong in (
        right | {"seq": "3"},
        right | {"steps": True},
        right | {"more": 1},
        right | {"usage": usage},
        {name: value for name, value in right.items() if name != "answer"},
    ):
        assert len(findings(wrong, schema)) == 1, wrong
