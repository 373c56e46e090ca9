"""Whether the log is still the one that this process began with."""

import asyncio
from typing import Protocol

from threadlog.errors import CorruptError, RefusedError, TransientError
from threadlog.ports.log import LogIdentity

LOOK_S = 8.0
STRIKES = 3
"""How often in a row it must be another one: a broker that has just started may know no topic."""


class Identified(Protocol):
    """What says which log there is now."""

    async def identity(self) -> LogIdentity:
        """Which log this is.

        Raises:  RefusedError: there is no such topic. TransientError: nobody answers.
        """
        ...


class LogWatch:
    """Looks now and then."""

    def __init__(self, topics: Identified, began_with: LogIdentity) -> None:
        self._topics = topics
        self._began_with = began_with

    async def failed(self) -> Exception:
        """Why nothing of this process may go on; waits for it, usually for ever."""
        strikes = 0
        while strikes < STRIKES:
            await asyncio.sleep(LOOK_S)
            found: LogIdentity | None = None
            try:
                found = await self._topics.identity()
            except TransientError:
                continue
            except RefusedError:
                pass  # there is no such topic
            strikes = 0 if found == self._began_with else strikes + 1
        return CorruptError(
            f"topic {self._began_with.topic} was deleted, made anew or given other partitions "
            "while this process ran: its positions mean nothing any more; see docs/operating.md"
        )
