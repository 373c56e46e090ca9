"""Real services on a real broker: killed, frozen and killed at every named place, under load.

`TEST_FAULT_SECONDS` is how long the disturbance lasts; the seed is printed.
"""

import asyncio
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.cluster import NAMES, Name, Process, until, until_true
from tests.helpers.cluster_log import Outsider
from tests.helpers.cluster_world import (
    TWO_OF_EACH,
    World,
    fault_seconds,
    for_seconds,
    talk,
    world,
)
from tests.helpers.nursery import Nursery
from threadlog.events.step import ModelResponded, StepReleased, StepStarted
from threadlog.events.tool import ToolFinished
from threadlog.faults import POINTS
from threadlog.ids import EventId
from threadlog.thread.decide import open_claims

SECONDS = fault_seconds(12)
SEED = 20_261_130
SETTLED_S = 30.0
"""Membership, takeover, the time to watch, and the next question: about 11 s."""


@pytest.mark.timeout(2 * SECONDS + 150)
async def test_F30_P3_random_kills_of_all_services_lose_and_repeat_nothing(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """Two of each, 64 threads, one kill every two seconds; each is started again at once."""
    rng, loop = random.Random(SEED), asyncio.get_running_loop()
    print(f"seed {SEED}")  # noqa: T201  # a failure is run again with it
    async with world(children, short_dir, servers, services=TWO_OF_EACH) as one:
        one.load.start(64)
        await one.load.turns(8)
        kills, deadline = 0, loop.time() + SECONDS
        while loop.time() < deadline:
            victim = rng.choice(one.cluster.living())
            await one.cluster.kill(victim)
            one.cluster.begin(victim.name)
            kills += 1
            await for_seconds(2.0, one.load)
        for process in one.cluster.living():
            await one.cluster.ready(process)
        told, _ = await one.check(f"{kills} kills in {SECONDS} s")
    assert kills >= SECONDS // 3
    assert told.threads == 64
    assert told.verdicts["completed"] >= 64


@pytest.mark.timeout(150)
async def test_P4_law_3_zombies_start_nothing(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """A planner and a runner, stopped for longer than membership and ttl, then continued."""
    # Long enough that each has something under way, whenever it is stopped.
    replies = [{**reply, "delay_ms": 300} for reply in talk(short_dir, "sleep 1")]
    services: tuple[Name, ...] = (*NAMES, "planner", "tool-runner")
    async with world(children, short_dir, servers, replies=replies, services=services) as one:
        one.load.start(24, pause_s=0)
        await one.load.turns(24)
        zombies = [one.cluster.living(name)[-1] for name in ("planner", "tool-runner")]
        for zombie in zombies:
            await one.cluster.has_a_share(zombie)
        await one.load.turns(12)
        for zombie in zombies:
            await freeze_at_work(one, zombie)
        closed = await settled_for_others(one)
        for zombie in zombies:
            one.cluster.thaw(zombie)
        await one.load.turns(24)
        for zombie in zombies:
            await one.cluster.ready(zombie)
        told, log = await one.check("a frozen planner and a frozen runner")
    assert closed.starts_since(one) == {}
    assert closed.requests_since(one) == {}
    bodies = [entry.event.body for entry in log.accepted]
    settled = {type(body) for body in bodies if getattr(body, "by", "") == "settlement"}
    assert settled == {StepReleased, ToolFinished}, "one of them had nothing claimed"
    assert told.threads == 24


@pytest.mark.timeout(150)
async def test_P3_services_that_die_at_every_named_point_leave_nothing_undone(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """One process for each point, armed to die there at its third visit; clean ones carry on."""
    async with world(children, short_dir, servers, partitions=16) as one:
        armed = {
            point: one.cluster.begin(service_of(point), THREADLOG_FAULT=f"{point}:3")
            for point in POINTS
        }
        one.load.start(32, pause_s=0)
        for point, process in armed.items():
            process.fate = "killed"
            await until(lambda p=process: p.has_ended, f"it dies at {point}", [process], 60)  # type: ignore[misc]  # bound now
        told, _ = await one.check("killed at every point")
    for process in armed.values():
        assert await one.cluster.ended(process) == -signal.SIGKILL, process.child.stderr
    assert told.settled


@dataclass(frozen=True, slots=True)
class Closed:
    """What others have settled: how often each attempt had started, and each request was sent."""

    effects: dict[str, int]
    requests: dict[str, int]

    def starts_since(self, one: World) -> Counter[str]:
        """How often each attempt has started since."""
        return Counter({a: n for a, n in starts_of(one).items() if a in self.effects}) - Counter(
            self.effects
        )

    def requests_since(self, one: World) -> Counter[str]:
        """How often each request was sent since."""
        asked = Counter(sha256 for sha256 in one.model.asked if sha256 in self.requests)
        return asked - Counter(self.requests)


def starts_of(one: World) -> Counter[str]:
    return Counter(line.rpartition(" ")[0] for line in one.cluster.effects())


async def freeze_at_work(one: World, process: Process) -> None:
    """It was stopped right after the log showed a claim of it."""
    outsider = Outsider(one.cluster.bootstrap, one.cluster.topic, one.cluster.partitions)

    async def has_claimed() -> bool:
        log = await asyncio.to_thread(outsider.read_on)
        claims = (c for told in log.threads.values() for c, _ in open_claims(told.state))
        return any(claim.worker == process.worker for claim in claims)

    await until_true(has_claimed, "it has claimed something", [process])
    one.cluster.freeze(process)
    outsider.close()


async def settled_for_others(one: World) -> Closed:
    """What others have settled, once that is a call and a step that was answered since."""
    found = [Closed({}, {})]

    async def is_so() -> bool:
        one.load.check()
        found.append(await asyncio.to_thread(closed_for_others, one))
        return bool(found[-1].effects and found[-1].requests)

    await until_true(is_so, "claims of the frozen ones are settled", deadline_s=SETTLED_S)
    return found[-1]


def closed_for_others(one: World) -> Closed:
    """What the log says now of claims that were settled for somebody else."""
    outsider = Outsider(one.cluster.bootstrap, one.cluster.topic, one.cluster.partitions)
    started, asked = starts_of(one), Counter(one.model.asked)
    claims: dict[EventId, str] = {}
    calls: set[str] = set()
    settled: set[str] = set()
    answered: set[str] = set()
    for entry in outsider.read_on().accepted:
        match entry.event.body:
            case StepStarted(manifest=manifest):
                claims[entry.event.event_id] = manifest.request_sha256
            case StepReleased(by="settlement", claim=claim):
                settled.add(claims[claim])
            case ModelResponded(claim=claim):
                answered.add(claims[claim])
            case ToolFinished(by="settlement", call_id=call, attempt=attempt):
                calls.add(f"{call} {attempt}")
            case _:
                pass
    outsider.close()
    return Closed(
        {attempt: started[attempt] for attempt in calls},
        {sha256: asked[sha256] for sha256 in settled & answered},
    )


def service_of(point: str) -> Name:
    """The service that reaches this point."""
    name = point.partition(".")[0].replace("_", "-")
    return next(known for known in NAMES if known == name)
