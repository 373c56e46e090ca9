"""What was counted, and what of it is not kept yet. Pure.

It is filled from the table, by whatever writers that was kept, and only ever goes forward.
"""

from collections.abc import Iterator, Mapping

from threadlog.metering.windows import (
    Mark,
    Slot,
    Window,
    mark_document,
    mark_of,
    place_of,
    slots_of,
    window_of,
)
from threadlog.ports.usage_log import UsageRecord


class Ledger:
    """The windows of all tenants that this process has met.

    Shapes:  `topic_id` of the log and `usage_id` of the topic of facts, as they are now; what was
             counted of another one does not count. `writer`: this life of the process. What is
             recovered, which is at every new share of the partitions, begins a new writer: a key
             that somebody knew before, and removes, is written by nobody any more.
    """

    def __init__(self, topic_id: str, usage_id: str, writer: str) -> None:
        self._topic_id = topic_id
        self._usage_id = usage_id
        self._process = writer
        self._shares = 0
        self._windows: dict[Slot, Window] = {}
        self._next: dict[int, int] = {}
        self._changed: set[Slot] = set()
        self._moved: set[int] = set()
        self._kept: dict[Slot | Mark, set[str]] = {}
        """The keys under which a window or mark lies in the table."""

    @property
    def windows(self) -> Mapping[Slot, Window]:
        """All of them."""
        return self._windows

    def next_of(self, partition: int) -> int:
        """The offset of the first usage record of this partition that was not counted."""
        return self._next.get(partition, 0)

    def recover(self, table: Mapping[str, object]) -> None:
        """Nothing is behind what the table holds.

        Raises:  CorruptError: the table holds something else.
        """
        self._shares += 1
        for key, value in table.items():
            place = place_of(key)
            self._kept.setdefault(place, set()).add(key)
            if isinstance(place, Mark):
                usage_id, following = mark_of(value)
                if usage_id == self._usage_id:
                    known = self.next_of(place.partition)
                    self._next[place.partition] = max(known, following)
                continue
            found = window_of(value)
            if found.topic_id == self._topic_id:
                window = self._windows.get(place)
                if window is None or found.reached > window.reached:
                    self._windows[place] = found

    def take(self, partition: int, offset: int, record: UsageRecord | None, now_ms: int) -> bool:
        """Whether everything up to this usage record is counted now; None: it says nothing.

        Records that were counted are passed over. One behind a gap is not counted: what is missing
        comes, and it again behind that, or nothing does and somebody must look.
        """
        following = self.next_of(partition)
        if offset > following:
            return False
        if offset == following:
            if record is not None:
                self.count(record, now_ms)
            self._next[partition] = offset + 1
            self._moved.add(partition)
        return True

    def count(self, record: UsageRecord, now_ms: int) -> int:
        """How many facts of the record were new."""
        if record.topic_id != self._topic_id:
            return 0
        news = 0
        for fact in record.facts:
            is_new = False
            for slot in slots_of(record.tenant_id, fact.at_ms, now_ms):
                window = self._windows.get(slot)
                if window is None:
                    window = self._windows[slot] = Window(self._topic_id)
                if window.count(record.partition, fact):
                    self._changed.add(slot)
                    is_new = True
            news += is_new
        return news

    def changes(self, now_ms: int) -> list[tuple[str, object | None]]:
        """What the table must be told, in this order: keys with their values, None: the key goes.

        Effects: it counts as told. Marks come behind the windows that they speak of, and keys of
                 other writers go behind what takes their place: at no time the table holds less.
        """
        found: list[tuple[str, object | None]] = []
        writer = f"{self._process}.{self._shares}"
        for slot in self._changed:
            if slot.is_kept(now_ms):
                found.append((slot.key(writer), self._windows[slot].document()))
                found += self._replaced(slot, slot.key(writer))
        for mark in map(Mark, sorted(self._moved)):
            document = mark_document(self._usage_id, self._next[mark.partition])
            found.append((mark.key(writer), document))
            found += self._replaced(mark, mark.key(writer))
        self._changed.clear()
        self._moved.clear()
        return found

    def expired(self, now_ms: int) -> Iterator[tuple[Slot, str]]:
        """The keys of windows that are too old; these are forgotten."""
        slots = [p for p in self._kept if isinstance(p, Slot) and not p.is_kept(now_ms)]
        for slot in slots:
            for key in self._kept.pop(slot):
                yield slot, key
        for slot in [slot for slot in self._windows if not slot.is_kept(now_ms)]:
            self._changed.discard(slot)
            del self._windows[slot]

    def _replaced(self, place: Slot | Mark, mine: str) -> list[tuple[str, object | None]]:
        others = self._kept.get(place, set()) - {mine}
        self._kept[place] = {mine}
        return [(key, None) for key in sorted(others)]
