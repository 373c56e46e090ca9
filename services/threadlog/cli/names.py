"""Which thread or event a person means: a whole id, its beginning, `last`, or a seq."""

import re

from threadlog.errors import NotFoundError, UsageError
from threadlog.ids import EventId, Seq, ThreadId, is_uuid
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
)
from threadlog.queries.reading import Reader

LAST = "last"
PREFIX_CHARS_MIN = 6
_PREFIX = re.compile(r"[0-9a-f-]{6,35}")
_SHOWN_CHARS = 8
NO_THREAD = 'there is no thread yet; start one: threadlog run "PROMPT"'


async def find_thread(reader: Reader, name: str) -> ThreadRow:
    """The thread that `name` means.

    Raises:  UsageError: `name` can mean none, or means several. NotFoundError: it means none here.
    """
    if name == LAST:
        rows = await reader.views.threads(reader.tenant, limit=1)
        if not rows:
            raise NotFoundError(NO_THREAD)
        return rows[0]
    wanted = name.lower()
    if is_uuid(wanted):
        return await reader.thread(ThreadId(wanted))
    if not _PREFIX.fullmatch(wanted):
        raise UsageError(
            f"{name!r} names no thread: give an id, at least {PREFIX_CHARS_MIN} of its first "
            "characters, or last"
        )
    return await _by_prefix(reader, wanted)


async def find_event(reader: Reader, thread: ThreadId, name: str) -> StoredEvent:
    """The accepted event of the thread that `name` means: a seq, an id or its beginning.

    Raises:  UsageError: `name` can mean none. NotFoundError: it means none here.
    """
    tenant = reader.tenant
    if name.isascii() and name.isdecimal() and len(name) < PREFIX_CHARS_MIN * 2:
        seq = Seq(int(name))
        page = await reader.views.events(tenant, thread, first=seq, last=seq, limit=1)
        if page:
            return page[0]
    wanted = name.lower()
    if is_uuid(wanted):
        found = await reader.views.find(tenant, thread, EventId(wanted))
        if found is not None and found.seq is not None:
            return found
    elif _PREFIX.fullmatch(wanted):
        async for stored in reader.events(thread):
            if stored.event.event_id.startswith(wanted):
                return stored
    elif not name.isdecimal():
        raise UsageError(f"{name!r} names no event: give its seq, or its id")
    raise NotFoundError(f"the thread has no accepted event {name}")


def short(thread: ThreadId) -> str:
    """The beginning of an id that a person may type."""
    return thread[:_SHOWN_CHARS]


async def _by_prefix(reader: Reader, prefix: str) -> ThreadRow:
    found: list[ThreadRow] = []
    before = None
    while True:
        page = await reader.views.threads(reader.tenant, limit=READ_EVENTS_MAX, before=before)
        found += [row for row in page if row.thread_id.startswith(prefix)]
        if len(page) < READ_EVENTS_MAX:
            break
        before = page[-1].place
    if len(found) > 1:
        some = ", ".join(row.thread_id for row in found[:3])
        raise UsageError(f"{prefix} begins {len(found)} threads, give more of it: {some}")
    if not found:
        raise NotFoundError(f"no thread {prefix}; see them: threadlog thread ls")
    return found[0]
