"""F89: schemas and examples are what the types say, and the newest reader reads every example."""

import json
from pathlib import Path

import pytest
from cloudevents.core.formats.json import JSONFormat

from tests.schema import render
from tests.schema.render import SCHEMAS, main, rendered, stale
from threadlog.events.catalog import BODIES, schema_urn
from threadlog.events.codec import from_cloud_event
from threadlog.events.envelope import Body
from threadlog.events.schemas import DRAFT, body_schema

FILES = [path for path, _ in rendered()]
EXAMPLES = sorted(SCHEMAS.glob("examples/*.json"))


def test_F89_committed_schemas_and_examples_are_what_the_types_say() -> None:
    assert stale() == [], "make schemas"


def test_F89_every_type_and_version_has_a_schema_and_an_example() -> None:
    names = {f"{body.TYPE}.{body.VERSION}.json" for body in BODIES}
    assert {path.name for path in FILES} == names | {
        "envelope.json",
        "openapi.json",
        "asyncapi.json",
    }
    assert names <= {path.name for path in EXAMPLES}
    assert names <= {path.name for path in SCHEMAS.glob("events/*.json")}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_F89_the_newest_reader_reads_every_example(path: Path) -> None:
    """Examples of versions that are gone from the catalog included: they were in logs."""
    event, seq = from_cloud_event(path.read_bytes())
    assert isinstance(event.body, Body)
    assert path.name == f"{event.type}.{event.version}.json"
    assert seq == 7
    assert JSONFormat().read(None, path.read_bytes()).get_id() == event.event_id


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_F89_an_example_fits_its_schemas(path: Path) -> None:
    example = json.loads(path.read_text())
    envelope = json.loads((SCHEMAS / "events/envelope.json").read_text())
    assert set(envelope["required"]) <= set(example) <= set(envelope["properties"])
    schema = json.loads((SCHEMAS / "events" / path.name).read_text())
    assert set(schema.get("required", ())) <= set(example["data"]) <= set(schema["properties"])
    assert example["dataschema"] == schema["$id"]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.TYPE)
def test_F89_a_schema_says_what_the_reader_does(body: type[Body]) -> None:
    schema = body_schema(body)
    assert (schema["$schema"], schema["$id"]) == (DRAFT, schema_urn(body.TYPE, body.VERSION))
    assert schema["type"] == "object"
    assert "additionalProperties" not in schema, "unknown members are ignored"
    assert schema["description"], "the type's own sentence"


def test_F89_a_changed_type_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "SCHEMAS", tmp_path)
    assert main("--check") == 1
    assert main("--write") == 0
    assert main("--check") == 0
    (tmp_path / "events/turn.started.1.json").write_text("{}")
    assert stale() == ["events/turn.started.1.json"]
    assert main("--check") == 1
    assert main("--help") == 1
