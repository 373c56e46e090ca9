"""Faults planted in a real broker and a real Redis, and what `doctor` says of each."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from deploy.servers import kafka_is_missing, redis_is_missing
from tests.helpers.doctor import Site, finds, levels
from tests.helpers.kafka import Listener, make_config, make_topics
from tests.helpers.servers import Broker, RedisServer, need, reserved_port
from threadlog import ids
from threadlog.adapters.kafka.advice import advice
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import of_exception
from threadlog.adapters.kafka.group import KafkaGroup
from threadlog.adapters.kafka.members import KafkaMembers
from threadlog.adapters.kafka.topics import KafkaTopics, TopicsWanted
from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.meta import first_of
from threadlog.clock import ManualClock, SystemClock
from threadlog.ids import NO_POSITION, Partition, Position
from threadlog.settings import BlobsSettings, Settings

DEADLINE_S = 10.0
HOUR_MS = 3_600_000


@pytest.fixture
def site(short_dir: Path, kafka_bootstrap: str, redis_url: str) -> Site:
    return Site(short_dir, kafka_bootstrap, redis_url, f"test-{ids.draw()[:8]}")


def config_of(site: Site, **values: object) -> KafkaConfig:
    return make_config(
        site.bootstrap, **{"prefix": site.prefix, "partitions": site.partitions, **values}
    )


def configure(site: Site, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(
        ResourceType.TOPIC, f"{site.prefix}.{topic}", incremental_configs=entries
    )
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(DEADLINE_S)
    # The broker tells of a change a moment after it has taken it.
    asked = ConfigResource(ResourceType.TOPIC, f"{site.prefix}.{topic}")
    while True:
        found = client.describe_configs([asked])[asked].result(DEADLINE_S)
        if all(found[entry.name].value == entry.value for entry in entries):
            return


def append(
    site: Site, values: list[bytes], *, at_ms: int = 0, partition: int = 0, name: str = "events"
) -> None:
    """Records of a stranger; with a time where the topic takes the writer's."""
    producer = Producer({"bootstrap.servers": site.bootstrap})
    topic = f"{site.prefix}.{name}"
    for value in values:
        producer.produce(topic, value, b"local/x", partition, timestamp=at_ms)
    assert producer.flush(DEADLINE_S) == 0


async def views_at(site: Site, watermark: int, **meta: str) -> None:
    """Redis says that the views of every partition are so far."""
    identity = await KafkaTopics(config_of(site)).identity()
    with redis.Redis.from_url(site.redis_url) as client:
        for n in range(site.partitions):
            key = keys_of(identity, Partition(n)).meta
            fields = first_of(identity, NO_POSITION)
            client.hset(key, items=[*fields, "watermark", watermark])
            if meta:
                client.hset(key, mapping=dict(meta))


@asynccontextmanager
async def working(config: KafkaConfig, *, is_known: bool = True) -> AsyncIterator[KafkaGroup]:
    """A member of the group of the config's service; `is_known`: also among the living."""
    members, group, listener = KafkaMembers(config), KafkaGroup(config), Listener()
    if is_known:
        await members.start()
    await group.join(listener)
    async with asyncio.timeout(DEADLINE_S):
        while len(listener.held) < config.partitions:
            await asyncio.sleep(0.02)
    try:
        yield group
    finally:
        await group.leave()
        if is_known:
            await members.close()


async def test_F106_a_cluster_in_order_is_ok(site: Site) -> None:
    await make_topics(config_of(site))
    await views_at(site, 0)
    async with working(config_of(site)):
        told = await site.diagnosed()
    found = levels(told)
    assert "fail" not in found.values()
    for name in (
        *(("log", "broker"), ("log", "topics"), ("log", "beginning"), ("groups", "planner")),
        *(("redis", "server"), ("redis", "eviction"), ("redis", "memory"), ("views", "freshness")),
        *(("blobs", "folder"), ("blobs", "contents"), ("clock", "redis clock")),
    ):
        assert found[name] == "ok", name
    finds(told, "nobody-works", site.names)
    finds(told, "no-keys", site.names)
    finds(told, "sandbox-off", site.names)


async def test_F106_missing_topics(site: Site) -> None:
    told = await site.diagnosed()
    finds(told, "topic-missing", site.names)
    # Every topic that `topics apply` would make is asked for.
    missing = {e.finding.evidence for e in told if e.finding.check == "topic"}
    wanted = await KafkaTopics(config_of(site)).plan(TopicsWanted(site.partitions, 1))
    assert missing == {f"{change.topic} is missing" for change in wanted}
    finds(told, "not-checked", site.names)


async def test_F106_topics_that_are_not_as_they_must_be(site: Site) -> None:
    await make_topics(config_of(site))
    configure(
        site,
        "events",
        cleanup_policy="compact",
        retention_ms="604800000",
        retention_bytes="1000000",
        max_message_bytes="1000",
        message_timestamp_type="CreateTime",
        unclean_leader_election_enable="true",
    )
    told = await site.diagnosed(settings=site.settings(partitions=4, replication=3))
    for name in (
        *("partitions", "cleanup", "retention", "retention-bytes", "message-bytes"),
        *("timestamps", "unclean", "replication", "min-isr"),
    ):
        finds(told, name, site.names)


async def test_F106_the_beginning_of_a_partition_is_gone(site: Site) -> None:
    await make_topics(config_of(site))
    append(site, [b"{}"] * 3)
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    place = TopicPartition(f"{site.prefix}.events", 0, 2)
    for future in client.delete_records([place]).values():
        future.result(DEADLINE_S)
    finds(await site.diagnosed(), "beginning-gone", site.names)


async def test_F106_half_of_it_is_away(site: Site, redis_url: str) -> None:
    """What is there is still checked, what needs the rest says so, and it does not take long."""
    loop = asyncio.get_running_loop()
    with reserved_port() as port:
        away = Site(site.home, f"127.0.0.1:{port}", redis_url, site.prefix)
        began_s = loop.time()
        told = await away.diagnosed()
        assert loop.time() - began_s < 4.5, "a request alone may take 5 s"
        finds(told, "broker-away", away.names)
        finds(told, "not-checked-broker", away.names)
        assert levels(told)["redis", "server"] == "ok"
        assert levels(told)["blobs", "folder"] == "ok"

        away = Site(site.home, site.bootstrap, f"redis://127.0.0.1:{port}/0", site.prefix)
        await make_topics(config_of(site))
        told = await away.diagnosed()
        finds(told, "redis-away", away.names)
        assert levels(told)["log", "topics"] == "ok"
        assert levels(told)["clock", "redis clock"] == "warn"


@pytest.fixture
def tunable(redis_url: str) -> Iterator["redis.Redis"]:
    """The Redis of this run, whose settings come back."""
    with redis.Redis.from_url(redis_url) as client:
        before = client.config_get("maxmemory*")
        yield client
        for name in ("maxmemory", "maxmemory-policy"):
            client.config_set(name, before[name])


async def test_F106_a_redis_that_drops_keys_or_is_full(site: Site, tunable: "redis.Redis") -> None:
    tunable.setrange(site.prefix, 40_000_000, b"x")  # made there: no buffer counts, too
    used = int(tunable.info("memory")["used_memory"])
    try:
        tunable.config_set("maxmemory", used * 100 // 95)
        tunable.config_set("maxmemory-policy", "allkeys-lru")
        told = await site.diagnosed()
        finds(told, "redis-evicting", site.names)
        finds(told, "redis-nearly-full", site.names)
        tunable.config_set("maxmemory-policy", "noeviction")
        tunable.config_set("maxmemory", used // 2)
        finds(await site.diagnosed(), "redis-full", site.names)
    finally:
        tunable.delete(site.prefix)


async def test_F106_a_redis_that_lets_nobody_in_or_takes_no_writes(site: Site) -> None:
    need("redis", redis_is_missing())
    with RedisServer({"requirepass": "right-word"}) as server:
        inside = server.url.replace("://", "://:right-word@")
        wrong = Site(site.home, site.bootstrap, server.url.replace("://", "://:bad-word@"), "x")
        told = await wrong.diagnosed()
        finds(told, "redis-password", {server.url.rpartition("/")[0]: "redis://redis:6379"})
        assert "-word" not in str(told)
        with redis.Redis.from_url(inside) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
        replica = Site(site.home, site.bootstrap, inside, site.prefix)
        finds(await replica.diagnosed(), "redis-replica", site.names)


async def test_F106_a_broker_that_speaks_no_tls(site: Site) -> None:
    told = await site.diagnosed(settings=site.settings(security_protocol="SSL"))
    [broker] = [each.finding for each in told if each.finding.check == "broker"]
    said = broker.evidence.partition(f"{site.bootstrap}: ")[2]
    assert "SSL" in said
    finds(told, "broker-tls", {**site.names, said: "WHAT THE CLIENT SAYS OF SSL"})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "ACLs"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "ACLs"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "SASL_"),
        (KafkaError._AUTHENTICATION, "SASL_"),
        (KafkaError.UNSUPPORTED_VERSION, "upgrade the broker"),
        (KafkaError._TRANSPORT, None),
    ],
)
def test_what_the_client_says_by_a_code_has_its_own_fix(code: int, words: str | None) -> None:
    """Some of these need a broker with passwords, or an old one: the code alone decides."""
    cause = KafkaException(KafkaError(code))
    said = advice(of_exception(cause, "topics"))
    assert said is None, "an error without its cause says nothing"
    failure = of_exception(cause, "topics")
    failure.__cause__ = cause
    said = advice(failure)
    assert (said is None) if words is None else (said is not None and words in said)


async def test_F106_a_redis_that_is_too_old(site: Site, redis_url: str) -> None:
    """The real server behind a relay that changes the one digit of its version."""
    port = int(redis_url.rpartition(":")[2].partition("/")[0])

    async def relay(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, asking = await asyncio.open_connection("127.0.0.1", port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data.replace(b"redis_version:7", b"redis_version:5"))
            target.close()

        await asyncio.gather(pump(client, asking), pump(server, answers))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        there = server.sockets[0].getsockname()[1]
        old = Site(site.home, site.bootstrap, f"redis://127.0.0.1:{there}/0", site.prefix)
        finds(await old.diagnosed(), "redis-old", old.names)


async def test_F106_views_that_are_behind_or_anothers(site: Site) -> None:
    # From the beginning: the change of a topic takes its time to be in force.
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    topic = NewTopic(f"{site.prefix}.events", site.partitions, 1)
    topic.config = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    for future in client.create_topics([topic]).values():
        future.result(DEADLINE_S)
    hour_ago_ms = SystemClock().now_ms() - HOUR_MS
    append(site, [b"{}"] * 3, at_ms=hour_ago_ms)
    finds(await site.diagnosed(), "views-none", site.names)
    await views_at(site, 1)
    finds(await site.diagnosed(), "views-behind", site.names)
    await views_at(site, 3, cluster_id="another")
    identity = await KafkaTopics(config_of(site)).identity()
    ours = {identity.cluster_id: "CLUSTER", identity.topic_id: "TOPIC"}
    finds(await site.diagnosed(), "views-of-another-log", {**site.names, **ours})
    await views_at(site, 3, fold="1+0123456789abcdef")
    finds(await site.diagnosed(), "views-of-another-fold", site.names)
    await views_at(site, 3)
    assert levels(await site.diagnosed())["views", "freshness"] == "ok"


async def test_F106_groups_without_a_worker_or_with_a_bad_one(site: Site) -> None:
    config = config_of(site, instance="1")
    await make_topics(config)
    append(site, [b"{}"] * 3)
    async with working(config, is_known=False) as group:
        told = await site.diagnosed()
        finds(told, "member-dead", site.names)
        finds(told, "member-stuck", site.names)
        group.commit({Partition(0): Position(1)})
        asked = Consumer({"bootstrap.servers": site.bootstrap, "group.id": config.group})
        place = TopicPartition(config.events_topic, 0)
        async with asyncio.timeout(DEADLINE_S):
            while asked.committed([place], timeout=DEADLINE_S)[0].offset != 1:
                await asyncio.sleep(0.05)
        asked.close()
    told = await site.diagnosed()
    finds(told, "nobody-reads", site.names)
    finds(told, "commits-missing", site.names)


async def test_F106_usage_that_nobody_counts(site: Site) -> None:
    config = config_of(site)
    await make_topics(config)
    append(site, [b"{}"] * 2, name="usage")
    told = await site.diagnosed()
    finds(told, "metering-none", site.names)
    settings = {"bootstrap.servers": site.bootstrap, "group.id": config.metering_group}
    member = Consumer(settings)
    member.subscribe([config.usage_topic])
    async with asyncio.timeout(DEADLINE_S):
        while not member.assignment():
            await asyncio.to_thread(member.poll, 0.1)
    told = await site.diagnosed()
    finds(told, "metering-stuck", site.names)
    member.close()


@pytest.fixture(scope="module")
def strict_broker() -> Iterator[Broker]:
    """A broker that asks ACLs, and forgets commits after an hour."""
    need("kafka", kafka_is_missing())
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "offsets.retention.minutes": "60",
    }
    with Broker(settings) as broker:
        yield broker


async def test_F106_what_may_not_be_asked_and_what_is_forgotten(
    short_dir: Path, strict_broker: Broker, redis_url: str
) -> None:
    prefix = f"test-{ids.draw()[:8]}"
    site = Site(short_dir, strict_broker.bootstrap, redis_url, prefix)
    await make_topics(config_of(site))
    finds(await site.diagnosed(), "commits-expire", site.names)
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    kinds = ((ResourceType.TOPIC, f"{prefix}.events"), (ResourceType.GROUP, f"{prefix}.planner"))
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.ALL,
            AclPermissionType.DENY,
        )
        for kind, name in kinds
    ]
    for future in client.create_acls(bindings).values():
        future.result(DEADLINE_S)
    told = await site.diagnosed()
    finds(told, "topic-forbidden", site.names)
    assert levels(told)["log", "broker"] == "ok"


async def test_F106_clocks_that_differ(site: Site) -> None:
    clock = ManualClock(SystemClock().now_ms() + HOUR_MS)
    finds(await site.diagnosed(clock), "clock-skew", site.names)


async def test_F106_a_blob_store_that_is_another_folder_or_none(site: Site) -> None:
    await make_topics(config_of(site))
    sha = "0" * 64
    blob = f'{{"text":{{"sha256":"{sha}","bytes":70000,"media_type":"text/plain"}}}}'
    append(site, [blob.encode(), b"{}", b"no json"])
    told = await site.diagnosed()
    finds(told, "blobs-elsewhere", site.names)
    there = site.home / "blobs/local/00" / sha
    there.parent.mkdir(parents=True)
    there.write_bytes(b"x")
    assert levels(await site.diagnosed())["blobs", "contents"] == "ok"

    def at(folder: str) -> Settings:
        return site.settings().model_copy(update={"blobs": BlobsSettings(url=f"file://{folder}")})

    gone = f"{site.home}/gone"
    finds(await site.diagnosed(settings=at(gone)), "blobs-missing", site.names)
    assert not Path(gone).exists()


async def test_F106_it_changes_nothing_in_a_cluster(site: Site) -> None:
    client = AdminClient({"bootstrap.servers": site.bootstrap})
    await site.diagnosed()
    await make_topics(config_of(site))
    append(site, [b"{}"])
    with redis.Redis.from_url(site.redis_url) as there:
        before = (set(client.list_topics(timeout=DEADLINE_S).topics), set(there.keys("*")))
        groups = {g.group_id for g in client.list_consumer_groups().result(DEADLINE_S).valid}
        await site.diagnosed()
        assert (set(client.list_topics(timeout=DEADLINE_S).topics), set(there.keys("*"))) == before
    after = {g.group_id for g in client.list_consumer_groups().result(DEADLINE_S).valid}
    assert after == groups
    assert not [name for name in before[0] if name == f"{site.prefix}."]
    assert not list((site.home / "blobs").iterdir())
    assert not (site.home / "data").exists()
