"""What was counted, and what of it is not kept yet. Pure.

It is filled from the table, by whatever writers it was kept, and only ever goes forward.
"""

from collections.abc import Iterator, Mapping

from threadlog.metering.windows import Slot, Window, slot_of, slots_of, window_of
from threadlog.ports.usage_log import UsageRecord


class Ledger:
    """The windows of all tenants that this process has met.

    Shapes:  `topic_id` of the log as it is now; facts and windows of another one do not count.
             `writer`: this life of the process. What is recovered, which is at every new share of
             the partitions, begins a new writer: a key that somebody knew before, and removes, is
             written by nobody any more.
    """

    def __init__(self, topic_id: str, writer: str) -> None:
        self._topic_id = topic_id
        self._process = writer
        self._shares = 0
        self._windows: dict[Slot, Window] = {}
        self._changed: set[Slot] = set()
        self._kept: dict[Slot, set[str]] = {}
        """The keys under which a window lies in the table."""

    @property
    def windows(self) -> Mapping[Slot, Window]:
        """All of them."""
        return self._windows

    def recover(self, table: Mapping[str, object]) -> None:
        """Nothing is behind what the table holds.

        Raises:  CorruptError: the table holds something else.
        """
        self._shares += 1
        for key, value in table.items():
            slot, _ = slot_of(key)
            self._kept.setdefault(slot, set()).add(key)
            found = window_of(value)
            if found.topic_id != self._topic_id:
                continue
            known = self._windows.get(slot)
            if known is None or found.reached > known.reached:
                self._windows[slot] = found

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

    def changes(self, now_ms: int) -> Iterator[tuple[str, object | None]]:
        """What the table must be told: keys with their values, None: the key goes.

        Effects: it counts as told. A window is told before keys of other writers go, so that at no
                 time the table holds less.
        """
        for slot in [slot for slot in self._changed if slot.is_kept(now_ms)]:
            mine = slot.key(f"{self._process}.{self._shares}")
            yield mine, self._windows[slot].document()
            for key in self._kept.get(slot, set()) - {mine}:
                yield key, None
            self._kept[slot] = {mine}
        self._changed.clear()

    def expired(self, now_ms: int) -> Iterator[tuple[Slot, str]]:
        """The keys of windows that are too old; these are forgotten."""
        for slot in [slot for slot in self._kept if not slot.is_kept(now_ms)]:
            for key in self._kept.pop(slot):
                yield slot, key
        for slot in [slot for slot in self._windows if not slot.is_kept(now_ms)]:
            del self._windows[slot]
