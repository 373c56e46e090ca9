"""When the writer of a foreign claim is certainly gone: rules `gone`, `fresh` and `watch`."""

import asyncio
from collections.abc import Callable

from threadlog.ids import WorkerId
from threadlog.ports.members import Members

_ASK_AGAIN_S = 1.0


async def certainly_gone(members: Members, worker: WorkerId, is_open: Callable[[], bool]) -> bool:
    """True once the worker is gone and was watched for as long as `members` wants.

    Effects: waits as long as it lives. False: `is_open` said that there is nothing to settle.
    """
    await asyncio.sleep(members.watch_ms / 1_000)
    while not await members.is_gone(worker):
        await asyncio.sleep(_ASK_AGAIN_S)
        if not is_open():
            return False
    return True
