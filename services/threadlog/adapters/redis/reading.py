"""Guarded reads: whatever is read, the views' meta is read with it, before and behind.

So a lost or half-built view is an error and never an empty thread, and nothing of a position above
the watermark is taken for a fact (see batches.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from threadlog.adapters.redis import meta, rows
from threadlog.adapters.redis.connect import Argument, Command, RedisClient, ScriptCall
from threadlog.adapters.redis.layout import (
    ENTRY,
    Entry,
    Keys,
    entries,
    home_of,
    keys_of,
    known_of,
    packed,
)
from threadlog.adapters.redis.scripts import FIND, RECORDS
from threadlog.errors import CorruptError, RecordError, ViewsRebuildingError
from threadlog.events.envelope import Event
from threadlog.ids import EventId, Partition, Position, Seq, TenantId, ThreadId
from threadlog.limits import KIB, READ_EVENTS_MAX
from threadlog.ports.log import LogIdentity, Record, Records
from threadlog.ports.views import StoredEvent

SCAN_BYTES = 256 * KIB
"""What one call looks at of an index: 8,192 events, so that no call stops the others for long."""
_SEQ_MAX = 2**48
Lines = Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class Home:
    """Where a thread lives."""

    tenant: TenantId
    thread: ThreadId
    partition: Partition
    keys: Keys


@dataclass(frozen=True, slots=True)
class Found:
    """What the views know of an event: its entry if accepted, and the first void copy's place.

    Shapes:  `first` is the position of its first copy of all.
    """

    entry: Entry | None
    void: tuple[Position, str] | None
    first: Position


class Reading:
    """Reads the parts of threads that the views are made of."""

    def __init__(self, client: RedisClient, identity: LogIdentity, log: Records) -> None:
        self.client = client
        self.identity = identity
        self._log = log

    def home(self, tenant: TenantId, thread: ThreadId) -> Home:
        """Where the thread lives."""
        partition = home_of(self.identity, tenant, thread)
        return Home(tenant, thread, partition, keys_of(self.identity, partition).of(tenant, thread))

    async def guarded(self, keys: Keys, commands: Sequence[Command]) -> tuple[Position, list[Any]]:
        """A watermark, and the replies to `commands`, which hold everything up to it.

        Raises:  ViewsRebuildingError: the partition's views are not whole.
        """
        asked: Command = ("HMGET", keys.meta, *meta.FIELDS)
        before, *replies, behind = await self.client.batch([asked, *commands, asked])
        # Behind them, too: else Redis could have been emptied in between.
        meta.readable(behind, self.identity)
        return meta.readable(before, self.identity), replies

    async def guarded_each(self, wanted: Sequence[tuple[Keys, Command]]) -> list[Any]:
        """The reply to each command, of any partitions, in one round trip.

        Raises:  ViewsRebuildingError: the views of one of the partitions are not whole.
        """
        if not wanted:
            return []
        metas = list({keys.meta for keys, _ in wanted})
        asked: list[Command] = [("HMGET", name, *meta.FIELDS) for name in metas]
        replies = await self.client.batch([*asked, *(command for _, command in wanted), *asked])
        for values in (*replies[: len(metas)], *replies[-len(metas) :]):
            meta.readable(values, self.identity)
        return replies[len(metas) : -len(metas)]

    async def page(self, home: Home, first: Seq, count: int) -> list[Entry]:
        """At most `count` entries of the thread's index from seq `first` on."""
        if first >= _SEQ_MAX or count <= 0:
            return []
        watermark, [data] = await self.guarded(
            home.keys, [_range_of(home, first, first + count - 1)]
        )
        return _seen(entries(first, data), watermark, home)

    async def events(self, home: Home, first: Seq, last: Seq) -> list[StoredEvent]:
        """Accepted events of a range of at most `READ_EVENTS_MAX`."""
        if first >= _SEQ_MAX:
            return []
        recent = ("XRANGE", home.keys.of_thread("recent"), f"{first}-1", f"{last}-1")
        watermark, [data, lines] = await self.guarded(
            home.keys, [_range_of(home, first, last), recent]
        )
        seen = _seen(entries(first, data), watermark, home)
        return await self.stored(home, seen, _lines(lines))

    async def at(self, home: Home, seqs: Sequence[Seq]) -> list[StoredEvent]:
        """The accepted events with these ascending seqs."""
        found: list[StoredEvent] = []
        recent = home.keys.of_thread("recent")
        for start in range(0, len(seqs), READ_EVENTS_MAX):
            part = seqs[start : start + READ_EVENTS_MAX]
            wanted = [_range_of(home, seq, seq) for seq in part]
            lines = [("XRANGE", recent, f"{seq}-1", f"{seq}-1") for seq in part]
            watermark, replies = await self.guarded(home.keys, [*wanted, *lines])
            named = zip(part, replies[: len(part)], strict=True)
            seen = _seen((e for s, data in named for e in entries(s, data)), watermark, home)
            read = {n: line for reply in replies[len(part) :] for n, line in _lines(reply).items()}
            found += await self.stored(home, seen, read)
        return found

    async def stored(self, home: Home, seen: Sequence[Entry], lines: Lines) -> list[StoredEvent]:
        """The events of these entries: as they were kept, else as they are in the log."""
        found = {entry.seq: _kept(home, entry, lines.get(entry.seq)) for entry in seen}
        missing = [entry for entry in seen if found[entry.seq] is None]
        ids = [(entry.position, entry.event_id) for entry in missing]
        for entry, logged in zip(missing, await self.logged(home, ids), strict=True):
            found[entry.seq] = logged
        return [
            StoredEvent(entry.position, entry.seq, event)
            for entry in seen
            if (event := found[entry.seq]) is not None
        ]

    async def voids(
        self, home: Home, members: Iterable[bytes], watermark: Position
    ) -> list[StoredEvent]:
        """The void events that these members name, up to the watermark."""
        named = [rows.decode_void(member) for member in members]
        named = [each for each in named if each[0] <= watermark]
        events = await self.logged(home, [(position, name) for position, name, _ in named])
        return [
            StoredEvent(position, None, event, reason)
            for (position, _, reason), event in zip(named, events, strict=True)
        ]

    async def logged(self, home: Home, wanted: Sequence[tuple[Position, EventId]]) -> list[Event]:
        """The events that lie at these ascending positions of the log.

        Raises:  CorruptError: another one lies there.
        """
        events: list[Event] = []
        for start in range(0, len(wanted), READ_EVENTS_MAX):
            part = wanted[start : start + READ_EVENTS_MAX]
            read = await self._log.read(home.partition, [position for position, _ in part])
            for record, (position, event_id) in zip(read, part, strict=True):
                event = record.event
                if event is None or event.event_id != event_id or event.thread_id != home.thread:
                    raise CorruptError(
                        f"at {position} of partition {home.partition} the log holds another record"
                        " than the views say"
                    )
                events.append(event)
        return events

    async def records(self, home: Home, after: Position, before: Position) -> list[Record]:
        """The thread's judged records between two positions that the views have passed.

        Records without a usable envelope are not among them: they change no state.
        """
        found: list[Record] = []
        keys = home.keys
        names = [keys.meta, *map(keys.of_thread, ("idx", "voids", "recent"))]
        while True:
            arguments: list[Argument] = [after, before, READ_EVENTS_MAX, *meta.FIELDS]
            answer = await self.client.script(RECORDS, names, arguments)
            values, first, data, voids, recent = answer
            # Workers load while views are being rebuilt, too: what lies before the watermark is
            # whole again.
            watermark = meta.belonging(values, self.identity)
            accepted, horizon = list(entries(first, data)), Position(before - 1)
            void = [rows.decode_void(member) for member in voids]
            if len(accepted) == READ_EVENTS_MAX:
                horizon = min(horizon, accepted[-1].position)
            if len(void) == READ_EVENTS_MAX:
                horizon = min(horizon, void[-1][0])
            if horizon > watermark:
                raise ViewsRebuildingError(f"the views of {self.identity.topic} were lost just now")
            found += await self._between(home, accepted, voids, horizon, _lines(recent))
            if horizon >= before - 1:
                return found
            after = horizon

    async def _between(
        self,
        home: Home,
        accepted: Sequence[Entry],
        voids: Sequence[bytes],
        horizon: Position,
        lines: Lines,
    ) -> list[Record]:
        events = await self.stored(home, [e for e in accepted if e.position <= horizon], lines)
        events += await self.voids(home, voids, horizon)
        events.sort(key=lambda stored: stored.position)
        return [Record(stored.position, stored.event.key, stored.event) for stored in events]

    async def find(self, home: Home, event_id: EventId) -> Found | None:
        """What the views know of an event of the thread; None: nothing."""
        [found] = await self.find_each([home], event_id)
        return found

    async def find_each(self, homes: Sequence[Home], event_id: EventId) -> list[Found | None]:
        """The same in each of these threads."""
        name = packed(event_id)
        found: list[Found | None] = [None] * len(homes)
        ends = dict.fromkeys(range(len(homes)), -1)
        while ends:
            calls: list[ScriptCall] = []
            for n, end in ends.items():
                keys = homes[n].keys
                names = [keys.meta, *map(keys.of_thread, ("ids", "idx", "voids"))]
                calls.append((names, [name, end, SCAN_BYTES, *meta.FIELDS]))
            answers = await self.client.scripts(FIND, calls)
            for (n, _), answer in zip(list(ends.items()), answers, strict=True):
                values, seq, data, known, void, end = answer
                watermark = meta.readable(values, self.identity)
                if end > 0:
                    ends[n] = end
                    continue
                del ends[n]
                entry = next(entries(seq, data), None)
                found[n] = _found(entry, known, void, watermark)
        return found


def _found(entry: Entry | None, known: bytes, void: bytes, watermark: Position) -> Found | None:
    """The answer of `find.lua`, up to the watermark."""
    if entry is not None and entry.position > watermark:
        entry = None
    copy: tuple[Position, str] | None = None
    if void:
        position, _, reason = rows.decode_void(void)
        copy = (position, reason) if position <= watermark else None
    if entry is None and copy is None:
        return None
    places = [entry.position] if entry is not None else []
    places += [copy[0]] if copy is not None else []
    places += [known_of(known)[0]] if known else []
    return Found(entry, copy, min(places))


def _range_of(home: Home, first: int, last: int) -> Command:
    index = home.keys.of_thread("idx")
    return ("GETRANGE", index, first * ENTRY, min(last + 1, _SEQ_MAX) * ENTRY - 1)


def _seen(found: Iterable[Entry], watermark: Position, home: Home) -> list[Entry]:
    """Those entries up to the watermark."""
    seen = []
    for entry in found:
        if entry.position > watermark:
            break
        if not entry.position:
            raise CorruptError(f"the index of thread {home.thread} lacks seq {entry.seq}")
        seen.append(entry)
    return seen


def _lines(reply: Iterable[Any]) -> dict[int, bytes]:
    """Seq and line of each entry of a stream, whether the client or a script has read it."""
    lines = {}
    for name, fields in reply:
        [line] = fields.values() if isinstance(fields, dict) else fields[1:]
        lines[int(name.partition(b"-")[0])] = line
    return lines


def _kept(home: Home, entry: Entry, line: bytes | None) -> Event | None:
    """The event of a kept line; None where there is none that is this event."""
    if line is None:
        return None
    try:
        event = rows.decode_event_line(line)
    except RecordError:
        return None
    found = (event.event_id, event.thread_id, event.tenant_id)
    return event if found == (entry.event_id, home.thread, home.tenant) else None
