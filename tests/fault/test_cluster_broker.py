"""The broker is killed under load: what it acknowledged is there, once, and everybody recovers."""

import asyncio
from pathlib import Path

import pytest

from tests.helpers.cluster_load import message
from tests.helpers.cluster_world import MODEL, TWO_OF_EACH, fault_seconds, for_seconds, world
from tests.helpers.nursery import Nursery
from tests.helpers.servers import Broker
from threadlog.commands.requests import NewThread, ThreadSettings
from threadlog.errors import TransientError
from threadlog.events.input import MessageReceived
from threadlog.ids import draw

KILLS = max(3, fault_seconds(0) // 20)


@pytest.mark.timeout(150 + 30 * KILLS)
async def test_B10_law_9_a_broker_killed_under_load_loses_and_doubles_nothing(
    children: Nursery, short_dir: Path, own_broker: Broker, redis_url: str
) -> None:
    """Three times; no client library takes its process along, and nobody has to be restarted."""
    servers = (own_broker.bootstrap, redis_url)
    async with world(children, short_dir, servers, services=TWO_OF_EACH) as one:
        pids = [process.child.pid for process in one.cluster.living()]
        one.load.start(32)
        await one.load.turns(16)
        for _ in range(KILLS):
            await asyncio.to_thread(own_broker.kill)
            await for_seconds(1.0, one.load)
            await asyncio.to_thread(own_broker.start)
            await one.load.turns(16)
        told, _ = await one.check(f"a broker killed {KILLS} times")
        assert [process.child.pid for process in one.cluster.living()] == pids
    assert set(told.verdicts) == {"completed"}
    assert not told.settled, "a broker that is away kills nobody"


@pytest.mark.timeout(120)
async def test_B1_law_9_without_a_broker_nothing_is_accepted_and_the_key_can_be_used_again(
    children: Nursery, short_dir: Path, own_broker: Broker, redis_url: str
) -> None:
    """A refused input is unknown, not absent: sent again with its key it is there exactly once."""
    servers = (own_broker.bootstrap, redis_url)
    async with world(children, short_dir, servers) as one:
        client = one.load.client
        await client.turn("before")
        await asyncio.to_thread(own_broker.kill)
        new = NewThread(ThreadSettings(model=MODEL), message=message("while it is away"))
        key = draw()
        with pytest.raises(TransientError):
            async with asyncio.timeout(20):
                await client.commands.create_thread(new, key=key)
        await asyncio.to_thread(own_broker.start)
        sent = await client.patiently(lambda: client.commands.create_thread(new, key=key))
        client.sent.append(sent)
        assert (await client.result(sent)).verdict == "completed"
        told, log = await one.check("a broker that is away")
    assert told.threads == 2
    accepted = [e for e in log.accepted if isinstance(e.event.body, MessageReceived)]
    assert len(accepted) == 2
