"""schemas/events/ and schemas/examples/ are what the types say: JSON Schema, one file a version.

Run as `python -m tests.schema.render --write` or `--check`. A file is named by type and version,
`turn.started.1.json`; the schema of the envelope, a structured CloudEvent, is `envelope.json`. An
example is a whole event. A type that is gone from the catalog keeps its files: logs still hold it.
schemas/openapi.json is what the routes of the gateway say.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.helpers.samples import ONE_OF_EACH
from threadlog.events.catalog import BODIES, SCHEMA_PREFIX, schema_urn
from threadlog.events.codec import _MEMBERS, to_cloud_event
from threadlog.events.envelope import Body, Event
from threadlog.gateway.app import openapi

SCHEMAS = Path(__file__).parents[2] / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
Json = dict[str, Any]
"""A schema: only its own keywords say what is in it."""


def body_schema(body: type[Body]) -> Json:
    """The schema of a body. Unknown members are allowed: readers pass them on."""
    schema = body.model_json_schema()
    return {"$schema": DRAFT, "$id": schema_urn(body.TYPE, body.VERSION), **schema}


def envelope_schema() -> Json:
    """The schema of an event on the wire, in structured mode."""
    fields = Event.model_json_schema()["properties"]
    properties: Json = {"specversion": {"const": "1.0"}}
    for field, name in _MEMBERS.items():
        # A member that is None is absent on the wire.
        kinds = [kind for kind in fields[field].get("anyOf", []) if kind != {"type": "null"}]
        kept = {**fields[field], **(kinds[0] if kinds else {})}
        properties[name] = {k: v for k, v in kept.items() if k not in ("anyOf", "default", "title")}
    required = [
        _MEMBERS[f] for f, m in Event.model_fields.items() if m.is_required() and f in _MEMBERS
    ]
    properties |= {
        "source": {"type": "string", "pattern": "^threadlog://."},
        "dataschema": {"type": "string", "pattern": f"^{SCHEMA_PREFIX}[a-z0-9._]+:[1-9][0-9]*$"},
        "datacontenttype": {"const": "application/json"},
        "partitionkey": {"type": "string", "description": "tenantid, a slash, subject"},
        "critical": {"const": True, "description": "absent where it is false"},
        "sequence": {"type": "string", "pattern": "^[0-9]{20}$", "description": "the seq"},
        "data": {"type": "object", "description": "the body; its schema is dataschema"},
        "data_base64": {"type": "string", "description": "the body's bytes, where one line cannot"},
    }
    required += ["specversion", "dataschema", "datacontenttype", "partitionkey"]
    return {
        "$schema": DRAFT,
        "$id": f"{SCHEMA_PREFIX}envelope",
        "title": "Event",
        "description": "One fact of one stream, as a structured CloudEvent.",
        "type": "object",
        "properties": properties,
        "required": sorted(required),
        "oneOf": [{"required": ["data"]}, {"required": ["data_base64"]}],
    }


def rendered() -> Iterator[tuple[Path, str]]:
    """Every file, and what must be in it."""
    yield SCHEMAS / "events/envelope.json", _text(envelope_schema())
    for body in BODIES:
        name = f"{body.TYPE}.{body.VERSION}.json"
        yield SCHEMAS / "events" / name, _text(body_schema(body))
        event = to_cloud_event(ONE_OF_EACH[body.TYPE], 7)
        yield SCHEMAS / "examples" / name, _text(json.loads(event))
    yield SCHEMAS / "openapi.json", _text(openapi())


def _text(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def stale() -> list[str]:
    """The files that are not what they must be."""
    return [
        str(path.relative_to(SCHEMAS))
        for path, text in rendered()
        if not path.is_file() or path.read_text() != text
    ]


def main(argument: str) -> int:
    if argument == "--write":
        for path, text in rendered():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return 0
    found = stale() if argument == "--check" else [__doc__]
    sys.stderr.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
