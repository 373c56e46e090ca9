"""One consumer on a thread of its own, which follows any number of partitions, one place in each.

It belongs to no group and commits nothing. Records are decoded here and cross to the event loop as
batches, one hand-over for everything that one poll brought. A waiting fetch is answered by the
broker as soon as a record is durable, so the first record of a poll comes without delay; the rest
of what has arrived is drained without waiting.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import ends_reading, mapped, of_exception
from threadlog.adapters.kafka.feeds import Batch, Subscriber
from threadlog.adapters.kafka.headers import decode
from threadlog.clock import Clock
from threadlog.errors import LogUnavailableError, ThreadlogError
from threadlog.ids import Partition, Position
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.log import Record

_log = logging.getLogger("threadlog.kafka")
_POLL_S = 0.05
"""How long a command waits at most; a record waits for nothing."""
_DRAINED_MAX = READ_EVENTS_MAX - 2
"""Beside the first one: a batch has room for what tells a gap."""
_GAPS_MS = 50
"""How often places without a record are looked for."""


class Reader:
    """Serves the subscribers it is given; the caller gives one a partition."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._joined: dict[Partition, Subscriber] = {}
        self._failure: ThreadlogError | None = None
        self._commands: deque[Callable[[Consumer], None]] = deque()
        self._wake = threading.Event()
        self._is_closing = False
        self._gaps_due_ms = 0
        self._subscribers: dict[int, Subscriber] = {}
        self._thread = threading.Thread(target=self._run, name="kafka-reader", daemon=True)
        self._thread.start()

    # -- on the loop

    @property
    def is_idle(self) -> bool:
        """Whether nobody is served here."""
        return not self._joined

    @property
    def has_ended(self) -> bool:
        """Whether nobody will be served here any more."""
        return self._failure is not None or self._is_closing

    @property
    def is_running(self) -> bool:
        """Whether the thread has not ended yet."""
        return self._thread.is_alive()

    def serves(self, partition: Partition) -> bool:
        """Whether a subscriber of this partition is served here."""
        return partition in self._joined

    def join(self, partition: Partition, after: Position) -> Subscriber:
        """A new subscriber, which is given every record behind `after`."""
        subscriber = Subscriber(partition, after, self._wake.set)
        self._joined[partition] = subscriber
        self._tell(lambda consumer: self._add(consumer, subscriber))
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """The subscriber is given nothing any more."""
        if self._joined.get(subscriber.partition) is subscriber:
            del self._joined[subscriber.partition]
        self._tell(lambda consumer: self._drop(consumer, subscriber))

    def close(self) -> None:
        """Every subscriber fails, and the thread ends soon."""
        self._is_closing = True
        self._wake.set()

    async def closed(self) -> None:
        """The thread has ended."""
        await asyncio.to_thread(self._thread.join)

    def _end(self, failure: ThreadlogError) -> None:
        self._failure = failure
        for subscriber in self._joined.values():
            subscriber.fail(failure)

    def _tell(self, command: Callable[[Consumer], None]) -> None:
        self._commands.append(command)
        self._wake.set()

    # -- on the reader's thread

    def _run(self) -> None:
        failure: ThreadlogError = LogUnavailableError("the log was closed")
        try:
            told = self._config.statistics.settings("reader")
            consumer = Consumer({**self._config.reader(), **told}, logger=CLIENT_LOG)
            try:
                while not self._is_closing:
                    self._turn(consumer)
            finally:
                consumer.close()
        except Exception as error:  # noqa: BLE001  # a client's thread: told to those who follow
            failure = of_exception(error, "reader")
            _log.warning("reader ended: %s", failure)
        self._call(lambda: self._end(failure))

    def _turn(self, consumer: Consumer) -> None:
        """Obey, read, hand over: once."""
        self._wake.clear()
        self._obey(consumer)
        if not self._subscribers:
            consumer.poll(0)  # what the client has to say of itself does not pile up
        if not self._balance(consumer):
            self._wake.wait(_POLL_S)
            return
        messages = consumer.consume(1, _POLL_S)
        if messages:
            messages += consumer.consume(_DRAINED_MAX, 0)
        batches: dict[Subscriber, Batch] = {}
        for message in messages:
            self._sort(consumer, message, batches)
        if (now := self._clock.mono_ms()) >= self._gaps_due_ms:
            self._gaps_due_ms = now + _GAPS_MS
            self._tell_gaps(consumer, batches)
        if batches:
            self._hand_over(list(batches.items()))

    def _obey(self, consumer: Consumer) -> None:
        while self._commands:
            self._commands.popleft()(consumer)

    def _balance(self, consumer: Consumer) -> bool:
        """Whether there is anybody to read for; full ones are paused only beside others.

        A pause empties the client's own queue, and a resume waits for a fetch: not polling at all
        is cheaper while nobody can take anything. No group counts the polls of this consumer.
        """
        full = [s for s in self._subscribers.values() if s.judge_fill()]
        if len(full) == len(self._subscribers):
            return False
        for subscriber in self._subscribers.values():
            place = [TopicPartition(self._config.events_topic, subscriber.partition)]
            if subscriber.is_full and not subscriber.is_paused:
                consumer.pause(place)
                subscriber.is_paused = True
            elif subscriber.is_paused and not subscriber.is_full:
                consumer.resume(place)
                subscriber.is_paused = False
        return True

    def _add(self, consumer: Consumer, subscriber: Subscriber) -> None:
        self._subscribers[subscriber.partition] = subscriber
        start = TopicPartition(self._config.events_topic, subscriber.partition, subscriber.told)
        consumer.incremental_assign([start])

    def _drop(self, consumer: Consumer, subscriber: Subscriber) -> None:
        if self._subscribers.get(subscriber.partition) is subscriber:
            del self._subscribers[subscriber.partition]
            place = TopicPartition(self._config.events_topic, subscriber.partition)
            consumer.incremental_unassign([place])

    def _sort(self, consumer: Consumer, message: Message, batches: dict[Subscriber, Batch]) -> None:
        """The message goes to its subscriber's batch; an error may end the subscription."""
        subscriber = self._subscribers.get(_partition_of(message))
        if (error := message.error()) is not None:
            if subscriber is None or not ends_reading(error):
                _log.info("reader: %s (%s)", error.str(), error.name())
                if not error.fatal():
                    return
                raise KafkaException(error)
            self._hand_over(
                [(subscriber, batch)] if (batch := batches.pop(subscriber, None)) else []
            )
            self._drop(consumer, subscriber)
            failure = mapped(error, f"partition {subscriber.partition}")
            self._call(lambda: subscriber.fail(failure))
            return
        offset = message.offset()
        if subscriber is None or offset is None or offset < subscriber.told:
            return  # left meanwhile, or known already
        position = Position(offset + 1)
        value = message.value()
        batch = batches.setdefault(subscriber, Batch())
        _, taken_ms = message.timestamp()
        batch.records.append(
            decode(position, message.key(), message.headers(), value, max(taken_ms, 0))
        )
        batch.payload_bytes += len(value or b"")
        subscriber.told = position

    def _tell_gaps(self, consumer: Consumer, batches: dict[Subscriber, Batch]) -> None:
        """Places behind the last record are passed on, or nobody would ever reach the end."""
        topic = self._config.events_topic
        places = [TopicPartition(topic, partition) for partition in self._subscribers]
        for place in consumer.position(places) if places else ():
            subscriber = self._subscribers[place.partition]
            if place.offset > subscriber.told:
                subscriber.told = Position(place.offset)
                batch = batches.setdefault(subscriber, Batch())
                batch.records.append(Record(subscriber.told, "", None))

    def _hand_over(self, batches: list[tuple[Subscriber, Batch]]) -> None:
        for subscriber, batch in batches:
            subscriber.count(batch)

        def deliver() -> None:
            for subscriber, batch in batches:
                subscriber.offer(batch)

        self._call(deliver)

    def _call(self, on_loop: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(on_loop)
        except RuntimeError:
            self._is_closing = True  # the loop is gone, and everybody who followed with it


def _partition_of(message: Message) -> int:
    partition = message.partition()
    return -1 if partition is None else partition
