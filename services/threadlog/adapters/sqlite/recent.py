"""What the writer remembers of the last records, so that judging them searches nothing.

A judgement names its stream and its cause by positions (`schema`). The writer has just assigned
these positions; to find them again through indexes over random ids would cost more than all else
that a view batch does. Whatever is not remembered here is searched for, with the same outcome.

Only committed records are remembered: a position that was rolled back is assigned again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from threadlog.ids import Position

_STREAMS_MAX = 16_384
_RECORDS_MAX = 8_192
"""Entries kept, oldest leave first; about 5 MiB together when full."""

K = TypeVar("K")
V = TypeVar("V")
Key = tuple[str, str]
"""Thread and tenant."""
Id = tuple[str, str]
"""Tenant and event."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The records of one append: their stream's first position, and their ids and causes."""

    key: Key
    stream: Position
    positions: Sequence[Position]
    ids: Sequence[str]
    causes: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record belongs: its stream's first position, and that of a copy of its cause."""

    stream: Position
    cause: Position | None


class Recent:
    """The last streams and records. Used by the writer's thread alone."""

    def __init__(self) -> None:
        self._streams: OrderedDict[Key, Position] = OrderedDict()
        self._places: OrderedDict[Position, Place] = OrderedDict()
        self._ids: OrderedDict[Id, Position] = OrderedDict()

    def stream(self, key: Key) -> Position | None:
        """The position of the first record with this key, None when it is not remembered."""
        return self._streams.get(key)

    def place(self, position: Position) -> Place | None:
        """Where the record belongs, None when it is not remembered."""
        return self._places.get(position)

    def add(self, appended: Appended) -> None:
        """These records are committed."""
        _, tenant = appended.key
        self._streams[appended.key] = appended.stream
        rows = zip(appended.positions, appended.ids, appended.causes, strict=True)
        for position, event_id, caused_by in rows:
            cause = None if caused_by is None else self._ids.get((tenant, caused_by))
            if caused_by is None or cause is not None:
                self._places[position] = Place(appended.stream, cause)
            self._ids[tenant, event_id] = position
        _trim(self._streams, _STREAMS_MAX)
        _trim(self._places, _RECORDS_MAX)
        _trim(self._ids, _RECORDS_MAX)


def _trim(table: OrderedDict[K, V], entries_max: int) -> None:
    while len(table) > entries_max:
        table.popitem(last=False)
