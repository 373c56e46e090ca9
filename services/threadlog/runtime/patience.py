"""Repeating what may be repeated, until it works."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from threadlog.errors import TransientError

T = TypeVar("T")
_RETRY_S = 0.2


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """What `attempt` gives once it does not fail transiently.

    Effects: repeats `attempt`, which must be harmless to repeat, 5 times a second: a full device
             may have space again. A log that has failed for good ends the process by itself, and
             whoever closes one cancels first what may wait here.
    """
    while True:
        try:
            return await attempt()
        except TransientError:
            await asyncio.sleep(_RETRY_S)
