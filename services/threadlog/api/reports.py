"""Bodies of answers: a thread's inbox and prompts, usage, models, the gateway itself. Pure."""

from pydantic import JsonValue

from threadlog.api.answers import (
    AmountsBody,
    Answer,
    Fresh,
)
from threadlog.ids import EventId


class QueuedBody(Answer):
    """A message that waits in the inbox."""

    message_id: EventId
    seq: int
    delivery: str
    actor: str
    occurred_at: str
    content: JsonValue


class QueueBody(Fresh):
    """A page of the inbox, in the order of arrival. `has_more`: go on with `since` the last seq."""

    messages: tuple[QueuedBody, ...]
    has_more: bool


class PromptBody(Fresh):
    """A model request, rebuilt from the log: `matches` says that it has the hash that was logged.

    `request` is the exact body that was sent, as text.
    """

    seq: int
    renderer: str
    request_sha256: str
    rebuilt_sha256: str
    matches: bool
    request: str


class UsageLineBody(Answer):
    """The sums of one group; `group` maps each grouping to its value.

    Units:   `tool_ms`: how long calls ran, milliseconds.
    """

    group: dict[str, str]
    usage: AmountsBody
    tool_ms: int


class UsageBody(Fresh):
    """Exact sums, by group and over all of them."""

    by: tuple[str, ...]
    lines: tuple[UsageLineBody, ...]
    total: AmountsBody
    total_tool_ms: int


class ModelEntry(Answer):
    """A model that threads of the tenant may use."""

    provider: str
    name: str


class ModelsBody(Answer):
    """The models that may be used. `any`: others may be, too, if the planners know them."""

    models: tuple[ModelEntry, ...]
    default: ModelEntry | None
    any: bool


class InfoBody(Answer):
    """Who answers, and what it takes.

    `models`: a hash of each provider's configuration, equal in equal processes; empty where other
    processes ask the models. `limits`: bytes, counts and milliseconds by name.
    """

    version: str
    event_schema: str
    capabilities: tuple[str, ...]
    limits: dict[str, int]
    scopes: tuple[str, ...]
    tenant_id: str
    models: dict[str, str]
