"""Waiting for something, unless this process is to end first: no wait holds up a stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from threadlog.errors import TransientError

T = TypeVar("T")


async def unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; it is cancelled when the wait is. Bound it outside.

    Raises:  TransientError: this gateway is stopping; another one may answer.
    """
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TransientError("this gateway is stopping: connect again")
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)
