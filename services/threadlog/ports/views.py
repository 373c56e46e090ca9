"""The views port: what the projection has made of the log, and every read is served from.

All rows of one batch and the watermark move together, and only when the stored watermark is the
one that the batch expects: a reader never sees half a batch, and a view that lost writes is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, EventId, Position, Seq, TenantId, ThreadId, TurnId
from threadlog.ports.log import Record
from threadlog.ports.snapshots import Snapshot
from threadlog.ports.usage import UsageFact, UsageGroup, UsageRow, UsageTotals

ThreadStatus = Literal["idle", "queued", "open", "halted"]
Direction = Literal["ancestors", "descendants"]


@dataclass(frozen=True, slots=True)
class Judged:
    """The fold's judgement of one record: either a seq, or the reason why it is void."""

    position: Position
    event: Event
    seq: Seq | None
    void: str | None = None

    @property
    def event_id(self) -> EventId:
        """The event's id."""
        return self.event.event_id


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its judgement, as a reader sees it. `seq` None: void, for `void`'s reason."""

    position: Position
    seq: Seq | None
    event: Event
    void: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """Where a thread stood in the list of its tenant when it was read: a page begins behind it."""

    updated_at: str
    position: Position
    thread_id: ThreadId


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """One thread in a list.

    Shapes:  `status`: `halted` means that a critical event of an unknown type stopped it.
             `verdict` is the last finished turn's; `created_at` and `updated_at` are RFC 3339 text
             of the first and the last accepted event.
    """

    tenant_id: TenantId
    thread_id: ThreadId
    title: str
    status: ThreadStatus
    head: Seq
    position: Position
    turns: int
    open_turn: TurnId | None
    queued: int
    verdict: str | None
    model: str | None
    usage: UsageTotals
    created_at: str
    updated_at: str

    @property
    def place(self) -> ThreadPlace:
        """Where it stands in the list."""
        return ThreadPlace(self.updated_at, self.position, self.thread_id)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A pointer to a record that no reader can use; never its content."""

    position: Position
    reason: str


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """All rows that come of the records between two watermarks."""

    expected: Position
    watermark: Position
    judged: Sequence[Judged] = ()
    threads: Sequence[ThreadRow] = ()
    snapshots: Sequence[Snapshot] = ()
    usage: Sequence[UsageFact] = ()
    dead_letters: Sequence[DeadLetter] = field(default=())


@dataclass(frozen=True, slots=True)
class OpenThreads:
    """Every thread, of all tenants, whose status was `open` or `queued` as of `watermark`."""

    watermark: Position
    threads: Sequence[tuple[TenantId, ThreadId]]


class PartitionViews(Protocol):
    """The views of one partition of the log: what its projection writes and its workers wait for.

    An embedded log has one partition.
    """

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        """The stored watermark, from which the projection goes on.

        Shapes:  `end`: how far the log is known to go. `reached`: where the watermark is known to
                 have been; `NO_POSITION` when the caller knows of nothing.
        Effects: where nothing is stored any more, readers are refused until the watermark has
                 reached both: a lost view is never an empty one. Where the stored watermark is
                 below `reached`, they are refused until it is there again: what a reader has seen
                 does not vanish. Otherwise nothing changes. Repeating it is harmless.
        Raises:  CorruptError: what is stored belongs to another log.
                 RefusedError: another version has made it, and this one can not go on from there.
        """
        ...

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        """The stored watermark after the call: `batch.watermark` exactly when all was applied.

        Effects: rows and watermark move in one step, if the stored watermark is `batch.expected`;
                 else nothing changes and the answer is the stored one: seek there and fold again.
                 `urgent` False lets it wait a few milliseconds for company.
        Raises:  TransientError: unknown whether it was applied; compare the watermark.
        """
        ...

    async def watermark(self) -> Position:
        """The position up to which everything was applied; `NO_POSITION` when nothing was."""
        ...

    async def wait(self, position: Position) -> None:
        """The watermark has reached `position`. Waits as long as it takes: bound it outside."""
        ...

    async def row(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        """The thread's row as it is stored, for the projection: while readers are refused, too."""
        ...

    async def open_threads(self) -> OpenThreads:
        """The threads that are open or queued, and the watermark, of one moment.

        Raises:  TransientError: the views are being rebuilt, or cannot be reached.
        """
        ...


class Reads(Protocol):
    """What is shown to people and programs. Foreign and missing ids give the same answer.

    Raises:  TransientError: the views are being rebuilt, or cannot be reached.
    """

    async def reached(self, tenant: TenantId, thread: ThreadId, position: Position) -> None:
        """Everything of the thread up to `position` is in the views. Bound it outside."""
        ...

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        """The thread's row, or None."""
        ...

    async def threads(
        self, tenant: TenantId, *, limit: int, before: ThreadPlace | None = None
    ) -> Sequence[ThreadRow]:
        """Threads by last activity, newest first; `before`: the place of the last one seen."""
        ...

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        """Accepted events with `first` <= seq <= `last`, ascending, at most `limit`."""
        ...

    async def voids(
        self, tenant: TenantId, thread: ThreadId, *, limit: int
    ) -> Sequence[StoredEvent]:
        """Void events of the thread in log order, at most `limit`."""
        ...

    async def find(
        self, tenant: TenantId, thread: ThreadId, event_id: EventId
    ) -> StoredEvent | None:
        """The accepted event with this id, else its first void copy, else None."""
        ...

    async def causes(
        self,
        tenant: TenantId,
        thread: ThreadId,
        event_id: EventId,
        direction: Direction,
        *,
        limit: int,
    ) -> Sequence[StoredEvent]:
        """The accepted events that caused this one, or that it caused, with itself, in log order.

        Shapes:  `thread` holds the event that is asked for; events of different partitions have no
                 order among each other, so those of a thread stand together then.

        One query; it crosses threads of the tenant. A cause precedes its effects in the log: an
        id in `caused_by` that comes only later is no link.
        """
        ...

    async def usage(
        self, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None = None
    ) -> Sequence[UsageRow]:
        """Sums of usage facts by `group`, in the order of the groups' values; exact."""
        ...


class Views(Reads, Protocol):
    """The readers' side of all partitions, with what services need to load a thread."""

    async def records(
        self, tenant: TenantId, thread: ThreadId, *, after: Position, before: Position
    ) -> Sequence[Record]:
        """The thread's records with `after` < position < `before`, in log order, judged or not.

        Effects: waits until the adapter can know them all: where the view is built from a remote
                 log that means a watermark of at least `before` - 1.
        """
        ...
