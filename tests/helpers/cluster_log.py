"""What the log of a cluster says, read by an outsider: a plain consumer, the codec and the fold.

Every record of every partition from the first one on, as anybody with the address can read it.
Nothing of the services' own reading is used.
"""

import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from tests.helpers.thread_checks import History
from threadlog.adapters.kafka.headers import decode
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, Partition, Position, TenantId, ThreadId, draw
from threadlog.ports.log import Record
from threadlog.projection.rows import title_of
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.snapshot import encode_state, state_hash
from threadlog.thread.state import ThreadState

_POLL_S = 0.2
_ASK_S = 10.0
_QUIET_POLLS_MAX = 100
"""So often nothing may come before the end is reached, then reading counts as stuck."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a thread and the fold's word on it."""

    position: Position
    event: Event
    judgement: Judgement


@dataclass(slots=True)
class Told:
    """One thread as the log tells it. `broken`: what must hold of every log and does not."""

    tenant: TenantId
    thread: ThreadId
    partition: Partition
    state: ThreadState
    entries: list[Entry] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)
    title: str = ""
    created_at: str = ""
    updated_at: str = ""

    def add(self, position: Position, event: Event) -> None:
        """The next record is judged, and watched."""
        before = self.state
        judgement = judge(before, event)
        self.state = judgement.state
        self.entries.append(Entry(position, event, judgement))
        try:
            self.history.watch(before, event, judgement)
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            self.broken.append(f"{event.type} {event.event_id} at {position}: {str(error) or line}")
        if judgement.void is None:
            self.created_at = self.created_at or event.occurred_at
            self.updated_at = event.occurred_at
            self.title = self.title or title_of(event)

    @property
    def accepted(self) -> list[Entry]:
        """The accepted events, in order of seq."""
        return [entry for entry in self.entries if entry.judgement.void is None]

    @property
    def voids(self) -> list[Entry]:
        """The void ones, in log order."""
        return [entry for entry in self.entries if entry.judgement.void is not None]

    @property
    def hash(self) -> str:
        """Of the state after the last record."""
        return state_hash(encode_state(self.state))

    @property
    def is_at_rest(self) -> bool:
        """No turn is open and no message waits, or nothing is decided here any more."""
        state = self.state
        is_idle = state.turn is None and (not state.queue or state.idle_since_empty_turn)
        return is_idle or state.halted is not None


@dataclass(slots=True)
class LogTold:
    """All threads by record key, the records that are none of ours, and where partitions end."""

    threads: dict[str, Told] = field(default_factory=dict)
    bad: list[tuple[Partition, Record]] = field(default_factory=list)
    ends: dict[Partition, Position] = field(default_factory=dict)

    def add(self, partition: Partition, record: Record) -> None:
        """The next record of the partition is taken in."""
        event = record.event
        if event is None or event.key != record.key:
            self.bad.append((partition, record))
            return
        told = self.threads.get(record.key)
        if told is None:
            empty = ThreadState(event.tenant_id, event.thread_id)
            told = Told(event.tenant_id, event.thread_id, partition, empty)
            self.threads[record.key] = told
        told.add(record.position, event)

    @property
    def entries(self) -> Iterator[Entry]:
        """All entries; in log order within a thread."""
        for told in self.threads.values():
            yield from told.entries

    @property
    def accepted(self) -> Iterator[Entry]:
        """All accepted ones."""
        return (entry for entry in self.entries if entry.judgement.void is None)

    @property
    def is_at_rest(self) -> bool:
        """Whether no turn is open anywhere."""
        return all(told.is_at_rest for told in self.threads.values())

    def types(self) -> Counter[str]:
        """How many accepted events there are of each type."""
        return Counter(entry.event.type for entry in self.accepted)

    def void_reasons(self) -> Counter[str]:
        """How many void events there are, by type and reason."""
        return Counter(
            f"{entry.event.type}: {entry.judgement.void}"
            for entry in self.entries
            if entry.judgement.void is not None
        )


class Outsider:
    """Follows a topic from its beginning. All methods block; used on one thread at a time."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.told = LogTold()
        self._topic = topic
        self._places = [TopicPartition(topic, n, 0) for n in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"outsider-{draw()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_uncommitted",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 1_000,
            }
        )
        self._next = dict.fromkeys(range(partitions), 0)
        self._consumer.assign(self._places)

    def read_on(self) -> LogTold:
        """Every record that is there now was read.

        Raises:  AssertionError: the log does not give out what it says it has.
        """
        ends = {p: self._end(p) for p in self._next}
        quiet = 0
        while any(self._next[p] < ends[p] for p in ends):
            # Not `consume` with a timeout: it would wait for a full batch.
            first = self._consumer.poll(_POLL_S)
            messages = [] if first is None else [first, *self._consumer.consume(500, 0)]
            quiet = 0 if messages else quiet + 1
            assert quiet < _QUIET_POLLS_MAX, f"read up to {self._next}, the log ends at {ends}"
            for message in messages:
                if message.error() is not None:
                    continue  # the client tries again
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                assert offset == self._next[partition], f"offset {offset} in {partition}"
                self._next[partition] = offset + 1
                record = decode(
                    Position(offset + 1), message.key(), message.headers(), message.value()
                )
                self.told.add(Partition(partition), record)
        self.told.ends = {Partition(p): Position(end) for p, end in ends.items()}
        return self.told

    def committed(self, bootstrap: str, group: str) -> dict[Partition, Position | None]:
        """What the group has committed; None: nothing."""
        asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        try:
            places = asking.committed(self._places, timeout=_ASK_S)
        finally:
            asking.close()
        return {
            Partition(place.partition): Position(place.offset)
            if place.offset >= NO_POSITION
            else None
            for place in places
        }

    def close(self) -> None:
        """No connection is open."""
        self._consumer.close()

    def _end(self, partition: int) -> int:
        _, high = self._consumer.get_watermark_offsets(
            TopicPartition(self._topic, partition), timeout=_ASK_S
        )
        return int(high)
