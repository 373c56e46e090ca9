"""Waiting for something while somebody may have the answer.

A tenant has so many waits at a time, so that none takes every connection. A wait ends with the key
it was begun with, soon after its client has left, and when this process is to end.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from threadlog.errors import QuotaError, TransientError, UnauthenticatedError
from threadlog.gateway.auth import Caller
from threadlog.ids import TenantId
from threadlog.limits import STREAM_AUTH_MS, WAIT_LEFT_MS

T = TypeVar("T")


@contextmanager
def room_to_wait(caller: Caller) -> Iterator[None]:
    """One more request of the tenant may wait, until the block is left.

    Raises:  QuotaError: as many as may wait already.
    """
    waits: Counter[TenantId] = caller.request.app.state.waits
    tenant, bound = caller.credential.tenant, caller.ports.options.waits_per_tenant
    if waits[tenant] >= bound:
        caller.ports.meter.rejected("waits")
        raise QuotaError(
            f"{bound} requests of this tenant wait in this gateway: let one end, or do not wait",
            limit="waits",
            retry_after_s=1,
        )
    waits[tenant] += 1
    try:
        yield
    finally:
        waits[tenant] -= 1
        if not waits[tenant]:
            del waits[tenant]


async def waited(caller: Caller, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What `work` returns, for a caller whose key is valid still; otherwise `work` is cancelled.

    Raises:  TimeoutError: not within so many seconds. UnauthenticatedError: the key is over.
             TransientError: this gateway is stopping, or the client sends nothing more.
    """
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(caller.ports.stopping.wait())
    leaving = asyncio.ensure_future(_long_gone(caller.request.receive))
    tasks = (working, stopping, leaving)
    try:
        async with asyncio.timeout(seconds):
            done: set[asyncio.Future[Any]] = set()
            while not done:
                _check_key(caller)
                done, _ = await asyncio.wait(
                    tasks, timeout=STREAM_AUTH_MS / 1_000, return_when=asyncio.FIRST_COMPLETED
                )
        _check_key(caller)
        if working.done():
            return working.result()
        if stopping.done():
            raise TransientError("this gateway is stopping: connect again")
        raise TransientError("the client sends nothing more, so nobody waits for it: ask again")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_gone(receive: Receive) -> None:
    """The client sends nothing more, or is gone; over TCP the two look alike."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _long_gone(receive: Receive) -> None:
    await until_gone(receive)
    # One that has only said everything has its answer still where it is to be had soon.
    await asyncio.sleep(WAIT_LEFT_MS / 1_000)


def _check_key(caller: Caller) -> None:
    if not caller.ports.keys.is_valid(caller.credential):
        raise UnauthenticatedError("the key is not valid any more")
