"""What the broker must look like, who changes it, and where pointers to bad records go."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from tests.helpers.kafka import append_raw, make_config, make_topics, running_log
from tests.helpers.logs import DEADLINE_S
from threadlog.adapters.kafka import topics as topics_module
from threadlog.adapters.kafka.config import KafkaConfig, KafkaSecurity
from threadlog.adapters.kafka.dead_letters import DeadLetterViews
from threadlog.adapters.kafka.topics import KafkaTopics, TopicsWanted
from threadlog.errors import LogUnavailableError, RefusedError, TransientError
from threadlog.ids import NO_POSITION, Partition, Position, TenantId, ThreadId, draw
from threadlog.ports.views import (
    DeadLetter,
    OpenThreads,
    ViewBatch,
)

WANTED = TopicsWanted(partitions=3, replication=1)


@pytest.fixture
def config(kafka_bootstrap: str) -> KafkaConfig:
    return make_config(kafka_bootstrap, partitions=3)


def admin(config: KafkaConfig) -> AdminClient:
    return AdminClient({"bootstrap.servers": config.bootstrap})


def configure(config: KafkaConfig, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, config.events_topic, incremental_configs=entries)
    client = admin(config)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)


async def until_seen(topics: KafkaTopics, is_found: bool) -> None:
    """The broker tells of a change a moment after it has taken it."""
    async with asyncio.timeout(DEADLINE_S):
        while bool(await topics.plan(WANTED)) != is_found:
            await asyncio.sleep(0.01)


async def test_apply_makes_what_is_missing_and_nothing_twice(config: KafkaConfig) -> None:
    topics = KafkaTopics(config)
    with pytest.raises(RefusedError, match="threadlog topics apply"):
        await topics.check()
    with pytest.raises(RefusedError, match=config.events_topic):
        await topics.identity()
    assert [change.name for change in await topics.plan(WANTED)] == 4 * ["topic"]
    assert [change.topic for change in await topics.apply(WANTED)] == [
        config.events_topic,
        config.dead_letters_topic,
        config.usage_topic,
        config.windows_topic,
    ]
    await topics.check()
    assert await topics.plan(WANTED) == []
    assert await topics.apply(WANTED) == []


async def test_a_recreated_topic_is_another_log(config: KafkaConfig) -> None:
    topics = KafkaTopics(config)
    await topics.apply(WANTED)
    first = await topics.identity()
    assert (first.topic, first.partitions) == (config.events_topic, 3)
    assert first.cluster_id
    assert first == await topics.identity()
    client = admin(config)
    client.delete_topics([config.events_topic])[config.events_topic].result(DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        while not await topics.plan(WANTED):
            await asyncio.sleep(0.01)
    await topics.apply(WANTED)
    second = await topics.identity()
    assert second.cluster_id == first.cluster_id
    assert second.topic_id != first.topic_id


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup_policy", "compact"),
        ("cleanup_policy", "compact,delete"),
        ("retention_ms", "86400000"),
        ("retention_bytes", "1000000000"),
    ],
)
async def test_a_topic_that_forgets_is_refused_and_mended(
    config: KafkaConfig, name: str, value: str
) -> None:
    """KAFKA pitfall: compacted, a thread would keep one event."""
    topics = KafkaTopics(config)
    await topics.apply(WANTED)
    configure(config, **{name: value})
    await until_seen(topics, is_found=True)
    with pytest.raises(RefusedError) as refused:
        await topics.check()
    setting = name.replace("_", ".")
    for part in (config.events_topic, setting, value, "threadlog topics apply"):
        assert part in str(refused.value)
    assert [change.name for change in await topics.apply(WANTED)] == [setting]
    await until_seen(topics, is_found=False)
    await topics.check()


async def test_another_number_of_partitions_is_refused_by_all(config: KafkaConfig) -> None:
    """KAFKA pitfall: partitions added under a running system move threads from their history."""
    topics = KafkaTopics(config)
    await topics.apply(WANTED)
    more = NewPartitions(config.events_topic, 5)
    client = admin(config)
    client.create_partitions([more])[config.events_topic].result(DEADLINE_S)
    await until_seen(topics, is_found=True)
    with pytest.raises(RefusedError, match="partitions is 5, wanted 3"):
        await topics.check()
    [change] = await topics.plan(WANTED)
    assert (change.name, change.found, change.wanted) == ("partitions", "5", "3")
    assert change.advice
    with pytest.raises(RefusedError, match="pinned"):
        await topics.apply(WANTED)
    with pytest.raises(RefusedError, match="replication is 1, wanted 3"):
        await topics.apply(TopicsWanted(5, 3))


async def test_a_log_that_has_forgotten_is_refused_although_it_was_mended(
    config: KafkaConfig,
) -> None:
    """Retention that was set for a day and set back has deleted records all the same."""
    topics = KafkaTopics(config)
    await topics.apply(WANTED)
    for partition in (0, 2):
        append_raw(config, [(b"k", [], b"v")] * 4, partition=partition)
    await topics.check()
    place = TopicPartition(config.events_topic, 2, 3)
    client = admin(config)
    client.delete_records([place])[place].result(DEADLINE_S)
    with pytest.raises(RefusedError, match=r"partition 2 begins at offset 3\b"):
        await topics.check()


async def test_an_unreachable_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "_ASK_S", 1.0)
    with pytest.raises(LogUnavailableError, match=r"127\.0\.0\.1:1"):
        await KafkaTopics(make_config("127.0.0.1:1")).check()


def test_every_client_names_the_process_and_only_given_secrets() -> None:
    bare = make_config("b:1", service="planner", instance="i-1", prefix="p")
    assert (bare.worker, bare.group) == ("planner-i-1", "p.planner")
    assert (bare.events_topic, bare.dead_letters_topic) == ("p.events", "p.dead-letters")
    security = KafkaSecurity("sasl_ssl", "PLAIN", "user", "hunter2", ssl_ca_file="ca.pem")
    secure = KafkaConfig("b:1", "planner", "i-1", security=security)
    assert "hunter2" not in repr(secure)
    for config in (bare, secure):
        for settings in (
            config.admin(),
            config.producer(),
            config.reader(),
            config.lookup(),
            config.member(config.alive_group, strategy="range"),
        ):
            assert settings["client.id"] == "planner-i-1"
            assert ("sasl.password" in settings) == (config is secure)
            assert "" not in settings.values()
            assert settings.get("isolation.level", "read_uncommitted") == "read_uncommitted"
            assert settings.get("auto.offset.reset", "error") == "error"


# -- dead letters


class Inner:
    """Views that only remember."""

    def __init__(self) -> None:
        self.applied: list[ViewBatch] = []
        self.failures = 0

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        return max(end, reached)

    async def apply(self, batch: ViewBatch, *, urgent: bool) -> Position:
        if self.failures:
            self.failures -= 1
            raise TransientError("Redis is away")
        self.applied.append(batch)
        return batch.watermark

    async def watermark(self) -> Position:
        return Position(5)

    async def wait(self, position: Position) -> None:
        assert position == 6

    async def row(self, tenant: TenantId, thread: ThreadId) -> None:
        return None

    async def open_threads(self) -> OpenThreads:
        return OpenThreads(Position(5), [])


def pointers(config: KafkaConfig, count: int) -> list[tuple[bytes | None, dict[str, Any]]]:
    consumer = Consumer({"bootstrap.servers": config.bootstrap, "group.id": config.group})
    consumer.assign([TopicPartition(config.dead_letters_topic, 0, 0)])
    found = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return [(message.key(), json.loads(message.value() or b"")) for message in found]


async def test_pointers_are_durable_before_the_view_moves_on(config: KafkaConfig) -> None:
    await make_topics(config)
    identity = await KafkaTopics(config).identity()
    inner = Inner()
    batch = ViewBatch(
        NO_POSITION, Position(9), dead_letters=[DeadLetter(Position(4), "invalid: title")]
    )
    async with running_log(config) as log:
        views = DeadLetterViews(
            inner, log, identity=identity, partition=Partition(2), code_version="1.2.3"
        )
        assert await views.apply(batch, urgent=True) == 9
        assert await views.apply(ViewBatch(Position(9), Position(10)), urgent=False) == 10
        assert [applied.watermark for applied in inner.applied] == [9, 10]
        assert (await views.begin(Position(3)), await views.watermark()) == (3, 5)
        assert await views.begin(Position(3), reached=Position(4)) == 4
        await views.wait(Position(6))
        assert await views.open_threads() == OpenThreads(Position(5), [])
        assert await views.row(TenantId("t"), ThreadId("n")) is None
    [(key, body)] = await asyncio.to_thread(pointers, config, 1)
    assert key == f"{config.events_topic}:2:3".encode()
    assert body == {
        "topic": config.events_topic,
        "topic_id": identity.topic_id,
        "partition": 2,
        "offset": 3,
        "reason": "invalid: title",
        "code_version": "1.2.3",
    }
    # The log is closed, and with it the way for pointers: the view does not move on.
    with pytest.raises(LogUnavailableError):
        await views.apply(batch, urgent=True)
    assert len(inner.applied) == 2


async def test_a_batch_that_is_tried_again_has_its_pointers_already(config: KafkaConfig) -> None:
    """While Redis is away the same batch comes several times a second, for as long as it takes."""
    await make_topics(config)
    identity = await KafkaTopics(config).identity()
    inner = Inner()
    inner.failures = 4
    letters = [DeadLetter(Position(n), "invalid") for n in (4, 5, 6)]
    batch = ViewBatch(NO_POSITION, Position(5), dead_letters=letters[:2])
    longer = ViewBatch(NO_POSITION, Position(9), dead_letters=letters)
    async with running_log(config) as log:
        views = DeadLetterViews(
            inner, log, identity=identity, partition=Partition(2), code_version="1"
        )
        for tried in (batch, batch, longer, longer):
            with pytest.raises(TransientError):
                await views.apply(tried, urgent=True)
        assert await views.apply(longer, urgent=True) == 9
        assert await asyncio.to_thread(count_pointers, config) == 3
        # Views that went back are made again, and so are their pointers.
        assert await views.apply(ViewBatch(Position(9), Position(10)), urgent=True) == 10
        assert await views.apply(batch, urgent=True) == 5
        assert await asyncio.to_thread(count_pointers, config) == 5


def count_pointers(config: KafkaConfig) -> int:
    consumer = Consumer({"bootstrap.servers": config.bootstrap, "group.id": config.group})
    place = TopicPartition(config.dead_letters_topic, 0)
    _, end = consumer.get_watermark_offsets(place, DEADLINE_S)
    consumer.close()
    return int(end)


async def test_F103_drift_is_what_differs_from_the_pinned_and_nothing_else(
    config: KafkaConfig,
) -> None:
    topics = KafkaTopics(config)
    await topics.apply(WANTED)
    found = await topics.drift()
    assert len(found) == 16
    assert not any(found.values())
    configure(config, retention_ms="1000")
    async with asyncio.timeout(DEADLINE_S):
        while not any((found := await topics.drift()).values()):
            await asyncio.sleep(0.01)
    assert [key for key, differs in found.items() if differs] == [
        (config.events_topic, "retention.ms")
    ]
    other = KafkaTopics(dataclasses.replace(config, partitions=4))
    assert (await other.drift())[config.events_topic, "partitions"]


async def test_F103_records_behind_an_open_transaction_are_counted_until_it_ends(
    config: KafkaConfig,
) -> None:
    topics = KafkaTopics(config)
    await topics.apply(WANTED)
    append_raw(config, [(None, [], b"ours")])
    assert await topics.foreign([0, 2]) == {0: 0, 2: 0}
    settings = {"bootstrap.servers": config.bootstrap, "transactional.id": draw()}
    stranger = Producer(settings)
    stranger.init_transactions(DEADLINE_S)
    stranger.begin_transaction()
    stranger.produce(config.events_topic, b"theirs", b"stranger", 0)
    stranger.flush(DEADLINE_S)
    append_raw(config, [(None, [], b"ours")])
    assert (await topics.foreign([0]))[0] == 2
    stranger.abort_transaction(DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        while any((await topics.foreign([0])).values()):
            await asyncio.sleep(0.01)
