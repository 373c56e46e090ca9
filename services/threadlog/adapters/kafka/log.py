"""The log port on Kafka: one topic, a pinned number of partitions, order within each.

What `append` acknowledged is in the log, durable on as many replicas as the topic asks for. What
it did not acknowledge is unknown, not absent: it may turn up later. Records are only ever told as
they were read back from the broker.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import of_exception
from threadlog.adapters.kafka.followers import Followers
from threadlog.adapters.kafka.headers import Encoded, encode
from threadlog.adapters.kafka.lookup import Lookup
from threadlog.adapters.kafka.producer import KafkaProducer, OnFatal
from threadlog.clock import Clock, SystemClock
from threadlog.errors import LogUnavailableError, RejectedError, TransientError
from threadlog.events.envelope import Event
from threadlog.ids import Partition, Position, partition_of
from threadlog.limits import APPEND_EVENTS_MAX, EVENT_BYTES_MAX
from threadlog.ports.log import Receipt, Record

_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
_ASK_AGAIN_S = 0.05
_ASK_S = 2.0
"""How long one question may take: a client that asks the wrong broker asks again sooner."""
_END_MS = 10_000
"""How long the broker may take to say where a partition ends."""


class KafkaLog:
    """Implements `ports.log.Appender` and `ports.log.Records`; `partition` gives each log.

    `on_fatal` hears, on the loop, that nothing can be appended any more: the process must end.
    """

    def __init__(
        self, config: KafkaConfig, *, on_fatal: OnFatal, clock: Clock | None = None
    ) -> None:
        self._clock = clock = clock or SystemClock()
        self._config = config
        self._producer = KafkaProducer(config, on_fatal)
        self._followers = Followers(config, clock)
        self._lookup = Lookup(config, clock)
        self._admin: AdminClient | None = None
        self._knows_leaders = False

    async def start(self) -> None:
        """The clients exist. Nothing is asked of the broker yet: `topics` checks it."""
        try:
            self._admin = AdminClient(self._config.admin(), logger=CLIENT_LOG)
        except KafkaException as error:
            raise of_exception(error, "admin client") from error
        self._producer.start()

    async def close(self) -> None:
        """What was appended is acknowledged or unknown; every follower fails; no thread is left."""
        await self._producer.close()
        await self._followers.close()
        await self._lookup.close()
        self._admin = None

    def partition(self, partition: Partition) -> "PartitionLog":
        """One partition, as a log of its own."""
        return PartitionLog(self, partition)

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        records = _encoded(events)
        partition = partition_of(events[0].key, self._config.partitions)
        offsets = await self._producer.append(self._config.events_topic, partition, records)
        return [
            Receipt(event.event_id, Position(offset + 1))
            for event, offset in zip(events, offsets, strict=True)
        ]

    async def append_pointers(self, pointers: Sequence[tuple[bytes, bytes]]) -> None:
        """The pointers to bad records, key and value each, are durable in their topic.

        Raises:  TransientError: unknown; append them again, a pointer may stand there twice.
        """
        headers = [("content-type", b"application/json")]
        records = [Encoded(key, headers, value, 0) for key, value in pointers]
        await self._producer.append(self._config.dead_letters_topic, 0, records)

    async def append_usage(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """The usage records, tenant and value each, are durable in their topic; one round trip.

        Raises:  TransientError: unknown; append them again, repeats count once.
        """
        topic, partitions = self._config.usage_topic, self._config.usage_partitions
        headers = [("content-type", b"application/json")]
        found: dict[Partition, list[Encoded]] = {}
        for key, value in records:
            partition = partition_of(key.decode(), partitions)
            found.setdefault(partition, []).append(Encoded(key, headers, value, 0))
        append = self._producer.append
        appends = [append(topic, partition, some) for partition, some in found.items()]
        for answer in await asyncio.gather(*appends, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def read(self, partition: Partition, positions: Sequence[Position]) -> Sequence[Record]:
        return await self._lookup.read(partition, positions)

    def follow(self, partition: Partition, after: Position) -> AsyncIterator[Sequence[Record]]:
        """As `subscribe` of that partition."""
        return self._followers.follow(partition, after)

    async def end_of(self, partition: Partition) -> Position:
        """As `end` of that partition: the high watermark.

        Raises:  TransientError: the broker did not say, for as long as it may take.
        """
        deadline_ms = self._clock.mono_ms() + _END_MS
        while True:
            try:
                return await self._ask_end(partition)
            except TransientError:
                # A partition that moves, or is very new, has no leader for a moment.
                if self._admin is None or self._clock.mono_ms() > deadline_ms:
                    raise
                await asyncio.sleep(_ASK_AGAIN_S)

    async def _ask_end(self, partition: Partition) -> Position:
        if self._admin is None:
            raise LogUnavailableError("the log is closed")
        topic = self._config.events_topic
        place = TopicPartition(topic, partition)
        try:
            if not self._knows_leaders:
                # Asked for offsets before it is connected, the client often rests for 3 s.
                described = self._admin.describe_topics(TopicCollection([topic]))
                await asyncio.wrap_future(described[topic])
                self._knows_leaders = True
            asked = self._admin.list_offsets({place: _LATEST}, request_timeout=_ASK_S)
            answer = await asyncio.wrap_future(asked[place])
            self._admin.poll(0)  # what the client has to say of itself does not pile up
        except KafkaException as error:
            # A broker that was killed has a new epoch when it is back; the client would ask with
            # the old one for ever, and is refused, unless it describes the topic again.
            self._knows_leaders = False
            raise of_exception(error, f"end of partition {partition}") from error
        return Position(answer.offset)


class PartitionLog:
    """Implements `ports.log.Log` for one partition; `append` reaches all of them."""

    def __init__(self, log: KafkaLog, partition: Partition) -> None:
        self._log = log
        self._partition = partition

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        return await self._log.append(events)

    def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        return self._log.follow(self._partition, after)

    async def end(self) -> Position:
        return await self._log.end_of(self._partition)


def _encoded(events: Sequence[Event]) -> list[Encoded]:
    """The records of one append.

    Raises:  RejectedError: none, too many, of several threads, or one of them too large.
    """
    if not 1 <= len(events) <= APPEND_EVENTS_MAX:
        raise RejectedError(f"an append holds 1 to {APPEND_EVENTS_MAX} events, not {len(events)}")
    key = events[0].key
    records = []
    for event in events:
        if event.key != key:
            raise RejectedError("an append holds events of one thread")
        try:
            record = encode(event)
        except UnicodeEncodeError as error:
            raise RejectedError(f"event {event.event_id} holds text that is no Unicode") from error
        if record.record_bytes > EVENT_BYTES_MAX:
            raise RejectedError(
                f"event {event.event_id} has {record.record_bytes} bytes, "
                f"more than {EVENT_BYTES_MAX}; move its payload to blobs"
            )
        records.append(record)
    return records
