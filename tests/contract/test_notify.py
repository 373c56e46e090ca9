"""The notify suite over memory and Redis, and what is special to each."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.contract.notify_suite import NotifySuite, delta, take
from tests.contract.redis_parts import RedisParts, redis_parts
from tests.contract.views_suite import apply, row
from tests.helpers.events import LOCAL, thread_id
from tests.helpers.logs import DEADLINE_S
from tests.helpers.servers import RedisServer
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.redis import channels
from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.notify import LiveListener, RedisNotify
from threadlog.ids import Partition, Position, Seq
from threadlog.ports.log import LogIdentity
from threadlog.ports.notify import Advanced, Frame, Notify
from threadlog.ports.views import ViewBatch


class TestMemoryNotify(NotifySuite):
    @pytest.fixture
    def notify(self) -> Notify:
        return MemoryNotify()

    async def test_a_closed_listener_ends(self) -> None:
        listener = MemoryNotify().listen(LOCAL, thread_id(0))
        waiting = asyncio.ensure_future(anext(listener))
        await asyncio.sleep(0)
        await listener.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting

    def test_a_listener_that_was_dropped_is_forgotten(self) -> None:
        notify = MemoryNotify()
        listener = notify.listen(LOCAL, thread_id(0))
        gone = weakref.ref(listener)
        notify.publish(LOCAL, thread_id(0), delta(0))
        del listener
        gc.collect()
        notify.publish(LOCAL, thread_id(0), delta(1))
        assert gone() is None


@asynccontextmanager
async def opened(
    url: str, identity: LogIdentity | None = None
) -> AsyncIterator[tuple[RedisNotify, RedisParts]]:
    async with redis_parts(url, identity) as parts:
        notify = RedisNotify(parts.client, parts.channels, parts.identity)
        try:
            yield notify, parts
        finally:
            await notify.aclose()


async def heard(listener: AsyncIterator[Frame]) -> LiveListener:
    assert isinstance(listener, LiveListener)
    async with asyncio.timeout(DEADLINE_S):
        await listener.heard()
    return listener


class TestRedisNotify(NotifySuite):
    @pytest.fixture
    async def notify(self, redis_url: str) -> AsyncIterator[Notify]:
        async with opened(redis_url) as (notify, _):
            yield notify

    async def settled(self, listener: AsyncIterator[Frame]) -> None:
        await heard(listener)

    async def test_another_process_hears_it(self, redis_url: str) -> None:
        async with opened(redis_url) as (here, parts), opened(redis_url, parts.identity) as other:
            listener = await heard(other[0].listen(LOCAL, thread_id(0)))
            here.publish(LOCAL, thread_id(0), delta(7))
            assert await take(listener, 1) == [delta(7)]

    async def test_whoever_listens_first_and_then_reads_misses_nothing(
        self, redis_url: str
    ) -> None:
        """The head comes once the channel is heard, whatever was told before that."""
        async with opened(redis_url) as (notify, parts):
            stored = row(thread_id(0), 3, status="open")
            listener = notify.listen(LOCAL, thread_id(0))
            await apply(parts.parts(), ViewBatch(Position(0), Position(3), threads=[stored]))
            assert await take(listener, 1) == [Advanced(stored.head, stored.open_turn, False)]
            second = notify.listen(LOCAL, thread_id(0))
            assert await take(second, 1) == [Advanced(stored.head, stored.open_turn, False)]

    async def test_a_gap_of_the_connection_ends_with_the_present_head(self) -> None:
        with RedisServer() as server:
            async with opened(server.url) as (notify, parts):
                stored = row(thread_id(0), 3)
                batch = ViewBatch(Position(0), Position(3), threads=[stored])
                await apply(parts.parts(), batch)
                listener = await heard(notify.listen(LOCAL, thread_id(0)))
                now = Advanced(stored.head, None, is_idle=True)
                assert await take(listener, 1) == [now]
                await asyncio.to_thread(server.restart)
                notify.publish(LOCAL, thread_id(0), delta(0))
                assert now in await take(listener, 1)
                await heard(listener)
                notify.publish(LOCAL, thread_id(0), delta(1))
                while await take(listener, 1) != [delta(1)]:
                    pass

    async def test_telling_never_fails_while_redis_is_away(self) -> None:
        with RedisServer() as server:
            async with opened(server.url) as (notify, _):
                listener = await heard(notify.listen(LOCAL, thread_id(0)))
                await asyncio.to_thread(server.kill)
                for n in range(10_000):
                    notify.publish(LOCAL, thread_id(0), delta(n))
                await asyncio.to_thread(server.start)
                last = Advanced(Seq(9), None, is_idle=True)
                await heard(listener)
                while last not in await take(listener, 1):
                    notify.publish(LOCAL, thread_id(0), last)

    async def test_a_server_that_stands_still_is_left(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(channels, "PING_S", 0.1)
        with RedisServer() as server:
            async with opened(server.url) as (notify, _):
                listener = await heard(notify.listen(LOCAL, thread_id(0)))
                server.pause()
                async with asyncio.timeout(DEADLINE_S):
                    while listener.is_heard:
                        await asyncio.sleep(0)
                server.resume()
                await heard(listener)
                notify.publish(LOCAL, thread_id(0), delta(1))
                assert await take(listener, 1) == [delta(1)]

    async def test_garbage_on_a_channel_is_lost(self, redis_url: str) -> None:
        async with opened(redis_url) as (notify, parts):
            listener = await heard(notify.listen(LOCAL, thread_id(0)))
            keys = keys_of(parts.identity, Partition(0)).of(LOCAL, thread_id(0))
            for garbage in (b"", b"x", b"d{}", b"a[1]", b'd{"n":"1"}', b"\xff\x00" * 99):
                await parts.client.batch([("PUBLISH", keys.live, garbage)])
            notify.publish(LOCAL, thread_id(0), delta(1))
            assert await take(listener, 1) == [delta(1)]

    async def test_a_closed_listener_ends_and_redis_is_told(self, redis_url: str) -> None:
        async with opened(redis_url) as (notify, parts):
            listener = await heard(notify.listen(LOCAL, thread_id(0)))
            waiting = asyncio.ensure_future(anext(listener))
            await asyncio.sleep(0)
            await listener.aclose()
            with pytest.raises(StopAsyncIteration):
                await waiting
            await self._nobody_listens(parts)
            # And again, on the same connection.
            again = await heard(notify.listen(LOCAL, thread_id(0)))
            notify.publish(LOCAL, thread_id(0), delta(1))
            assert await take(again, 1) == [delta(1)]

    async def test_a_dropped_listener_ends_and_redis_is_told(self, redis_url: str) -> None:
        async with opened(redis_url) as (notify, parts):
            listener = await heard(notify.listen(LOCAL, thread_id(0)))
            gone = weakref.ref(listener)
            del listener
            gc.collect()
            assert gone() is None
            await self._nobody_listens(parts)

    async def _nobody_listens(self, parts: RedisParts) -> None:
        keys = keys_of(parts.identity, Partition(0)).of(LOCAL, thread_id(0))
        async with asyncio.timeout(DEADLINE_S):
            while await parts.client.batch([("PUBSUB", "NUMSUB", keys.live)]) != [
                [keys.live.encode(), 0]
            ]:
                pass

    async def test_many_listeners_share_one_connection(self, redis_url: str) -> None:
        async with opened(redis_url) as (notify, parts):
            listeners = [notify.listen(LOCAL, thread_id(n % 100)) for n in range(300)]
            for listener in listeners:
                await heard(listener)
            clients = await parts.client.run(lambda redis: redis.client_list())
            names = {thread_id(n) for n in range(100)}
            assert len([c for c in clients if int(c["sub"]) == len(names)]) == 1
            for n in range(100):
                notify.publish(LOCAL, thread_id(n), delta(n))
            for n, listener in enumerate(listeners):
                assert await take(listener, 1) == [delta(n % 100)]
