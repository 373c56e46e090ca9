"""A rolling restart and a rebalance settle nothing: no call is lost, repeated or `unknown`."""

import asyncio
from pathlib import Path

import pytest

from tests.helpers.cluster import NAMES, note_in, until
from tests.helpers.cluster_log import LogTold
from tests.helpers.cluster_model import Reply
from tests.helpers.cluster_world import (
    TWO_OF_EACH,
    World,
    fault_seconds,
    world,
)
from tests.helpers.nursery import Nursery
from threadlog.events.tool import ToolFinished, ToolReleased

ROUNDS = max(1, fault_seconds(20) // 20)
CALL_S = max(10, min(30, fault_seconds(10)))
REBALANCES = 3


def check_nothing_was_settled(log: LogTold) -> None:
    """Whatever was released had not started; each call was started once in all."""
    for entry in log.accepted:
        body = entry.event.body
        if isinstance(body, ToolReleased):
            assert (body.by, body.reason) in {("writer", "revoked"), ("writer", "shutdown")}
        if isinstance(body, ToolFinished):
            assert (body.outcome, body.by) == ("ok", "writer"), body


def check_each_call_ran_once(one: World) -> None:
    calls = [line.split()[0] for line in one.cluster.effects()]
    assert len(calls) == len(set(calls)), "a call was started again"


@pytest.mark.timeout(120 + 60 * ROUNDS)
async def test_F30_P11_a_rolling_restart_under_load_settles_nothing(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """Of two, one ends before its successor starts, and one after that."""
    async with world(children, short_dir, servers, services=TWO_OF_EACH) as one:
        one.load.start(32)
        await one.load.turns(16)
        for _ in range(ROUNDS):
            for number, old in enumerate(one.cluster.living()):
                if number < len(NAMES):
                    await one.cluster.terminate(old)
                    await one.cluster.start(old.name)
                else:
                    await one.cluster.start(old.name)
                    await one.cluster.terminate(old)
                one.load.check()
        told, log = await one.check(f"{ROUNDS} rolling restarts")
    assert not told.settled
    assert set(told.verdicts) == {"completed"}
    check_nothing_was_settled(log)
    check_each_call_ran_once(one)


@pytest.mark.timeout(120 + 2 * CALL_S)
async def test_F30_P8_a_long_call_across_rebalances_runs_once_and_its_result_counts(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """Another runner comes and goes three times while it runs; partitions move each time."""
    replies: list[Reply] = [
        {"calls": [f"{note_in(short_dir)}; sleep {CALL_S}; echo slept"]},
        {"text": "awake"},
    ]
    async with world(children, short_dir, servers, replies=replies) as one:
        client, threads = one.load.client, 8
        sent = await asyncio.gather(*(client.create(f"thread {n}") for n in range(threads)))
        await until(lambda: len(one.cluster.effects()) == threads, "all calls run")
        [first] = one.cluster.living("tool-runner")
        for _ in range(REBALANCES):
            [other] = await one.cluster.start("tool-runner")
            await one.cluster.has_a_share(other)
            await one.cluster.terminate(other)
            await one.cluster.has_a_share(first)
        rows = [await client.reader.thread(accepted.thread_id) for accepted in sent]
        assert {row.status for row in rows} == {"open"}, "calls ended before the last rebalance"
        await asyncio.gather(*(client.result(accepted) for accepted in sent))
        told, log = await one.check(f"calls of {CALL_S} s across {REBALANCES} rebalances")
    assert told.outcomes == {"ok": threads}
    assert told.verdicts == {"completed": threads}
    assert not told.released
    assert not told.repeated
    check_each_call_ran_once(one)
    for entry in log.accepted:
        if isinstance(body := entry.event.body, ToolFinished):
            assert body.output == "slept\n"
            assert (body.duration_ms or 0) >= CALL_S * 1_000


@pytest.mark.timeout(120)
async def test_P5_a_worker_that_is_told_to_end_gives_its_partitions_away_at_once(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """Its own call runs on for seconds; new calls are served by the other one meanwhile."""
    slow = f"{note_in(short_dir)}; test -e {short_dir}/quick || sleep 6; echo slept"
    replies: list[Reply] = [{"calls": [slow]}, {"text": "awake"}] * 20
    async with world(children, short_dir, servers, replies=replies) as one:
        client = one.load.client
        first = [await client.create("slow") for _ in range(4)]
        await until(lambda: len(one.cluster.effects()) == len(first), "all slow calls run")
        (short_dir / "quick").touch()
        [old] = one.cluster.living("tool-runner")
        await one.cluster.start("tool-runner")
        one.cluster.tell_to_end(old)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        quick = [await client.turn(f"quick {n}") for n in range(8)]
        assert {result.verdict for result in quick} == {"completed"}
        assert not old.has_ended, "it had drained before the others were served"
        took_s = loop.time() - began_s
        await asyncio.gather(*(client.result(sent) for sent in first))
        await one.cluster.ended(old)
        told, log = await one.check(f"8 quick turns in {took_s:.1f} s beside a draining runner")
    assert not told.settled
    check_nothing_was_settled(log)
    assert {p.name for p in one.cluster.processes} == set(NAMES)
