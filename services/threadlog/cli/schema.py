"""`schema`: what is on the wire, in the topics and on stdout, as documents for other programs."""

import difflib
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from threadlog.bootstrap.asyncapi import asyncapi
from threadlog.cli.documents import SchemaLine, SchemaListDocument
from threadlog.cli.plain import plain
from threadlog.cli.schemas import DOCUMENTS, schema_of
from threadlog.cli.tables import aligned
from threadlog.cli.terminal import Screen
from threadlog.errors import UsageError
from threadlog.events.catalog import BODIES
from threadlog.events.schemas import body_schema, envelope_schema
from threadlog.gateway.app import openapi

_NEAR_MAX = 3
_Made = tuple[str, Callable[[], dict[str, Any]]]


def show_schema(screen: Screen, name: str | None, *, is_json: bool) -> None:
    """The document `name`, JSON in lines; None: the list of what there is.

    Raises:  UsageError: there is no such document; the message has the nearest names.
    """
    known = _known()
    if name is None:
        _show_names(screen, known, is_json=is_json)
        return
    if name not in known:
        near = difflib.get_close_matches(name, known, n=_NEAR_MAX)
        hint = f"did you mean {', '.join(near)}?" if near else "see: threadlog schema"
        raise UsageError(f"no schema {plain(name)!r}; {hint}")
    _, make = known[name]
    screen.data(json.dumps(make(), indent=2, ensure_ascii=False))


def _show_names(screen: Screen, known: Mapping[str, _Made], *, is_json: bool) -> None:
    if is_json:
        lines = tuple(SchemaLine(name=name, text=text) for name, (text, _) in known.items())
        screen.data(SchemaListDocument(schemas=lines).json_line())
        return
    for line in aligned([(name, text) for name, (text, _) in known.items()], 2):
        screen.data(line)


def _known() -> dict[str, _Made]:
    """Every document by its name, with a word on it and what makes it."""
    found: dict[str, _Made] = {
        "asyncapi": ("the topics of a cluster, AsyncAPI 3.1", asyncapi),
        "openapi": ("the routes of the gateway, OpenAPI 3.1", openapi),
        "envelope": ("an event on the wire, a structured CloudEvent", envelope_schema),
    }
    for body in BODIES:
        text = f"the payload of {body.TYPE}, version {body.VERSION}"
        found[f"{body.TYPE}.{body.VERSION}"] = (text, partial(body_schema, body))
    for document in DOCUMENTS:
        found[f"cli.{document}"] = (
            "what a command prints with --json",
            partial(schema_of, document),
        )
    return found
