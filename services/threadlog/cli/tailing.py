"""`thread tail`: events as they are, one a line, and those that come."""

import asyncio
import select
import sys

from threadlog.cli.event_text import event_text
from threadlog.cli.names import find_thread
from threadlog.cli.plain import cut, json_plain, one_line
from threadlog.cli.reading import open_reader
from threadlog.cli.terminal import Screen
from threadlog.cli.window import Window, followed
from threadlog.events.codec import to_cloud_event
from threadlog.events.turn import TurnFinished
from threadlog.ids import EventId
from threadlog.ports.notify import LiveDelta
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
)
from threadlog.queries.reading import Reader
from threadlog.settings import Settings

_LOOK_S = 0.5
_TYPE_COLUMNS = 20
_NARROW_COLUMNS = 80
"""Below this there is no room for the time."""
_TIME = slice(11, 23)
"""The time of day in RFC 3339 text."""


async def tail(
    settings: Settings,
    screen: Screen,
    name: str,
    window: Window,
    *,
    is_json: bool,
    follow: bool,
    until_turn: bool,
) -> None:
    """Events as lines, then those that come, until Ctrl-C or the end of a turn."""
    async with open_reader(settings) as reader:
        row = await find_thread(reader, name)
        lines = _Lines(screen, is_json=is_json)
        first = window.first_of(row)
        if first > 0 and window.first is None and not is_json:
            screen.note(f"{first:,} earlier events: --from 0")
        if follow or (until_turn and row.status != "idle"):
            await _follow(reader, row, first, lines, until_turn=until_turn)
            return
        async for stored in reader.events(row.thread_id, first):
            if not window.holds(stored, first):
                return
            lines.show(stored)


async def _follow(
    reader: Reader, row: ThreadRow, first: int, lines: "_Lines", *, until_turn: bool
) -> None:
    leaving = asyncio.create_task(_until_nobody_reads())
    following = asyncio.create_task(_show_all(reader, row, first, lines, until_turn=until_turn))
    try:
        await asyncio.wait({leaving, following}, return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            raise BrokenPipeError
        following.result()
    finally:
        leaving.cancel()
        following.cancel()
        await asyncio.gather(leaving, following, return_exceptions=True)


async def _until_nobody_reads() -> None:
    """Returns when whoever read stdout has gone; a thread at rest would not tell for long."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    while not poll.poll(0):
        await asyncio.sleep(_LOOK_S)


async def _show_all(
    reader: Reader, row: ThreadRow, first: int, lines: "_Lines", *, until_turn: bool
) -> None:
    async with followed(reader, row.thread_id, first) as stream:
        async for item in stream:
            if isinstance(item, LiveDelta):
                continue
            lines.show(item)
            lines.flush()
            is_end = isinstance(item.event.body, TurnFinished) and (item.seq or 0) > row.head
            if until_turn and is_end:
                return


class _Lines:
    """Events as lines: JSON, or seq, time, type, cause, text."""

    def __init__(self, screen: Screen, *, is_json: bool) -> None:
        self._screen = screen
        self._is_json = is_json
        self._seqs: dict[EventId, int | None] = {}

    def flush(self) -> None:
        """What was shown has left this process."""
        self._screen.flush()

    def show(self, stored: StoredEvent) -> None:
        """The event is one line more."""
        event = stored.event
        if self._is_json:
            self._screen.data(json_plain(to_cloud_event(event, stored.seq).decode()))
            return
        look = self._screen.out
        cause = "" if event.caused_by is None else event.caused_by[:8]
        if event.caused_by in self._seqs:
            cause = str(self._seqs[event.caused_by])
        self._seqs[event.event_id] = stored.seq
        time = f"{one_line(event.occurred_at)[_TIME]:<12} "
        if look.columns is not None and look.columns < _NARROW_COLUMNS:
            time = ""
        head = f"{stored.seq:>6} {time}{event.type:<{_TYPE_COLUMNS}}"
        arrow = f"{f'<- {cause}' if cause else '':<11}"
        room = None if look.columns is None else max(look.columns - len(head) - 13, 20)
        text = cut(event_text(event), room)
        line = f"{head} {look.paint(arrow, 'dim')} {text}"
        self._screen.data(line.rstrip())
