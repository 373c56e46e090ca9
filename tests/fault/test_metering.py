"""Metering as processes on a real broker: exact through kills, repeats and rebuilds."""

import os
from pathlib import Path

import pytest

from tests.helpers.cluster import cluster, until_true
from tests.helpers.metering import Projections, kept, without
from tests.helpers.nursery import Nursery
from threadlog.bootstrap.kafka import kafka_config
from threadlog.clock import SystemClock

FACTS = int(os.environ.get("TEST_METERING_FACTS", "2000"))
"""10,000 is what issue 6 shows; fewer are enough to see a fact lost or counted twice."""
CATCH_UP_S = 20 + FACTS / 100


@pytest.mark.timeout(30 + FACTS // 20)
async def test_F108_usage_is_exact_through_repeats_a_kill_and_a_rebuild(
    children: Nursery, servers: tuple[str, str], tmp_path: Path
) -> None:
    async with cluster(children, tmp_path, servers) as one:
        config = kafka_config(one.settings(), "cli", "test")
        async with one.connected() as opened:
            topic_id = opened.identity.topic_id
            told = Projections(opened.log, topic_id, seed=5)
            told.make(FACTS, SystemClock().now_ms())
            first, second = await one.start("metering", "metering")
            await told.go(0.4)
            await one.kill(second)
            await told.rebuild()

            async def is_counted() -> bool:
                return bool(await kept(config, topic_id))

            await until_true(is_counted, "all is counted", [first], CATCH_UP_S)
            windows = await kept(config, topic_id)
        counted = {slot: w.sums for slot, w in windows.items() if slot.span != "minute"}
        wanted = told.sums()
        assert [s for s in wanted if counted.get(s) != wanted[s]] == []
        assert counted == wanted
        assert told.told > 2 * FACTS
        await one.terminate(first)


async def test_F108_metering_does_not_start_without_its_table(
    children: Nursery, servers: tuple[str, str], tmp_path: Path
) -> None:
    """Faust would say one line, run on, and lose what it has counted."""
    async with cluster(children, tmp_path, servers) as one:
        config = kafka_config(one.settings(), "cli", "test")
        await without(config, config.windows_topic)
        child = await one.run("serve", "metering", "--metrics-port", "0")
        assert child.status == 1
        assert f"topic {config.windows_topic}: topic is nothing" in child.stderr
        assert "threadlog topics apply" in child.stderr
        await without(config, config.usage_topic)
        child = await one.run("serve", "projection", "--metrics-port", "0")
        assert child.status == 1
        assert f"topic {config.usage_topic}: topic is nothing" in child.stderr
        await one.apply_topics()
        [process] = await one.start("metering")
        await one.terminate(process)


async def test_F108_verify_tells_equal_from_different(
    children: Nursery, servers: tuple[str, str], tmp_path: Path
) -> None:
    async with cluster(children, tmp_path, servers) as one:
        await one.start("projection")
        equal = await one.run("usage", "--verify")
        assert (equal.status, equal.stdout) == (0, "local: equal\n"), equal.stderr
        async with one.connected() as opened:
            told = Projections(opened.log, opened.identity.topic_id, seed=5)
            told.make(50, SystemClock().now_ms())
            await told.go(0.4)
        # Facts that no view has: nobody has counted them yet, and they differ all the same.
        differs = await one.run("usage", "--verify")
        assert differs.status == 9, differs.stderr
        assert "differs" in differs.stdout
        assert "facts behind" in differs.stdout
