"""Metering as processes on a real broker: exact through kills, repeats and rebuilds."""

import os
import time
from pathlib import Path

import pytest

from tests.helpers.cluster import Cluster, cluster, until_true
from tests.helpers.metering import Projections, caught_up, kept
from tests.helpers.nursery import Nursery
from threadlog.bootstrap.kafka import kafka_config
from threadlog.clock import SystemClock

FACTS = int(os.environ.get("TEST_METERING_FACTS", "2000"))


@pytest.mark.timeout(30 + FACTS // 20)
async def test_F108_usage_is_exact_through_repeats_kills_and_a_rebuild(
    children: Nursery, servers: tuple[str, str], tmp_path: Path
) -> None:
    began = time.perf_counter()
    async with cluster(children, tmp_path, servers) as one:
        await one.apply_topics()
        config = kafka_config(one.settings(), "cli", "test")
        async with one.connected() as opened:
            topic_id = opened.identity.topic_id
            told = Projections(opened.log, topic_id, seed=5)
            told.make(FACTS, SystemClock().now_ms())
            first, second = await one.start("metering", "metering")
            print("ready", time.perf_counter() - began)
            half = told.go(0.4)
            killing = one.kill(second)
            await half
            await killing
            print("told", time.perf_counter() - began, told.told)
            (third,) = await one.start("metering")
            print("third", time.perf_counter() - began)
            await told.rebuild()
            print("rebuilt", time.perf_counter() - began)
            await until_true(lambda: caught_up(config), "all is counted", one.processes, 60)
            windows = await kept(config, topic_id)
        sums = told.sums()
        counted = {s: w.sums for s, w in windows.items() if s.span != "minute"}
        print(FACTS, "facts told", told.told, "times", time.perf_counter() - began, "s")
        for slot in sorted(sums):
            if counted.get(slot) != sums[slot]:
                print("DIFF", slot, counted.get(slot), sums[slot], windows.get(slot) and windows[slot].counted)
        assert counted == sums
        for process in (first, third):
            await one.terminate(process)
