"""A worker's share of the partitions: handed over with its commits, and never lost by a bug."""

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.helpers.kafka import Listener, make_config, make_topics, until
from tests.helpers.processes import ROOT
from tests.helpers.servers import reserved_port
from threadlog import ids
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.group import KafkaGroup
from threadlog.errors import LogUnavailableError
from threadlog.ids import Partition, Position

PARTITIONS = 4
ALL = [Partition(n) for n in range(PARTITIONS)]
DONE = {partition: Position(10 + partition) for partition in ALL}


@pytest.fixture
async def config(kafka_bootstrap: str) -> KafkaConfig:
    config = make_config(kafka_bootstrap, partitions=PARTITIONS)
    await make_topics(config)
    return config


def another(config: KafkaConfig) -> KafkaConfig:
    return make_config(config.bootstrap, prefix=config.prefix, partitions=PARTITIONS)


@contextlib.asynccontextmanager
async def member(config: KafkaConfig, listener: Listener) -> AsyncIterator[KafkaGroup]:
    group = KafkaGroup(config)
    await group.join(listener)
    try:
        yield group
    finally:
        await group.leave()


def committed(config: KafkaConfig) -> dict[Partition, Position]:
    """What the broker has for the group."""
    consumer = Consumer({"bootstrap.servers": config.bootstrap, "group.id": config.group})
    places = [TopicPartition(config.events_topic, partition) for partition in ALL]
    found = consumer.committed(places, timeout=10)
    consumer.close()
    return {Partition(p.partition): Position(p.offset) for p in found if p.offset >= 0}


async def test_the_first_member_has_everything_and_nothing_was_committed(
    config: KafkaConfig,
) -> None:
    listener = Listener()
    async with member(config, listener) as group:
        await until(lambda: listener.held == dict.fromkeys(ALL))
        assert group.rebalances > 0
        group.commit(DONE)
        await until(lambda: committed(config) == DONE)
    assert listener.kinds() == ["assigned", "revoked"]


async def test_a_second_member_gets_its_share_with_the_firsts_commits(config: KafkaConfig) -> None:
    first, second = Listener(DONE), Listener(DONE)
    async with member(config, first):
        await until(lambda: len(first.held) == PARTITIONS)
        async with member(another(config), second):
            await until(lambda: len(second.held) == PARTITIONS // 2)
            assert second.held == {p: DONE[p] for p in second.held}
            assert sorted([*first.held, *second.held]) == ALL
            [(_, handed)] = [heard for heard in first.heard if heard[0] == "revoked"]
            assert sorted(handed) == sorted(second.held)
        # `leave` handed its share over, with what was done by then.
        await until(lambda: len(first.held) == PARTITIONS)
        assert {p: first.held[p] for p in handed} == {p: DONE[p] for p in handed}
        assert second.held == {}


async def test_leaving_hands_over_within_two_seconds(config: KafkaConfig) -> None:
    loop = asyncio.get_running_loop()
    first, second = Listener(DONE), Listener(DONE)
    async with member(config, first) as leaving:
        await until(lambda: len(first.held) == PARTITIONS)
        async with member(another(config), second):
            await until(lambda: len(second.held) == PARTITIONS // 2)
            start = loop.time()
            await leaving.leave()
            await until(lambda: len(second.held) == PARTITIONS)
            assert loop.time() - start < 2.0
            assert second.held == DONE


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
async def test_a_listener_that_raises_loses_nothing(config: KafkaConfig, kind: str) -> None:
    """KAFKA pitfall: an exception in a rebalance callback."""
    first, second = Listener(DONE), Listener(DONE)
    first.raising.add(kind)
    async with member(config, first) as group:
        await until(lambda: kind != "assigned" or "assigned" in first.kinds())
        group.commit(DONE)
        await until(lambda: committed(config) == DONE)
        async with member(another(config), second):
            await until(lambda: len(second.held) == PARTITIONS // 2)
            assert second.held == {p: DONE[p] for p in second.held}
            await asyncio.wait_for(group.leave(), 10)
            await until(lambda: sorted(second.held) == ALL)
        assert "has left" in str(await group.failed())


async def test_a_listener_that_takes_too_long_gives_its_partitions_away(
    config: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadlog.adapters.kafka.group.REVOKE_MS", 300)
    going = asyncio.Event()

    class Slow(Listener):
        async def on_revoked(self, partitions: object) -> dict[Partition, Position]:
            await going.wait()
            return {}

    first, second = Slow(), Listener()
    async with member(config, first) as group:
        await until(lambda: len(first.held) == PARTITIONS)
        group.commit(DONE)
        await until(lambda: committed(config) == DONE)
        async with member(another(config), second):
            await until(lambda: len(second.held) == PARTITIONS // 2)
            assert second.held == {p: DONE[p] for p in second.held}
            going.set()


async def test_commits_for_foreign_partitions_are_not_made(config: KafkaConfig) -> None:
    """The broker would take them (measured); only the member itself can hold them back."""
    first, second = Listener(), Listener()
    async with member(config, first) as group, member(another(config), second):
        await until(lambda: len(first.held) == len(second.held) == PARTITIONS // 2)
        group.commit(DONE)
        mine = {p: DONE[p] for p in first.held}
        await until(lambda: committed(config) == mine)
        group.commit({p: Position(99) for p in first.held})
        await until(lambda: set(committed(config).values()) == {99})
        assert set(committed(config)) == set(mine)


async def test_a_member_that_stood_still_too_long_has_lost_its_partitions(
    config: KafkaConfig,
) -> None:
    arguments = [config.bootstrap, config.prefix, ids.draw()[:8], str(PARTITIONS)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.helpers.kafka_child", "sharing", *arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    listener = Listener()
    try:
        assert await process.stdout.readline() == b"assigned 0 1 2 3\n"
        process.send_signal(signal.SIGSTOP)
        async with member(another(config), listener):
            await until(lambda: sorted(listener.held) == ALL)
            # It was away for good: nobody could commit for it.
            assert set(listener.held.values()) == {None}
            process.send_signal(signal.SIGCONT)
            assert await process.stdout.readline() == b"lost 0 1 2 3\n"
            assert (await process.stdout.readline()).startswith(b"assigned ")
            process.stdin.close()
            await asyncio.wait_for(process.wait(), 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def thread_of(group: KafkaGroup) -> threading.Thread:
    assert group._thread is not None
    return group._thread


async def test_leaving_ends_a_join_that_never_came_to_an_end() -> None:
    """SIGTERM while a process starts, and the broker is away."""
    with reserved_port() as port:
        group = KafkaGroup(make_config(f"127.0.0.1:{port}"))
        joining = asyncio.create_task(group.join(Listener()))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(group.leave(), 5)
        with pytest.raises(LogUnavailableError, match="has left"):
            await asyncio.wait_for(joining, 1)
        assert not thread_of(group).is_alive()


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_cancelled_join_leaves_nobody_in_the_group(
    config: KafkaConfig, is_away: bool
) -> None:
    with reserved_port() as port:
        listener = Listener()
        mine = make_config(f"127.0.0.1:{port}") if is_away else config
        group = KafkaGroup(mine)
        joining = asyncio.create_task(group.join(listener))
        await asyncio.sleep(0.05)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(joining, 5)
        assert not thread_of(group).is_alive()
        assert listener.held == {}
        await group.leave()
    # Others need not wait until the time of a member runs out.
    other = Listener()
    async with member(another(config), other):
        await until(lambda: sorted(other.held) == ALL, 1.5)
