"""What `--json` prints of threads: lists, one thread, its tree, its usage."""

from typing import Literal

from pydantic import JsonValue

from threadlog.cli.documents import Amounts, Document
from threadlog.ports.usage import UsageGroup
from threadlog.ports.views import ThreadRow


class ThreadDocument(Document):
    """One thread. `head` is the seq of its last event; times are RFC 3339 text."""

    thread_id: str
    title: str
    status: Literal["idle", "queued", "open", "halted"]
    head: int
    turns: int
    open_turn: str | None
    queued: int
    verdict: str | None
    model: str | None
    steps: int
    usage: Amounts
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, row: ThreadRow) -> "ThreadDocument":
        """The document of a row."""
        members = {n: getattr(row, n) for n in cls.model_fields if n not in ("steps", "usage")}
        more = {"steps": row.usage.steps, "usage": Amounts.of(row.usage)}
        return cls.model_validate(members | more)


class ThreadsDocument(Document):
    """`thread ls --json`: by last activity, newest first. `has_more`: ask `--before` the last."""

    threads: tuple[ThreadDocument, ...]
    has_more: bool


class ShowDocument(Document):
    """`thread show --json`: events as structured CloudEvents; `voids` counts what has no seq.

    `voids` null: the key of the gateway may not see them.
    """

    thread: ThreadDocument
    voids: int | None
    events: tuple[dict[str, JsonValue], ...]


class TreeEvent(Document):
    """One event of a tree, in log order. `caused_by` null: a root."""

    event_id: str
    thread_id: str
    seq: int
    type: str
    caused_by: str | None
    text: str


class TreeDocument(Document):
    """`thread tree --json`. `of`: the event whose ancestors and descendants these are, or null."""

    thread_id: str
    of: str | None
    events: tuple[TreeEvent, ...]


class UsageLine(Document):
    """The sums of one group; `group` maps each grouping to its value.

    Units:   `tool_ms`: how long calls ran, milliseconds.
    """

    group: dict[UsageGroup, str]
    steps: int
    tool_ms: int
    usage: Amounts


class UsageDocument(Document):
    """`usage --json`: exact sums from the projection, and over all of them."""

    by: tuple[UsageGroup, ...]
    lines: tuple[UsageLine, ...]
    total: UsageLine


State = Literal["equal", "behind", "differs"]


class ComparedTenant(Document):
    """One tenant. `behind`: facts that metering has not counted yet; `metered` holds them, too.

    Units:   steps, tokens, millionths of a US dollar, milliseconds.
    """

    tenant: str
    state: State
    behind: int
    exact: dict[str, int]
    metered: dict[str, int]


class VerifyDocument(Document):
    """`usage --verify --json`: `state` is the worst of all tenants."""

    state: State
    tenants: tuple[ComparedTenant, ...]
