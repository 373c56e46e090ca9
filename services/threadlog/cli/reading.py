"""`thread ls|show|tree`: reads of the file, whoever runs on it, or nobody."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from threadlog.bootstrap.reading import has_log, reading
from threadlog.cli.event_text import event_text
from threadlog.cli.names import NO_THREAD, find_event, find_thread, short
from threadlog.cli.plain import cut, one_line
from threadlog.cli.show import Page, header
from threadlog.cli.tables import aligned
from threadlog.cli.terminal import Screen
from threadlog.cli.thread_documents import (
    ShowDocument,
    ThreadDocument,
    ThreadsDocument,
    TreeDocument,
    TreeEvent,
)
from threadlog.cli.tree import arrange, draw
from threadlog.cli.window import Window, window_events
from threadlog.errors import NotFoundError, ScopeMissingError
from threadlog.events.codec import to_cloud_event
from threadlog.ids import EventId, ThreadId
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
)
from threadlog.queries.reading import Reader
from threadlog.settings import Settings

_CAUSES_MAX = 2_000


@asynccontextmanager
async def open_reader(settings: Settings) -> AsyncIterator[Reader]:
    """A reader of the log.

    Raises:  NotFoundError: there is no log yet; says how to begin one.
    """
    async with AsyncExitStack() as stack:
        try:
            reader = await stack.enter_async_context(reading(settings))
        except NotFoundError:
            if settings.url is not None:
                raise
            raise NotFoundError(f"{NO_THREAD} (no log at {settings.log_file()})") from None
        yield reader


async def ls(
    settings: Settings, screen: Screen, *, limit: int, before: str | None, is_json: bool
) -> None:
    """Threads by last activity, newest first."""
    rows: list[ThreadRow] = []
    if before is not None or has_log(settings):
        async with open_reader(settings) as reader:
            place = None if before is None else (await find_thread(reader, before)).place
            rows += await reader.views.threads(reader.tenant, limit=limit + 1, before=place)
    has_more, rows = len(rows) > limit, rows[:limit]
    if is_json:
        entries = tuple(ThreadDocument.of(row) for row in rows)
        screen.data(ThreadsDocument(threads=entries, has_more=has_more).json_line())
        return
    if not rows:
        screen.note(NO_THREAD)
    for line in _table(rows):
        screen.data(cut(line, screen.out.columns))
    if has_more:
        screen.note(f"older ones: threadlog thread ls --before {short(rows[-1].thread_id)}")


async def show(
    settings: Settings, screen: Screen, name: str, window: Window, *, is_json: bool
) -> None:
    """The header and the transcript of one thread."""
    async with open_reader(settings) as reader:
        row = await find_thread(reader, name)
        events = await window_events(reader, row, window)
        voids = await _count_voids(reader, row.thread_id)
    if is_json:
        objects = tuple(json.loads(to_cloud_event(e.event, e.seq)) for e in events)
        document = ShowDocument(thread=ThreadDocument.of(row), voids=voids, events=objects)
        screen.data(document.json_line())
        return
    _tell_cut(screen, events)
    for line in header(row, _some(voids), screen.out):
        screen.data(line)
    screen.data("")
    for line in Page(screen.out).lines(events):
        screen.data(line)


async def _count_voids(reader: Reader, thread: ThreadId) -> int | None:
    """How many events are void; None: whoever asks may not know it."""
    try:
        return len(await reader.views.voids(reader.tenant, thread, limit=READ_EVENTS_MAX))
    except ScopeMissingError:
        return None


def _some(voids: int | None) -> str:
    if voids is None:
        return "an unknown number"
    return f"{voids}{' or more' if voids == READ_EVENTS_MAX else ''}"


async def tree(
    settings: Settings,
    screen: Screen,
    name: str,
    window: Window,
    *,
    of: str | None,
    is_json: bool,
) -> None:
    """The events by cause: all of a thread, or the ancestors and descendants of one."""
    marked: EventId | None = None
    async with open_reader(settings) as reader:
        row = await find_thread(reader, name)
        if of is None:
            events = await window_events(reader, row, window)
        else:
            marked = (await find_event(reader, row.thread_id, of)).event.event_id
            events = await _family(reader, row.thread_id, marked)
    if is_json:
        screen.data(_tree_document(row.thread_id, marked, events).json_line())
        return
    if of is None:
        _tell_cut(screen, events)
    for line in draw(arrange(events), screen.out, marked):
        screen.data(line)


async def _family(reader: Reader, thread: ThreadId, event_id: EventId) -> list[StoredEvent]:
    """Ancestors and descendants, with the event itself, in log order."""
    views, tenant = reader.views, reader.tenant
    above = await views.causes(tenant, thread, event_id, "ancestors", limit=_CAUSES_MAX)
    below = await views.causes(tenant, thread, event_id, "descendants", limit=_CAUSES_MAX)
    # Whatever caused it came before it, whatever it caused came after it.
    found = {stored.event.event_id: stored for stored in (*above, *below)}
    return list(found.values())


def _tree_document(
    thread: ThreadId, marked: EventId | None, events: list[StoredEvent]
) -> TreeDocument:
    entries = tuple(
        TreeEvent(
            event_id=stored.event.event_id,
            thread_id=stored.event.thread_id,
            seq=stored.seq or 0,
            type=stored.event.type,
            caused_by=stored.event.caused_by,
            text=event_text(stored.event),
        )
        for stored in events
    )
    return TreeDocument(thread_id=thread, of=marked, events=entries)


def _tell_cut(screen: Screen, events: list[StoredEvent]) -> None:
    first = events[0].seq if events else 0
    if first:
        screen.note(f"{first:,} earlier events: --from 0")


def _table(rows: list[ThreadRow]) -> list[str]:
    head = ("THREAD", "STATUS", "TURNS", "VERDICT", "MODEL", "UPDATED", "TITLE")
    lines = [
        (
            short(row.thread_id),
            row.status,
            str(row.turns),
            row.verdict or "-",
            one_line(row.model or "-"),
            row.updated_at[:16].replace("T", " "),
            one_line(row.title),
        )
        for row in rows
    ]
    return aligned([head, *lines]) if rows else []
