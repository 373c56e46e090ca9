"""The log port: append events, and follow every record in log order.

The log knows nothing of validity: repeats and events that the fold will void are appended alike.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from threadlog.events.envelope import Event
from threadlog.ids import EventId, Partition, Position


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which log a position belongs to: stored beside positions, compared before one is used.

    Shapes:  `topic_id` and `cluster_id` as the broker names them: a recreated topic has a new id.
    """

    cluster_id: str
    topic: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that an event is in the log: its id and its position."""

    event_id: EventId
    position: Position


KEY_DISAGREES = "tenant and thread are not those of the record key"
"""The problem of a record that names another tenant or thread than its key: an alarm."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read back.

    Shapes:  `event` None: the record has no usable envelope; `problem` then says why, and it is
             void for everyone. Both None: no record lies here, only its position counts (a
             stranger's transaction leaves such places). `key` is the record key,
             `tenant/thread_id`, empty when there is none. `opens_stream` True: the log knows that
             no record of this key precedes it; False: it does not know. `appended_ms`: when the
             broker took it, Unix time; 0: no broker has, or it does not matter.
    """

    position: Position
    key: str
    event: Event | None
    problem: str | None = None
    opens_stream: bool = False
    appended_ms: int = 0

    @property
    def is_gap(self) -> bool:
        """Whether no record lies here."""
        return self.event is None and self.problem is None


class Appender(Protocol):
    """The end of the log, of all its partitions."""

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        """Every event is in the log, durable and in the order given.

        Shapes:  1 to `limits.APPEND_EVENTS_MAX` events of one thread; receipts in that order.
        Effects: durable on return. Repeating it appends the same ids again, which the fold voids.
        Raises:  TransientError: it is unknown what was appended; append the same events again.
                 RejectedError: an event exceeds `limits.EVENT_BYTES_MAX`; nothing was appended.
        Source:  DESIGN laws 2 and 9.
        """
        ...


class Log(Appender, Protocol):
    """One partition of the log: an ordered, durable sequence of records.

    Order within a key is append order. All records of a key lie in one partition; an embedded log
    has one.
    """

    def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        """Every record behind `after`, in log order, in batches, for ever; first the old, then new.

        Effects: a record is delivered only once it is durable, and never from the appending side's
                 memory: it is read back. A slow reader holds nobody up.
        Raises:  LogUnavailableError: the log was closed or cannot be read any more.
        """
        ...

    async def end(self) -> Position:
        """The position of the last durable record, `ids.NO_POSITION` when the log is empty."""
        ...


class Records(Protocol):
    """Single records, read back by their place: what an index of positions is for."""

    async def read(self, partition: Partition, positions: Sequence[Position]) -> Sequence[Record]:
        """The records at these ascending positions, in that order.

        Raises:  TransientError: try again.
                 CorruptError: one of them is not there any more: the log was cut, or is another.
        """
        ...
