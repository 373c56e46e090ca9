"""Repeating what may be repeated, until it works or the log is gone for good."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from threadlog.errors import LogUnavailableError, TransientError

T = TypeVar("T")
_RETRY_S = 0.2


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """What `attempt` gives once it does not fail transiently.

    Effects: repeats `attempt`, which must be harmless to repeat, 5 times a second.
    Raises:  LogUnavailableError: there is nothing left to wait for.
    """
    while True:
        try:
            return await attempt()
        except LogUnavailableError:
            raise
        except TransientError:
            await asyncio.sleep(_RETRY_S)
