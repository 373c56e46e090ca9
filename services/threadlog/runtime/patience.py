"""Repeating what may be repeated, until it works."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from threadlog.errors import TransientError

T = TypeVar("T")
_RETRY_S = 0.2
_SAY_EVERY = 50
_log = logging.getLogger("threadlog.patience")


async def patiently(attempt: Callable[[], Awaitable[T]]) -> T:
    """What `attempt` gives once it does not fail transiently.

    Effects: repeats `attempt`, which must be harmless to repeat, 5 times a second: a full device
             may have space again. Says what it waits for, at first and every ten seconds. A log
             that has failed for good ends the process by itself, and whoever closes one cancels
             first what may wait here.
    """
    failures = 0
    while True:
        try:
            return await attempt()
        except TransientError as error:
            if failures % _SAY_EVERY == 0:
                _log.warning("waiting: %s", error)
            failures += 1
            await asyncio.sleep(_RETRY_S)
