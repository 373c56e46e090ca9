"""Windows: what a tenant used in a span of time, and how far the log was counted into it. Pure.

A fact belongs to the windows in which the broker took its event, however late or often it is told.
Each window holds its sums and, beside them in one value, the highest offset that was counted from
each partition of the log: a fact that is not above it is a repeat. That is exact, because first
copies of facts come in the order of the log (`ports.usage_log`), and records are counted in their
order without a gap: a mark says up to where, and is written behind the windows.

So of two values of one window, by whatever writers, one is ahead of the other and holds all that
the other does. Each writer has a key of its own: one that was taken for dead, and still writes, can
not write over what its successor has counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from threadlog.errors import CorruptError
from threadlog.limits import DAYS_KEPT, HOURS_KEPT, MINUTES_KEPT
from threadlog.ports.usage_log import AMOUNTS, Amount, UsageEntry

Span = Literal["minute", "hour", "day", "total"]
SPANS: tuple[Span, ...] = ("minute", "hour", "day", "total")
_MS: Mapping[Span, int] = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_KEPT: Mapping[Span, int] = {"minute": MINUTES_KEPT, "hour": HOURS_KEPT, "day": DAYS_KEPT}
_MARK = "mark"
_T = TypeVar("_T")


class Slot(NamedTuple):
    """Which window. `start`: how many spans after 1970 it begins; 0 for all time."""

    span: Span
    start: int
    tenant: str

    def key(self, writer: str) -> str:
        """Where this writer keeps it."""
        return f"{self.span}/{self.start}/{writer}/{self.tenant}"

    def is_kept(self, now_ms: int) -> bool:
        """Whether it is not too old to be kept."""
        if self.span == "total":
            return True
        return self.start > now_ms // _MS[self.span] - _KEPT[self.span]


class Mark(NamedTuple):
    """Up to where a partition of usage facts was counted."""

    partition: int

    def key(self, writer: str) -> str:
        """Where this writer keeps it."""
        return f"{_MARK}/{self.partition}/{writer}/"


def place_of(key: str) -> Slot | Mark:
    """Inverse of `Slot.key` and `Mark.key`, but for the writer.

    Raises:  CorruptError
    """
    span, _, rest = key.partition("/")
    start, _, rest = rest.partition("/")
    tenant = rest.partition("/")[2]
    if span == _MARK and start.isdecimal():
        return Mark(int(start))
    known = next((one for one in SPANS if one == span), None)
    if known is None or not start.isdecimal() or not tenant:
        raise CorruptError("a key of metering's table names no window")
    return Slot(known, int(start), tenant)


def slots_of(tenant: str, at_ms: int, now_ms: int) -> list[Slot]:
    """The windows that something of this time is counted in, as long as they are kept."""
    slots = [Slot(span, at_ms // ms, tenant) for span, ms in _MS.items()]
    return [slot for slot in (*slots, Slot("total", 0, tenant)) if slot.is_kept(now_ms)]


@dataclass(slots=True)
class Window:
    """Sums of one window of the log `topic_id`. `counted`: the highest offset of each partition."""

    topic_id: str
    counted: dict[int, int] = field(default_factory=dict)
    sums: dict[Amount, int] = field(default_factory=lambda: dict.fromkeys(AMOUNTS, 0))

    @property
    def reached(self) -> int:
        """Grows with every fact: of two values of one window, the higher one holds the other."""
        return sum(offset + 1 for offset in self.counted.values())

    def count(self, partition: int, fact: UsageEntry) -> bool:
        """Whether the fact was new; it is counted then."""
        if fact.offset <= self.counted.get(partition, -1):
            return False
        self.counted[partition] = fact.offset
        for name in AMOUNTS:
            self.sums[name] += getattr(fact, name)
        return True

    def document(self) -> dict[str, object]:
        """As the table keeps it."""
        return {
            "topic_id": self.topic_id,
            "counted": {str(partition): offset for partition, offset in self.counted.items()},
            "sums": {name: amount for name, amount in self.sums.items() if amount},
        }


def window_of(document: object) -> Window:
    """Inverse of `Window.document`.

    Raises:  CorruptError
    """
    try:
        members = _of(document, dict)
        counted, sums = _of(members["counted"], dict), _of(members["sums"], dict)
        return Window(
            _of(members["topic_id"], str),
            {int(partition): _of(offset, int) for partition, offset in counted.items()},
            {name: _of(sums.get(name, 0), int) for name in AMOUNTS},
        )
    except (KeyError, TypeError, ValueError):
        raise CorruptError("a value of metering's table is no window") from None


def mark_document(topic_id: str, following: int) -> dict[str, object]:
    """A mark as the table keeps it: of this topic of facts, and the offset that comes next."""
    return {"topic_id": topic_id, "next": following}


def mark_of(document: object) -> tuple[str, int]:
    """Inverse of `mark_document`.

    Raises:  CorruptError
    """
    try:
        members = _of(document, dict)
        return _of(members["topic_id"], str), _of(members["next"], int)
    except (KeyError, TypeError):
        raise CorruptError("a value of metering's table is no mark") from None


def _of(value: object, kind: type[_T]) -> _T:
    if not isinstance(value, kind):
        raise TypeError
    return value
