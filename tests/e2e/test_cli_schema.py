"""`threadlog schema` prints what `schemas/` holds, from the installed program alone."""

import json
from pathlib import Path

import pytest

from tests.arch.tree import ROOT
from tests.helpers.command_line import CommandLine
from tests.helpers.json_schema import findings

SCHEMAS = ROOT / "schemas"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("asyncapi", "asyncapi.json"),
        ("openapi", "openapi.json"),
        ("envelope", "events/envelope.json"),
        ("turn.started.1", "events/turn.started.1.json"),
        ("cli.usage", "cli/usage.schema.json"),
    ],
)
def test_F89_a_schema_is_the_committed_one(tmp_path: Path, name: str, path: str) -> None:
    ended = CommandLine(tmp_path).run("schema", name)
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == json.loads((SCHEMAS / path).read_text())


def test_F89_every_committed_schema_has_a_name_and_can_be_found(tmp_path: Path) -> None:
    ended = CommandLine(tmp_path).run("schema", "--json")
    document = json.loads(ended.out)
    schema = json.loads((SCHEMAS / "cli/schema.schema.json").read_text())
    assert findings(document, schema) == []
    names = {line["name"] for line in document["schemas"]}
    events = {path.name.removesuffix(".json") for path in SCHEMAS.glob("events/*.json")}
    cli = {f"cli.{path.name.removesuffix('.schema.json')}" for path in SCHEMAS.glob("cli/*.json")}
    assert names == events | cli | {"asyncapi", "openapi"}
    table = CommandLine(tmp_path).run("schema").out
    assert {line.split()[0] for line in table.splitlines()} == names


def test_F89_an_unknown_schema_names_the_nearest(tmp_path: Path) -> None:
    ended = CommandLine(tmp_path).run("schema", "turn.start.1")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean turn.started.1" in ended.err
