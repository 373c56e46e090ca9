"""The events of a thread, page by page; their payloads are the bytes that lie in the log."""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from threadlog.api.answers import EventsBody
from threadlog.api.events import event_object
from threadlog.errors import RejectedError
from threadlog.gateway.auth import Caller, may
from threadlog.gateway.parameters import Cursor, Number
from threadlog.gateway.reading import Found, find, known_cursor
from threadlog.gateway.reads import ReadCaller
from threadlog.gateway.strict import StrictRoute
from threadlog.ids import Seq
from threadlog.limits import (
    PAGE_BYTES_MAX,
    PAGE_EVENTS_DEFAULT,
    READ_EVENTS_MAX,
    SCANNED_BYTES_MAX,
    SCANNED_EVENTS_MAX,
)
from threadlog.ports.views import StoredEvent

router = APIRouter(route_class=StrictRoute)
_READ_AT_FIRST, _READ_AT_ONCE = 8, 64
_TYPES = re.compile(r"[a-z][a-z0-9_.]{0,63}(,[a-z][a-z0-9_.]{0,63}){0,31}")
_PAGE: dict[int | str, dict[str, Any]] = {200: {"model": EventsBody}}


@dataclass(slots=True)
class _Page:
    """Events that fit one answer."""

    limit: int
    types: frozenset[str] | None
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    scanned: int = 0
    scanned_bytes: int = 0
    last: int | None = None
    is_full: bool = False

    def take(self, stored: StoredEvent) -> bool:
        """The event was looked at, and is in the page if it is asked for; False: it does not fit.

        The first one fits however large it is.
        """
        is_over = self.scanned == SCANNED_EVENTS_MAX or self.scanned_bytes >= SCANNED_BYTES_MAX
        if is_over or len(self.lines) == self.limit:
            self.is_full = True
            return False
        if self.types is None or stored.event.type in self.types:
            line = event_object(stored.event, stored.seq, stored.void)
            if self.lines and self.size + len(line) > PAGE_BYTES_MAX:
                self.is_full = True
                return False
            self.lines.append(line)
            self.size += len(line)
        self.scanned += 1
        self.scanned_bytes += len(stored.event.data)
        self.last = stored.seq
        return True


class EventsQuery(BaseModel):
    """Which events. `since`: behind this seq, ascending; `before`: newest first; else the newest.

    `types`: only of these, with commas. `voids=1`: the void ones instead, scope `ops:read`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: Cursor | None = None
    before: Number | None = None
    limit: Annotated[Number, Field(ge=1, le=READ_EVENTS_MAX)] = PAGE_EVENTS_DEFAULT
    types: str | None = None
    voids: Annotated[Number, Field(ge=1, le=1)] | None = None
    receipt: str | None = None


@router.get("/v1/threads/{thread}/events", response_class=Response, responses=_PAGE)
async def list_events(
    reader: ReadCaller, thread: str, query: Annotated[EventsQuery, Query()]
) -> Response:
    """Events: behind `since`, or before `before` with the newest first, or the newest page."""
    since, before = query.since, query.before
    if sum(given is not None for given in (since, before, query.voids)) > 1:
        raise RejectedError("query: since, before and voids exclude each other")
    page = _Page(query.limit, _types(query.types))
    found = await find(reader, thread, query.receipt)
    if query.voids is not None:
        may(reader, "ops:read")
        return await _voids(reader, found, page)
    if since is not None:
        found = await known_cursor(reader, found, since)
        await _fill(page, _ascending(reader, found, since + 1))
    elif before is not None:
        await _fill(page, _descending(reader, found, before))
    else:
        await _fill(page, _descending(reader, found, found.row.head + 1))
        page.lines.reverse()
    return _answer(page, found)


async def _fill(page: _Page, events: AsyncIterator[StoredEvent]) -> None:
    async for stored in events:
        if not page.take(stored):
            return


async def _ascending(reader: Caller, found: Found, first: int) -> AsyncIterator[StoredEvent]:
    head = found.row.head
    count = _READ_AT_FIRST
    while first <= head:
        stored = await _range(reader, found, first, min(head, first + count - 1))
        for each in stored:
            yield each
        if not stored:
            return
        first += len(stored)
        count = _fitting(stored)


async def _descending(reader: Caller, found: Found, before: int) -> AsyncIterator[StoredEvent]:
    last = min(before, found.row.head + 1) - 1
    count = _READ_AT_FIRST
    while last >= 0:
        stored = await _range(reader, found, max(0, last - count + 1), last)
        for each in reversed(stored):
            yield each
        last -= count
        count = _fitting(stored)


def _fitting(stored: Sequence[StoredEvent]) -> int:
    """How many to read at once next: about as many as fit a page, whatever their size."""
    size = sum(len(each.event.data) for each in stored)
    fitting = PAGE_BYTES_MAX * len(stored) // max(1, size)
    return max(1, min(fitting, _READ_AT_ONCE))


async def _range(reader: Caller, found: Found, first: int, last: int) -> list[StoredEvent]:
    tenant, thread = reader.credential.tenant, found.row.thread_id
    views = reader.ports.views
    limit = last - first + 1
    return list(await views.events(tenant, thread, first=Seq(first), last=Seq(last), limit=limit))


async def _voids(reader: Caller, found: Found, page: _Page) -> Response:
    tenant, thread = reader.credential.tenant, found.row.thread_id
    # One more than fits: so that the page can say that there are others.
    for stored in await reader.ports.views.voids(tenant, thread, limit=READ_EVENTS_MAX + 1):
        if not page.take(stored):
            break
    return _answer(page, found)


def _answer(page: _Page, found: Found) -> Response:
    verdict = None if found.verdict is None else found.verdict.model_dump()
    more = {
        "has_more": page.is_full,
        "next": page.last if page.is_full else None,
        "as_of_seq": found.row.head,
        "behind_ms": found.behind_ms,
        "receipt": verdict,
    }
    body = b'{"events":[%s],%s' % (b",".join(page.lines), orjson.dumps(more)[1:])
    return Response(body, media_type="application/json")


def _types(text: str | None) -> frozenset[str] | None:
    """The types that are asked for; None: all of them.

    Raises:  RejectedError: they are no types.
    """
    if text is None:
        return None
    if not _TYPES.fullmatch(text):
        raise RejectedError("query.types: types of events with commas, as message.received")
    return frozenset(text.split(","))
