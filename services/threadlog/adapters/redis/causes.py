"""What caused an event, and what it caused, by the indexes of threads.

Within a thread an entry names its cause's seq, so a chain is followed without reading an event. A
cause that is not an earlier accepted event of the same thread is rare: its effects stand in
`outside`, and where it lies itself is looked for in the tenant's threads, one after another.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from threadlog.adapters.redis.layout import (
    Effect,
    Entry,
    effect_of,
    effects_range,
    keys_of,
    known_of,
    packed,
)
from threadlog.adapters.redis.reading import Found, Home, Reading
from threadlog.errors import ViewsRebuildingError
from threadlog.ids import EventId, Partition, Seq, TenantId, ThreadId, uuid_text
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.views import StoredEvent

_PIECE = 1_024
_SCAN = 8_192
_THREADS = 100


@dataclass(frozen=True, slots=True)
class Node:
    """One accepted event of a chain."""

    home: Home
    entry: Entry


@dataclass(slots=True)
class _Pieces:
    """The last piece read of each thread's index: a chain goes back in small steps."""

    reading: Reading
    held: dict[ThreadId, dict[Seq, Entry]] = field(default_factory=dict)

    async def entry(self, home: Home, seq: Seq) -> Entry | None:
        found = self.held.get(home.thread, {}).get(seq)
        if found is None:
            first = Seq(max(seq - _PIECE + 1, 0))
            page = await self.reading.page(home, first, seq - first + 1)
            self.held[home.thread] = {entry.seq: entry for entry in page}
            found = self.held[home.thread].get(seq)
        return found


async def ancestors(
    reading: Reading, home: Home, event_id: EventId, limit: int
) -> list[StoredEvent]:
    """The chain of causes that ends at the event; of a longer one the nearest `limit`."""
    start = await reading.find(home, event_id)
    if start is None or start.entry is None:
        return []
    pieces, chain = _Pieces(reading), list[Node]()
    node: Node | None = Node(home, start.entry)
    seen: set[EventId] = set()
    while node is not None and len(chain) < limit and node.entry.event_id not in seen:
        chain.append(node)
        seen.add(node.entry.event_id)
        node = await _cause_of(reading, pieces, node)
    return await _stored(reading, _in_order(chain[::-1]))


async def descendants(
    reading: Reading, home: Home, event_id: EventId, limit: int
) -> list[StoredEvent]:
    """The event and all that follows from it; the first `limit`."""
    start = await reading.find(home, event_id)
    if start is None or start.entry is None:
        return []
    partitions = await _with_outside(reading, home.tenant)
    # Only where no effect lies elsewhere is what one thread holds first the first of all.
    enough = None if partitions else limit
    found: dict[ThreadId, dict[Seq, Entry]] = {}
    waiting: dict[ThreadId, set[Seq]] = {home.thread: {start.entry.seq}}
    while waiting:
        thread, seeds = waiting.popitem()
        there = reading.home(home.tenant, thread)
        known = found.setdefault(thread, {})
        new = await _followers(reading, there, seeds, known, enough)
        known.update(new)
        for effect in await _effects(reading, there, list(new.values()), partitions):
            if effect.seq not in found.get(effect.thread, {}):
                waiting.setdefault(effect.thread, set()).add(effect.seq)
    nodes = [
        Node(reading.home(home.tenant, thread), entry)
        for thread, members in found.items()
        for entry in members.values()
    ]
    return await _stored(reading, _in_order(nodes)[:limit])


async def _cause_of(reading: Reading, pieces: _Pieces, node: Node) -> Node | None:
    home, entry = node.home, node.entry
    if entry.cause is not None:
        cause = await pieces.entry(home, entry.cause)
        return None if cause is None else Node(home, cause)
    if not entry.is_outside:
        return None
    [stored] = await _stored(reading, [node])
    if stored.event.caused_by is None:
        return None
    there, found = await _located(reading, home, stored.event.caused_by)
    if found is None or found.entry is None:
        return None
    if there.partition == home.partition and found.first >= entry.position:
        return None
    return Node(there, found.entry)


async def _located(reading: Reading, home: Home, event_id: EventId) -> tuple[Home, Found | None]:
    """Where the tenant has this event accepted: in this thread, else in any."""
    found = await reading.find(home, event_id)
    if found is not None and found.entry is not None:
        return home, found
    for n in range(reading.identity.partitions):
        keys = keys_of(reading.identity, Partition(n)).of(home.tenant)
        after = b"-"
        while True:
            page = ("ZRANGEBYLEX", keys.of_tenant("streams"), after, "+", "LIMIT", 0, _THREADS)
            _, [members] = await reading.guarded(keys, [page])
            homes = [reading.home(home.tenant, ThreadId(uuid_text(m))) for m in members]
            for there, each in zip(homes, await reading.find_each(homes, event_id), strict=True):
                if each is not None and each.entry is not None:
                    return there, each
            if len(members) < _THREADS:
                break
            after = b"(" + members[-1]
    return home, None


async def _with_outside(reading: Reading, tenant: TenantId) -> list[Partition]:
    """The partitions in which the tenant has effects of causes that lie elsewhere."""
    partitions = [Partition(n) for n in range(reading.identity.partitions)]
    scopes = [keys_of(reading.identity, partition).of(tenant) for partition in partitions]
    counts = await reading.guarded_each(
        [(keys, ("ZCARD", keys.of_tenant("outside"))) for keys in scopes]
    )
    return [partition for partition, count in zip(partitions, counts, strict=True) if count]


async def _followers(
    reading: Reading,
    home: Home,
    seeds: Collection[Seq],
    known: Mapping[Seq, Entry],
    enough: int | None,
) -> dict[Seq, Entry]:
    """The seeds and what follows from them or from `known` in this thread, without `known`."""
    found: dict[Seq, Entry] = {}
    first = min(seeds)
    while True:
        page = await reading.page(home, first, _SCAN)
        for entry in page:
            is_caused = entry.cause is not None and (entry.cause in found or entry.cause in known)
            if (entry.seq in seeds or is_caused) and entry.seq not in known:
                found[entry.seq] = entry
        if len(page) < _SCAN or (enough is not None and len(found) >= enough):
            return found
        first = Seq(first + len(page))


async def _effects(
    reading: Reading, home: Home, causes: Sequence[Entry], partitions: Sequence[Partition]
) -> list[Effect]:
    """Effects of these causes that do not stand in their own thread's index as such."""
    found: list[Effect] = []
    for partition in partitions:
        keys = keys_of(reading.identity, partition).of(home.tenant)
        outside = keys.of_tenant("outside")
        for start in range(0, len(causes), READ_EVENTS_MAX):
            part = causes[start : start + READ_EVENTS_MAX]
            watermark, replies = await reading.guarded(
                keys, [("ZRANGEBYLEX", outside, *effects_range(e.event_id)) for e in part]
            )
            for cause, members in zip(part, replies, strict=True):
                effects = [effect_of(member) for member in members]
                effects = [effect for effect in effects if effect.position <= watermark]
                if effects and partition == home.partition:
                    first = await _first_copy(reading, home, cause)
                    effects = [effect for effect in effects if first < effect.position]
                found += effects
    return found


async def _first_copy(reading: Reading, home: Home, entry: Entry) -> int:
    """Where the event was first seen: a void copy may precede the accepted one."""
    wanted = ("HGET", home.keys.of_thread("ids"), packed(entry.event_id))
    _, [known] = await reading.guarded(home.keys, [wanted])
    return entry.position if known is None else min(entry.position, known_of(known)[0])


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    """In log order; where several partitions have none in common, thread by thread."""
    nodes = list(nodes)
    if len({node.home.partition for node in nodes}) <= 1:
        return sorted(nodes, key=lambda node: node.entry.position)
    threads = {thread: n for n, thread in enumerate(dict.fromkeys(n.home.thread for n in nodes))}
    return sorted(nodes, key=lambda node: (threads[node.home.thread], node.entry.position))


async def _stored(reading: Reading, nodes: Sequence[Node]) -> list[StoredEvent]:
    """The events of these nodes, in their order.

    Raises:  ViewsRebuildingError: the views went back since the nodes were read.
    """
    homes = {node.home.thread: node.home for node in nodes}
    found: dict[tuple[ThreadId, Seq | None], StoredEvent] = {}
    for thread, home in homes.items():
        seqs = sorted(node.entry.seq for node in nodes if node.home.thread == thread)
        for stored in await reading.at(home, seqs):
            found[thread, stored.seq] = stored
    if len(found) < len(nodes):
        raise ViewsRebuildingError(f"the views of {reading.identity.topic} went back just now")
    return [found[node.home.thread, node.entry.seq] for node in nodes]
