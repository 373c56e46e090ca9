"""schemas/events/ and schemas/examples/ are what the types say: JSON Schema, one file a version.

Run as `python -m tests.schema.render --write` or `--check`. A file is named by type and version,
`turn.started.1.json`; the schema of the envelope, a structured CloudEvent, is `envelope.json`. An
example is a whole event. A type that is gone from the catalog keeps its files: logs still hold it.
schemas/openapi.json is what the routes of the gateway say, schemas/asyncapi.json what the topics
hold.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.samples import ONE_OF_EACH
from threadlog.bootstrap.asyncapi import asyncapi
from threadlog.events.catalog import BODIES
from threadlog.events.codec import to_cloud_event
from threadlog.events.schemas import Json, body_schema, envelope_schema
from threadlog.gateway.app import openapi

SCHEMAS = Path(__file__).parents[2] / "schemas"


def rendered() -> Iterator[tuple[Path, str]]:
    """Every file, and what must be in it."""
    yield SCHEMAS / "events/envelope.json", _text(envelope_schema())
    for body in BODIES:
        name = f"{body.TYPE}.{body.VERSION}.json"
        yield SCHEMAS / "events" / name, _text(body_schema(body))
        event = to_cloud_event(ONE_OF_EACH[body.TYPE], 7)
        yield SCHEMAS / "examples" / name, _text(json.loads(event))
    yield SCHEMAS / "openapi.json", _text(openapi())
    yield SCHEMAS / "asyncapi.json", _text(asyncapi())


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
