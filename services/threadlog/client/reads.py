"""The views as a gateway shows them: every read is one of its routes.

What a gateway has no route for is made of the thread's own events: finding an event by its id, and
causes, which therefore end at the edge of their thread. Positions never leave a gateway.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from threadlog.api.answers import (
    AmountsBody,
    ThreadAnswer,
    ThreadsBody,
    ThreadSummary,
)
from threadlog.api.events import event_of
from threadlog.api.reports import UsageBody
from threadlog.client.connection import Connection, parsed, thread_path
from threadlog.errors import (
    CorruptError,
    NotFoundError,
    RecordError,
    RefusedError,
    ScopeMissingError,
)
from threadlog.events.content import BlobRef
from threadlog.ids import NO_POSITION, NO_SEQ, EventId, Position, Seq, TenantId, ThreadId
from threadlog.limits import CLIENT_PAGES_MAX, READ_EVENTS_MAX
from threadlog.ports.usage import (
    UsageGroup,
    UsageRow,
    UsageTotals,
)
from threadlog.ports.views import (
    Direction,
    StoredEvent,
    ThreadPlace,
    ThreadRow,
)

_LAST = Seq(2**53)


class HttpReads:
    """Implements `ports.views.Reads` for the tenant of the key, whichever is asked for.

    Shapes:  `seen`: a thread that was read; None: none was yet.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tokens: OrderedDict[ThreadPlace, str] = OrderedDict()
        self._heads: dict[ThreadId, Seq] = {}
        self.seen: ThreadId | None = None

    async def reached(self, tenant: TenantId, thread: ThreadId, position: Position) -> None:
        """Nothing: a client knows no position that it could wait for. Receipts are its way."""
        assert position == NO_POSITION, "positions never leave a gateway"

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        """The thread's row, or None."""
        try:
            found = parsed(ThreadAnswer, await self._connection.get(thread_path(thread)))
        except NotFoundError:
            return None
        self._saw(thread, found.head)
        return _row(found, tenant)

    async def threads(
        self, tenant: TenantId, *, limit: int, before: ThreadPlace | None = None
    ) -> Sequence[ThreadRow]:
        """Threads by last activity, newest first.

        A page goes on exactly behind the last one that this client has read; behind any other
        place, where the thread stands now.
        """
        rows: list[ThreadRow] = []
        while len(rows) < limit:
            query: dict[str, str | int] = {"limit": min(limit - len(rows), READ_EVENTS_MAX)}
            if before is not None and (token := self._tokens.get(before)) is not None:
                query["page"] = token
            elif before is not None:
                query["before"] = before.thread_id
            page = parsed(ThreadsBody, await self._connection.get("/v1/threads", query))
            rows += (_row(summary, tenant) for summary in page.threads)
            if page.next is None or not page.threads:
                break
            before = rows[-1].place
            self._keep(before, page.next)
        return rows

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        """Accepted events with `first` <= seq <= `last`, ascending, at most `limit`."""
        # A cursor beyond the head would be waited for.
        if first - 1 > self._heads.get(thread, NO_SEQ):
            row = await self.thread(tenant, thread)
            if row is None or first - 1 > row.head:
                return []
        found: list[StoredEvent] = []
        async for stored in self._ascending(thread, first, min(limit, last - first + 1)):
            assert stored.seq is not None
            if stored.seq > last or len(found) == limit:
                break
            found.append(stored)
        return found

    async def voids(
        self, tenant: TenantId, thread: ThreadId, *, limit: int
    ) -> Sequence[StoredEvent]:
        """Void events of the thread in log order, at most `limit`, and at most a page of them.

        Raises:  ScopeMissingError: the key may not see them.
        """
        query = {"voids": 1, "limit": min(limit, READ_EVENTS_MAX)}
        events, _ = await self._page(thread, query)
        return events

    async def find(
        self, tenant: TenantId, thread: ThreadId, event_id: EventId
    ) -> StoredEvent | None:
        """The accepted event with this id, else its first void copy, if the key may see that.

        Effects: reads the thread up to it.
        """
        async for stored in self._all(tenant, thread):
            if stored.event.event_id == event_id:
                return stored
        try:
            voids = await self.voids(tenant, thread, limit=READ_EVENTS_MAX)
        except (NotFoundError, ScopeMissingError):
            return None
        return next((s for s in voids if s.event.event_id == event_id), None)

    async def causes(
        self,
        tenant: TenantId,
        thread: ThreadId,
        event_id: EventId,
        direction: Direction,
        *,
        limit: int,
    ) -> Sequence[StoredEvent]:
        """The accepted events of this thread that caused this one, or that it caused, with itself.

        Effects: reads the whole thread. Causes in other threads are left out.
        """
        events = [stored async for stored in self._all(tenant, thread)]
        if direction == "ancestors":
            return _ancestors(events, event_id)[-limit:]
        return _descendants(events, event_id)[:limit]

    async def usage(
        self, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None = None
    ) -> Sequence[UsageRow]:
        """Sums of usage facts by `group`, in the order of the groups' values; exact."""
        query: dict[str, str | int] = {"by": ",".join(group)} if group else {}
        if thread is not None:
            query["thread"] = thread
        body = parsed(UsageBody, await self._connection.get("/v1/usage", query))
        if not group:
            return [UsageRow((), _totals(body.total), body.total_tool_ms)]
        try:
            return [
                UsageRow(
                    tuple(line.group[name] for name in group), _totals(line.usage), line.tool_ms
                )
                for line in body.lines
            ]
        except KeyError:
            raise CorruptError("the gateway answered oddly: a group has no value") from None

    async def _all(self, tenant: TenantId, thread: ThreadId) -> AsyncIterator[StoredEvent]:
        first = 0
        while True:
            page = await self.events(
                tenant, thread, first=Seq(first), last=_LAST, limit=READ_EVENTS_MAX
            )
            for stored in page:
                yield stored
            if len(page) < READ_EVENTS_MAX:
                return
            first += len(page)

    async def _ascending(
        self, thread: ThreadId, first: int, limit: int
    ) -> AsyncIterator[StoredEvent]:
        """Events from `first` on; a page may be cut short by its size."""
        since, left, has_more = first - 1, limit, True
        while has_more and left > 0:
            query = {"since": since, "limit": min(left, READ_EVENTS_MAX)}
            try:
                events, has_more = await self._page(thread, query)
            except NotFoundError:
                return
            for stored in events:
                since += 1
                if stored.seq != since:
                    raise CorruptError("the gateway answered oddly: events are not in a row")
                yield stored
            left -= len(events)
            has_more = has_more and bool(events)

    async def _page(
        self, thread: ThreadId, query: dict[str, int]
    ) -> tuple[list[StoredEvent], bool]:
        """A page of events, and whether there are more."""
        content = await self._connection.get(thread_path(thread, "/events"), query)
        lines, has_more, head = _split(content)
        self._saw(thread, head)
        return [stored_event(line, thread) for line in lines], has_more

    def _saw(self, thread: ThreadId, head: int) -> None:
        self.seen = thread
        self._heads[thread] = Seq(max(head, self._heads.get(thread, NO_SEQ)))

    def _keep(self, place: ThreadPlace, token: str) -> None:
        self._tokens[place] = token
        if len(self._tokens) > CLIENT_PAGES_MAX:
            self._tokens.popitem(last=False)


class HttpBlobs:
    """Implements `ports.blobs.Blobs`, reads alone.

    A gateway has a tenant's content under each of its threads: it is asked for under one that was
    read before.
    """

    def __init__(self, connection: Connection, reads: HttpReads) -> None:
        self._connection = connection
        self._reads = reads

    async def put(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        """Nothing is stored.

        Raises:  RefusedError: always; the gateway stores what is too long for an event.
        """
        raise RefusedError("content is stored by the gateway alone")

    async def get(self, tenant: TenantId, sha256: str) -> bytes | None:
        """The content; None: there is none, or the key may not read it."""
        if self._reads.seen is None:
            return None
        path = thread_path(self._reads.seen, f"/blobs/{sha256}")
        try:
            content = await self._connection.get(path)
        except (NotFoundError, ScopeMissingError):
            return None
        return content if hashlib.sha256(content).hexdigest() == sha256 else None


def stored_event(line: str, thread: ThreadId) -> StoredEvent:
    """The event of this line, which is one of `thread`.

    Raises:  RecordError: it is none.
    """
    try:
        event, seq, void = event_of(line)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecordError("the gateway answered oddly: not an event") from error
    if event.thread_id != thread:
        raise RecordError("the gateway answered oddly: an event of another thread")
    return StoredEvent(NO_POSITION, seq, event, void)


def _split(content: bytes) -> tuple[list[str], bool, int]:
    """The lines of the events in a page, whether there are more, and the thread's head.

    The lines are cut out as they are: a payload is the bytes that lie in the log.
    """
    start, decoder = '{"events":[', json.JSONDecoder()
    lines: list[str] = []
    try:
        text = content.decode()
        if not text.startswith(start):
            raise ValueError("not a page")
        at = len(start)
        while text[at] != "]":
            at += text[at] == ","
            _, end = decoder.raw_decode(text, at)
            lines.append(text[at:end])
            at = end
        rest = json.loads("{" + text[at + 2 :])
        return lines, bool(rest["has_more"]), int(rest["as_of_seq"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptError("the gateway answered oddly: not a page of events") from error


def _row(summary: ThreadSummary, tenant: TenantId) -> ThreadRow:
    names = ThreadSummary.model_fields.keys() - {"usage"}
    members = {name: getattr(summary, name) for name in names}
    usage = _totals(summary.usage)
    return ThreadRow(tenant_id=tenant, position=NO_POSITION, usage=usage, **members)


def _totals(amounts: AmountsBody) -> UsageTotals:
    return UsageTotals(**dict(amounts))


def _ancestors(events: Sequence[StoredEvent], event_id: EventId) -> list[StoredEvent]:
    wanted: EventId | None = event_id
    found: list[StoredEvent] = []
    for stored in reversed(events):
        # A cause precedes its effects, so one pass backwards meets the whole chain.
        if stored.event.event_id == wanted:
            found.append(stored)
            wanted = stored.event.caused_by
    return found[::-1]


def _descendants(events: Sequence[StoredEvent], event_id: EventId) -> list[StoredEvent]:
    known: set[EventId] = set()
    found: list[StoredEvent] = []
    for stored in events:
        event = stored.event
        if event.event_id == event_id or event.caused_by in known:
            known.add(event.event_id)
            found.append(stored)
    return found
