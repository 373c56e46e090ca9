"""A service refuses to start on what it must not run on, and its message says what to do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import redis
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.helpers.cluster import NAMES, Cluster, Name, cluster, until, until_true
from tests.helpers.nursery import Child, Nursery
from tests.helpers.servers import RedisServer, reserved_port
from threadlog.cli.failures import ExitCode

ASK_S = 10.0


@pytest.fixture
async def one(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> AsyncIterator[Cluster]:
    """A cluster with topics, in which nothing runs."""
    async with cluster(children, short_dir, servers, partitions=2) as made:
        yield made


async def refusal(
    one: Cluster, name: Name = "projection", **env: str | None
) -> tuple[int | None, str]:
    """How `threadlog serve` ended, and what it said."""
    child: Child = await one.run("serve", name, "--metrics-port", "0", **env)
    assert "Traceback" not in child.stderr, child.stderr
    assert child.stdout == ""
    return child.status, child.stderr


def set_config(one: Cluster, values: Mapping[str, str]) -> None:
    """The topic of events is configured so, by a stranger."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource("topic", one.topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": one.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(ASK_S)


async def run_projection_once(one: Cluster) -> None:
    """The views' positions are in Redis."""
    [projection] = await one.start("projection")
    with redis.Redis.from_url(one.redis_url) as client:
        metas = [meta_key(one, partition) for partition in range(one.partitions)]
        await until(lambda: client.exists(*metas) == len(metas), "the views have begun")
    await one.terminate(projection)


def meta_key(one: Cluster, partition: int) -> str:
    return f"{{{one.topic}:{partition}}}:v2:meta"


def set_meta(one: Cluster, partition: int, name: str, value: str | int) -> None:
    """Somebody has changed what is stored about the views of this partition."""
    with redis.Redis.from_url(one.redis_url) as client:
        key = meta_key(one, partition)
        assert client.hexists(key, name)
        client.hset(key, name, str(value))


async def test_F79_B8_another_number_of_partitions_is_refused(one: Cluster) -> None:
    status, said = await refusal(one, THREADLOG_KAFKA__PARTITIONS="3")
    assert status == ExitCode.FAILED
    assert "partitions is 2, wanted 3" in said
    assert "threadlog topics" in said
    apply = await one.run("topics", "apply", THREADLOG_KAFKA__PARTITIONS="3")
    assert apply.status == ExitCode.FAILED
    assert "pinned" in apply.stderr


@pytest.mark.parametrize(
    "values",
    [{"cleanup.policy": "compact"}, {"retention.ms": "1000"}, {"retention.bytes": "1000000"}],
    ids=lambda values: next(iter(values)),
)
async def test_F79_a_topic_that_forgets_is_refused_until_it_is_mended(
    values: Mapping[str, str], one: Cluster
) -> None:
    await asyncio.to_thread(set_config, one, values)
    status, said = await refusal(one)
    assert status == ExitCode.FAILED
    assert next(iter(values)) in said
    assert "threadlog topics apply" in said
    await one.apply_topics()
    await run_projection_once(one)


async def test_a_topic_that_is_not_there_is_refused(one: Cluster) -> None:
    status, said = await refusal(one, THREADLOG_KAFKA__PREFIX=f"{one.prefix}-other")
    assert status == ExitCode.FAILED
    assert f"{one.prefix}-other.events" in said
    assert "threadlog topics apply" in said


@pytest.mark.timeout(60)
async def test_F79_B2_a_topic_made_anew_under_stored_positions_is_refused(one: Cluster) -> None:
    """By every service: positions of another topic would show threads that are empty."""
    await run_projection_once(one)

    def delete() -> None:
        admin = AdminClient({"bootstrap.servers": one.bootstrap})
        topics = [one.topic, f"{one.prefix}.dead-letters"]
        for future in admin.delete_topics(topics, operation_timeout=ASK_S).values():
            future.result(ASK_S)

    async def is_made_again() -> bool:
        return (await one.run("topics", "apply")).status == 0

    await asyncio.to_thread(delete)
    await until_true(is_made_again, "the topic is made again")
    for name in NAMES:
        status, said = await refusal(one, name)
        assert status == ExitCode.FAILED, name
        assert "made from another log" in said
        assert "redis-cli --scan" in said


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cluster_id", "of-another-broker", "made from another log"),
        ("partitions", 7, "made from another log"),
        ("format", 99, "newer than this"),
    ],
)
async def test_F79_B2_stored_views_that_do_not_belong_here_are_refused(
    name: str, value: str | int, told: str, one: Cluster
) -> None:
    await run_projection_once(one)
    await asyncio.to_thread(set_meta, one, 1, name, value)
    status, said = await refusal(one)
    assert status == ExitCode.FAILED
    assert told in said
    assert "redis-cli --scan" in said


async def test_B2_views_that_know_more_than_their_log_end_the_projection(one: Cluster) -> None:
    await run_projection_once(one)
    await asyncio.to_thread(set_meta, one, 0, "watermark", 1_000)
    status, said = await refusal(one)
    assert status == ExitCode.FAILED
    assert "at 1000, but the log ends at 0" in said


async def test_R2_a_redis_that_would_drop_keys_is_refused(
    one: Cluster, own_redis: RedisServer
) -> None:
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    status, said = await refusal(one, THREADLOG_REDIS__URL=own_redis.url)
    assert status == ExitCode.FAILED
    assert "allkeys-lru" in said
    assert "maxmemory-policy noeviction" in said


@pytest.mark.timeout(60)
async def test_B1_servers_that_are_away_are_named(one: Cluster) -> None:
    with reserved_port() as port:
        nobody = f"127.0.0.1:{port}"
        no_broker, no_redis = await asyncio.gather(
            refusal(one, THREADLOG_KAFKA__BOOTSTRAP=nobody),
            refusal(one, THREADLOG_REDIS__URL=f"redis://{nobody}/0"),
        )
    for status, said in (no_broker, no_redis):
        assert status == ExitCode.TRANSIENT
        assert nobody in said


@pytest.mark.parametrize(
    "missing",
    ["THREADLOG_KAFKA__BOOTSTRAP", "THREADLOG_REDIS__URL", "THREADLOG_BLOBS__URL"],
)
async def test_a_missing_setting_is_named(missing: str, one: Cluster) -> None:
    for name in NAMES:
        status, said = await refusal(one, name, **{missing: None})
        assert status == ExitCode.USAGE
        # Without a Kafka the Redis that is set is what does not fit.
        assert missing in said
        assert "for example" in said
        with contextlib.suppress(FileNotFoundError):
            assert not [*(one.home / "data").iterdir()], "it left something behind"
