"""Who is alive: certainty about death, doubt about everything else, and a broker that goes away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from subprocess import PIPE, Popen
from sys import executable

import pytest

from tests.helpers.kafka import make_config, make_topics
from tests.helpers.logs import DEADLINE_S
from tests.helpers.processes import ROOT, next_line, tell
from tests.helpers.servers import Broker
from threadlog import ids
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.members import KafkaMembers
from threadlog.errors import LogUnavailableError
from threadlog.ids import WorkerId
from threadlog.limits import CLAIM_TTL_MS

NOBODY = WorkerId("planner-nobody")


@pytest.fixture
async def config(kafka_bootstrap: str) -> KafkaConfig:
    config = make_config(kafka_bootstrap)
    await make_topics(config)
    return config


@contextlib.asynccontextmanager
async def living(config: KafkaConfig) -> AsyncIterator[KafkaMembers]:
    members = KafkaMembers(config)
    try:
        await members.start()
        yield members
    finally:
        await members.close()


@contextlib.contextmanager
def child(config: KafkaConfig, instance: str) -> Iterator[Popen[str]]:
    """A process among the living."""
    arguments = ["living", config.bootstrap, config.prefix, instance]
    process = Popen(
        [executable, "-m", "tests.helpers.kafka_child", *arguments],
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
        text=True,
    )
    try:
        assert next_line(process) == "alive"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_claim_is_watched_for_as_long_as_a_dead_writer_is_listed() -> None:
    short = make_config("nowhere:1", member_timeout_ms=1_000)
    long = make_config("nowhere:1", member_timeout_ms=60_000)
    assert KafkaMembers(short).watch_ms == CLAIM_TTL_MS
    assert KafkaMembers(long).watch_ms == 60_000


async def test_the_living_are_alive_and_others_are_gone(config: KafkaConfig) -> None:
    async with living(config) as members:
        assert not await members.is_gone(config.worker)
        assert await members.is_gone(NOBODY)
        # Another service's worker is not in this list, and nobody asks for it here.
        other = make_config(config.bootstrap, prefix=config.prefix)
        async with living(other) as others:
            assert not await members.is_gone(other.worker)
            assert not await others.is_gone(config.worker)
        assert await members.is_gone(other.worker)


async def test_a_killed_process_is_gone_once_its_time_is_over(config: KafkaConfig) -> None:
    instance = ids.draw()[:8]
    worker = WorkerId(f"planner-{instance}")
    async with living(config) as members:
        with child(config, instance) as process:
            assert not await members.is_gone(worker)
            process.kill()
            process.wait()
        # Still listed: a dead process looks like a slow one until its time is over.
        assert not await members.is_gone(worker)
        async with asyncio.timeout(DEADLINE_S):
            while not await members.is_gone(worker):
                await asyncio.sleep(0.05)
        assert not await members.is_gone(config.worker)


class Unlisted(KafkaMembers):
    """Asks without being in the list: as after its time was over, or a broker's restart."""

    def _stay(self) -> None:
        self._loop.call_soon_threadsafe(self._has_joined)


async def test_an_asker_who_is_not_listed_proves_nothing(config: KafkaConfig) -> None:
    stranger = Unlisted(make_config(config.bootstrap, prefix=config.prefix))
    assert not await stranger.is_gone(NOBODY)
    async with living(config) as members:
        await stranger.start()
        assert not await stranger.is_gone(NOBODY)
        assert await members.is_gone(NOBODY)
        await stranger.close()
        assert not await stranger.is_gone(NOBODY)


async def test_without_a_broker_nobody_is_gone_and_nobody_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadlog.adapters.kafka.members._JOIN_S", 0.5)
    monkeypatch.setattr("threadlog.adapters.kafka.members._ASK_S", 1)
    members = KafkaMembers(make_config("127.0.0.1:1"))
    with pytest.raises(LogUnavailableError):
        await members.start()
    assert not await members.is_gone(NOBODY)
    await members.close()


@pytest.mark.timeout(120)
async def test_a_broker_killed_again_and_again_takes_no_worker_with_it(own_broker: Broker) -> None:
    """confluentinc/librdkafka#4605: the obvious call ends the process when the broker goes."""
    config = make_config(own_broker.bootstrap, member_timeout_ms=6_000)
    await make_topics(config)
    instance = ids.draw()[:8]
    with child(config, instance) as asker:
        tell(asker, NOBODY)
        assert next_line(asker) == "gone"
        for _ in range(3):
            own_broker.kill()
            tell(asker, f"planner-{instance}")
            own_broker.start()
            assert next_line(asker) == "alive"
            answers = []
            while "gone" not in answers:
                tell(asker, f"planner-{instance}")
                assert next_line(asker) == "alive"
                tell(asker, NOBODY)
                answers.append(next_line(asker))
            assert asker.poll() is None
