"""The envelope that every event travels in, and the base of every event body.

The envelope names the event, its stream, its cause and its writer; the body is the fact. `data`
holds the body's JSON bytes exactly as they are in the log, so that a reader that does not know a
member or a whole type passes it on unchanged.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from threadlog.events.content import Frozen
from threadlog.events.trace import PARENT_PATTERN
from threadlog.ids import (
    TENANT_PATTERN,
    UUID_PATTERN,
    EventId,
    TenantId,
    ThreadId,
    TurnId,
    WorkerId,
    WorkspaceId,
)
from threadlog.limits import TRACESTATE_CHARS_MAX

_ID = f"^{UUID_PATTERN}$"


class Body(Frozen):
    """Base of every event body. A subclass is one type in one version.

    `CRITICAL` is True for a type whose acceptance depends on state, or that changes what is
    accepted or decided after it: a reader that does not know it stops the thread.
    """

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    CRITICAL: ClassVar[bool] = True


class Opaque(Frozen):
    """A body of an unknown type or a newer version: accepted with a seq, never interpreted."""


class Invalid(Frozen):
    """A body that does not fit the schema of its type and version: void for every reader."""

    problem: str


class Event(BaseModel):
    """One fact of one stream.

    Shapes:  `data` is the body's JSON, byte for byte as in the log; `body` is what it decodes to.
             `traceparent`, `tracestate`: as `events.trace` has them; nothing depends on them.
    Units:   `occurred_at` is RFC 3339 text of the writer's clock: shown, never ordered by.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    event_id: EventId = Field(pattern=_ID)
    type: str = Field(pattern=r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$", max_length=64)
    version: int = Field(ge=1, le=1_000_000)
    tenant_id: TenantId = Field(pattern=f"^{TENANT_PATTERN}$")
    thread_id: ThreadId = Field(pattern=_ID)
    turn_id: TurnId | None = Field(default=None, pattern=_ID)
    caused_by: EventId | None = Field(default=None, pattern=_ID)
    actor: str = Field(min_length=1, max_length=256)
    source: str = Field(min_length=1, max_length=64)
    worker: WorkerId | None = Field(default=None, max_length=64)
    workspace_id: WorkspaceId | None = Field(default=None, max_length=64)
    idempotency_key: str | None = Field(default=None, max_length=256)
    occurred_at: str = Field(max_length=64)
    critical: bool = False
    traceparent: str | None = Field(default=None, pattern=PARENT_PATTERN)
    tracestate: str | None = Field(default=None, max_length=TRACESTATE_CHARS_MAX)
    body: Body | Opaque | Invalid
    data: bytes

    @property
    def key(self) -> str:
        """The record key of the stream, `tenant/thread_id`."""
        return f"{self.tenant_id}/{self.thread_id}"
