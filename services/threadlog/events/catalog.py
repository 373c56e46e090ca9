"""Which types and versions this reader knows."""

import hashlib

from threadlog.events.envelope import Body
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepFinished,
    StepReleased,
    StepStarted,
)
from threadlog.events.thread import ThreadConfigured, ThreadCreated
from threadlog.events.tool import (
    FileChanged,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.events.turn import TurnFinished, TurnStarted

BODIES: tuple[type[Body], ...] = (
    ThreadCreated,
    ThreadConfigured,
    MessageReceived,
    CancelRequested,
    TurnStarted,
    TurnFinished,
    StepStarted,
    ModelResponded,
    ModelAttemptFailed,
    ModelInterrupted,
    StepReleased,
    StepFinished,
    ToolRequested,
    ToolStarted,
    ToolReleased,
    FileChanged,
    ToolFinished,
)
CATALOG: dict[tuple[str, int], type[Body]] = {(body.TYPE, body.VERSION): body for body in BODIES}
CATALOG_DIGEST = hashlib.sha256(repr(sorted(CATALOG)).encode()).hexdigest()[:16]
"""Changes whenever a type or version is added: snapshots folded without it are folded again."""

SCHEMA_PREFIX = "urn:threadlog:schema:"


def schema_urn(event_type: str, version: int) -> str:
    """The `dataschema` of a type in a version: `urn:threadlog:schema:turn.started:1`."""
    return f"{SCHEMA_PREFIX}{event_type}:{version}"
