"""Logs, groups and raw records on a real broker: everything a test makes has a name of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.helpers.logs import DEADLINE_S
from threadlog import ids
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.log import KafkaLog
from threadlog.adapters.kafka.topics import KafkaTopics, TopicsWanted
from threadlog.errors import ThreadlogError
from threadlog.ids import Partition, Position

RawHeaders = list[tuple[str, str | bytes | None]]


def make_config(bootstrap: str, **values: Any) -> KafkaConfig:
    """A config whose topics and groups nobody else has, with a short-lived membership."""
    defaults: dict[str, Any] = {
        "service": "planner",
        "instance": ids.draw()[:8],
        "prefix": f"test-{ids.draw()[:8]}",
        "partitions": 1,
        "member_timeout_ms": 2_000,
        "heartbeat_ms": 200,
        "delivery_timeout_ms": 10_000,
    }
    return KafkaConfig(bootstrap, **{**defaults, **values})


async def make_topics(config: KafkaConfig) -> None:
    """The topics of `config` are there."""
    await KafkaTopics(config).apply(TopicsWanted(config.partitions, 1))


@contextlib.asynccontextmanager
async def running_log(config: KafkaConfig) -> AsyncIterator[KafkaLog]:
    """A started log; a fatal error of its client fails whoever waits for it here."""
    fatal: list[ThreadlogError] = []
    log = KafkaLog(config, on_fatal=fatal.append)
    await log.start()
    try:
        yield log
    finally:
        await log.close()
    assert not fatal


def append_raw(
    config: KafkaConfig,
    records: Sequence[tuple[bytes | None, RawHeaders, bytes | None]],
    *,
    partition: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> list[Position]:
    """The positions of records as a stranger would append them."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": config.bootstrap, **(settings or {})})
    for key, headers, value in records:
        producer.produce(
            config.events_topic,
            value,
            key,
            partition,
            headers=headers,
            on_delivery=lambda _, message: offsets.append(message.offset() or 0),
        )
    producer.flush(DEADLINE_S)
    assert len(offsets) == len(records)
    return [Position(offset + 1) for offset in offsets]


def append_transaction(config: KafkaConfig, value: bytes) -> None:
    """A stranger's transaction of one record; its marker takes a place in the partition, too."""
    settings = {"bootstrap.servers": config.bootstrap, "transactional.id": ids.draw()}
    place = TopicPartition(config.events_topic, 0)
    asker = Consumer({"bootstrap.servers": config.bootstrap, "group.id": config.group})
    _, before = asker.get_watermark_offsets(place, DEADLINE_S)
    producer = Producer(settings)
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(config.events_topic, value, b"stranger", 0)
    producer.commit_transaction(DEADLINE_S)
    # The broker answers a moment before the marker is there.
    while asker.get_watermark_offsets(place, DEADLINE_S)[1] < before + 2:
        pass
    asker.close()


async def until(is_so: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """`is_so` has become true; looked at often, since the client tells nobody."""
    async with asyncio.timeout(deadline_s):
        while not is_so():
            await asyncio.sleep(0.01)


class Listener:
    """A group listener that remembers what it heard, and says what it has done."""

    def __init__(self, done: Mapping[Partition, Position] | None = None) -> None:
        self.held: dict[Partition, Position | None] = {}
        self.heard: list[tuple[str, list[Partition]]] = []
        self.done = dict(done or {})
        self.raising: set[str] = set()

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.heard]

    async def on_assigned(self, partitions: Mapping[Partition, Position | None]) -> None:
        self._hear("assigned", list(partitions))
        self.held.update(partitions)

    async def on_revoked(self, partitions: Sequence[Partition]) -> Mapping[Partition, Position]:
        for partition in partitions:
            self.held.pop(partition, None)
        self._hear("revoked", list(partitions))
        return {p: self.done[p] for p in partitions if p in self.done}

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self.held.pop(partition, None)
        self._hear("lost", list(partitions))

    def _hear(self, kind: str, partitions: list[Partition]) -> None:
        self.heard.append((kind, partitions))
        if kind in self.raising:
            self.raising.discard(kind)
            raise RuntimeError(f"a bug in {kind}")
