"""What metering has read and kept, seen from outside its group: offsets, its table, facts behind.

A client of its own, so that what is watched can not hide that it hangs.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import mapped, of_exception
from threadlog.errors import CorruptError, LogUnavailableError

_T = TypeVar("_T")
_ASK_S = 10.0
_BATCH = 1_000
_WAIT_S = 0.05


class MeteringTopics:
    """Implements `metering.service.Bounds`, and reads both topics for who compares."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._lock = asyncio.Lock()
        self._consumer: Consumer | None = None

    async def ends(self) -> Mapping[int, int]:
        return await self._ask(lambda c: self._ends(c, self._config.usage_topic))

    async def table(self) -> dict[str, object]:
        """Every key of metering's table with its value, as of now.

        Raises:  TransientError. CorruptError: a value is no JSON.
        """
        found: dict[str, object] = {}
        topic = self._config.windows_topic
        for key, value in await self._ask(lambda c: self._read(c, topic, {})):
            name = (key or b"").decode(errors="replace")
            if value is None:
                found.pop(name, None)
            else:
                found[name] = _json(value)
        return found

    async def unread(self, after: Callable[[int], int]) -> list[tuple[bytes | None, bytes | None]]:
        """Usage records of each partition from the offset that `after` gives, in their order.

        Raises:  TransientError
        """
        topic = self._config.usage_topic
        first = {n: after(n) for n in range(self._config.usage_partitions)}
        return await self._ask(lambda c: self._read(c, topic, first))

    async def close(self) -> None:
        """The client is gone."""
        async with self._lock:
            if self._consumer is not None:
                await asyncio.to_thread(self._consumer.close)
                self._consumer = None

    async def _ask(self, question: Callable[[Consumer], _T]) -> _T:
        async with self._lock:
            try:
                if self._consumer is None:
                    settings = {**self._config.reader(), "group.id": self._config.metering_group}
                    self._consumer = Consumer(settings, logger=CLIENT_LOG)
                return await asyncio.to_thread(question, self._consumer)
            except KafkaException as error:
                raise of_exception(error, "metering's topics") from error

    def _places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, n) for n in range(self._config.usage_partitions)]

    def _ends(self, consumer: Consumer, topic: str) -> dict[int, int]:
        """The end of each partition."""
        ends = {}
        for place in self._places(topic):
            bounds = consumer.get_watermark_offsets(place, _ASK_S)
            if bounds is None:
                raise LogUnavailableError(f"the broker does not say where {topic} ends")
            ends[place.partition] = bounds[1]
        return ends

    def _read(
        self, consumer: Consumer, topic: str, after: Mapping[int, int]
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Key and value of every record from `after` to the present end."""
        found: list[tuple[bytes | None, bytes | None]] = []
        for partition, end in self._ends(consumer, topic).items():
            place = TopicPartition(topic, partition)
            first = max(after.get(partition, 0), consumer.get_watermark_offsets(place, _ASK_S)[0])
            if first >= end:
                continue
            consumer.assign([TopicPartition(topic, partition, first)])
            at, empty = first, 0
            while at < end:
                # It waits for a full batch as long as it may.
                messages = consumer.consume(_BATCH, _WAIT_S)
                empty = 0 if messages else empty + 1
                if empty * _WAIT_S > _ASK_S:
                    raise LogUnavailableError(f"{topic} could not be read to its end")
                for message in messages:
                    if (error := message.error()) is not None:
                        raise mapped(error, topic)
                    at = (message.offset() or 0) + 1
                    if at <= end:
                        found.append((message.key(), message.value()))
            consumer.unassign()
        return found


def _json(value: bytes) -> object:
    try:
        found: object = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise CorruptError("a value of metering's table is no JSON") from None
    return found
