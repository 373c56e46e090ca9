"""What every live channel promises. It may lose deltas, so only what must never happen is exact."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from tests.helpers.events import LOCAL, OTHER, thread_id
from tests.helpers.logs import DEADLINE_S
from threadlog import ids
from threadlog.ids import CallId, Seq
from threadlog.ports.notify import Advanced, Frame, LiveDelta, Notify, SoFar


def delta(n: int, kind: str = "text") -> LiveDelta:
    call = CallId(ids.derive("call")) if kind == "output" else None
    return LiveDelta(ids.turn_id(thread_id(0), 1), 1, 1, n, kind, f"piece {n} é", call)


async def take(listener: AsyncIterator[Frame], count: int) -> list[Frame]:
    async with asyncio.timeout(DEADLINE_S):
        return [await anext(listener) for _ in range(count)]


class NotifySuite:
    """Inherit, and define the fixture `notify`: an open channel."""

    async def settled(self, listener: AsyncIterator[Frame]) -> None:
        """The listener is known to the channel; a remote one overrides this."""

    async def test_a_listener_gets_deltas_in_order(self, notify: Notify) -> None:
        listener = notify.listen(LOCAL, thread_id(0))
        await self.settled(listener)
        moved = Advanced(Seq(7), ids.turn_id(thread_id(0), 1), is_idle=False)
        sent: list[Frame] = [delta(0), moved, delta(1, "thinking"), delta(2, "output")]
        for each in sent:
            notify.publish(LOCAL, thread_id(0), each)
        assert await take(listener, 4) == sent

    async def test_every_listener_of_the_thread_hears_it(self, notify: Notify) -> None:
        listeners = [notify.listen(LOCAL, thread_id(0)) for _ in range(5)]
        for listener in listeners:
            await self.settled(listener)
        waiting = [asyncio.create_task(take(listener, 1)) for listener in listeners]
        notify.publish(LOCAL, thread_id(0), delta(0))
        assert await asyncio.gather(*waiting) == [[delta(0)]] * 5

    async def test_nobody_hears_another_thread_or_tenant(self, notify: Notify) -> None:
        listener = notify.listen(LOCAL, thread_id(0))
        await self.settled(listener)
        notify.publish(LOCAL, thread_id(1), delta(1))
        notify.publish(OTHER, thread_id(0), delta(2))
        notify.publish(LOCAL, thread_id(0), delta(3))
        assert await take(listener, 1) == [delta(3)]

    async def test_publishing_never_waits_for_a_slow_listener(self, notify: Notify) -> None:
        slow = notify.listen(LOCAL, thread_id(0))
        await self.settled(slow)
        for n in range(20_000):
            notify.publish(LOCAL, thread_id(0), delta(n))
        last = Advanced(Seq(1), None, is_idle=True)
        notify.publish(LOCAL, thread_id(0), last)
        # The oldest are lost, never the newest: a listener that catches up knows the present.
        seen: list[int] = []
        async with asyncio.timeout(DEADLINE_S):
            async for frame in slow:
                if isinstance(frame, Advanced):
                    assert frame == last
                    break
                seen.append(frame.n)
        assert seen == sorted(set(seen))

    async def test_what_was_said_so_far_is_there_for_who_joins_later(self, notify: Notify) -> None:
        assert await notify.so_far(LOCAL, thread_id(0)) is None
        sent = [delta(0), delta(1, "thinking"), delta(0, "output"), delta(2), delta(4)]
        listener = notify.listen(LOCAL, thread_id(0))
        await self.settled(listener)
        for each in sent:
            notify.publish(LOCAL, thread_id(0), each)
        await take(listener, len(sent))
        # Piece 3 was lost, so what follows it is left out.
        wanted = SoFar(sent[0].turn_id, 1, 1, 3, sent[0].text + sent[3].text, sent[1].text)
        assert await notify.so_far(LOCAL, thread_id(0)) == wanted
        assert await notify.so_far(OTHER, thread_id(0)) is None
        assert await notify.so_far(LOCAL, thread_id(1)) is None
        again = replace(delta(0), attempt=2)
        notify.publish(LOCAL, thread_id(0), again)
        await take(listener, 1)
        wanted = SoFar(again.turn_id, 1, 2, 1, again.text, "")
        assert await notify.so_far(LOCAL, thread_id(0)) == wanted

    async def test_what_nobody_hears_is_gone(self, notify: Notify) -> None:
        notify.publish(LOCAL, thread_id(0), delta(0))
        listener = notify.listen(LOCAL, thread_id(0))
        await self.settled(listener)
        notify.publish(LOCAL, thread_id(0), delta(1))
        assert await take(listener, 1) == [delta(1)]
