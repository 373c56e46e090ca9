"""The notify suite over memory, and what is special to a channel of one process."""

import asyncio
import gc
import weakref

import pytest

from tests.contract.notify_suite import NotifySuite, delta
from tests.helpers.events import LOCAL, thread_id
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.ports.notify import Notify


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
