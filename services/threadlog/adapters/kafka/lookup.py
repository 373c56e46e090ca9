"""Single records by their place: a few consumers that are told where to look, and never commit.

They block, so each works on a thread of a small pool. Places that lie close together come in one
fetch; a seek costs a round trip.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import of_exception
from threadlog.adapters.kafka.headers import decode
from threadlog.clock import Clock
from threadlog.errors import CorruptError, LogUnavailableError, TransientError
from threadlog.ids import NO_POSITION, Partition, Position
from threadlog.limits import KIB
from threadlog.ports.log import Record

CONSUMERS_MAX = 8
_READ_MS = 10_000
"""How long one reading may take; a missing record is told by the broker, not by this."""
_POLL_S = 0.1
_DRAINED_MAX = 100
_NEAR_BYTES = 64 * KIB
"""What one fetch brings: a place that lies within it is read up to instead of sought."""


class Lookup:
    """Implements `ports.log.Records` for one topic."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._threads = ThreadPoolExecutor(CONSUMERS_MAX, "kafka-lookup")
        self._idle: deque[Consumer] = deque()
        self._is_closed = False

    async def read(self, partition: Partition, positions: Sequence[Position]) -> Sequence[Record]:
        if self._is_closed:
            raise LogUnavailableError("the log is closed")
        if not positions:
            return []
        if positions[0] <= NO_POSITION or list(positions) != sorted(set(positions)):
            raise CorruptError(f"partition {partition}: no ascending positions")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._read, partition, list(positions))

    async def close(self) -> None:
        """Readings under way end first."""
        self._is_closed = True
        await asyncio.to_thread(self._threads.shutdown)
        while self._idle:
            self._idle.pop().close()

    def _read(self, partition: Partition, positions: list[Position]) -> list[Record]:
        """One reading, on a thread of the pool. A consumer that failed is not used again."""
        consumer = None
        try:
            consumer = self._taken()
            reading = _Reading(consumer, self._config.events_topic, partition, positions)
            deadline_ms = self._clock.mono_ms() + _READ_MS
            while not reading.is_done:
                if self._clock.mono_ms() > deadline_ms:
                    raise TransientError(f"partition {partition}: records did not come in time")
                reading.step()
            consumer.unassign()
        except Exception as error:
            if consumer is not None:
                consumer.close()
            raise of_exception(error, f"partition {partition}") from error
        self._idle.append(consumer)
        return reading.found

    def _taken(self) -> Consumer:
        try:
            return self._idle.pop()
        except IndexError:
            return Consumer(self._config.lookup(), logger=CLIENT_LOG)


class _Reading:
    """The wanted records of one partition, found one after another."""

    def __init__(
        self, consumer: Consumer, topic: str, partition: Partition, positions: list[Position]
    ) -> None:
        self._consumer = consumer
        self._place = (topic, int(partition))
        self._wanted = deque(positions)
        self.found: list[Record] = []
        self._at = positions[0] - 1
        """The offset that comes next."""
        self._passed_bytes = 0
        self._passed_records = 0
        consumer.assign([TopicPartition(*self._place, self._at)])

    @property
    def is_done(self) -> bool:
        return not self._wanted

    def step(self) -> None:
        """What the client has is looked through."""
        message = self._consumer.poll(_POLL_S)
        # A message without a value is false.
        if message is None:
            return
        for each in [message, *self._consumer.consume(_DRAINED_MAX, 0)]:
            if not self.is_done:
                self._look_at(each)
        if not self.is_done and not self._is_near():
            self._at = self._wanted[0] - 1
            self._consumer.seek(TopicPartition(*self._place, self._at))

    def _look_at(self, message: Message) -> None:
        error, offset = message.error(), message.offset()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                if offset is not None and offset >= self._at:
                    raise self._missing()
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)
            return
        if offset is None or offset < self._at:
            return
        value = message.value()
        self._at = offset + 1
        self._passed_records += 1
        self._passed_bytes += len(value or b"")
        position = Position(offset + 1)
        if position > self._wanted[0]:
            raise self._missing()
        if position == self._wanted[0]:
            self._wanted.popleft()
            record = decode(position, message.key(), message.headers(), value)
            self.found.append(record)

    def _is_near(self) -> bool:
        """Whether the next place probably lies in what was fetched anyway."""
        distance = self._wanted[0] - 1 - self._at
        mean_bytes = self._passed_bytes // max(1, self._passed_records)
        return distance * mean_bytes <= _NEAR_BYTES

    def _missing(self) -> CorruptError:
        partition = self._place[1]
        return CorruptError(f"partition {partition}: no record at position {self._wanted[0]}")
