"""Everyone who is connected: how many they may be, who goes first, and when all are gone."""

import asyncio
import resource
from dataclasses import dataclass
from typing import Protocol

from uvicorn.server import ServerState

from threadlog import limits


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """What a connection may take. Units: seconds, each of one wait."""

    connections_max: int = limits.CONNECTIONS_MAX
    head_s: float = limits.HEAD_MS / 1_000
    keep_alive_s: float = limits.KEEP_ALIVE_MS / 1_000
    body_s: float = limits.BODY_READ_MS / 1_000
    write_s: float = limits.STREAM_WRITE_MS / 1_000
    gone_s: float = limits.CLIENT_GONE_MS / 1_000
    close_s: float = limits.CLOSE_READ_MS / 1_000


class Peer(Protocol):
    """One connection, as the others see it."""

    def evict(self) -> None:
        """It closes; nothing was under way on it."""
        ...

    def begin_stop(self) -> None:
        """It closes as soon as the request under way is answered; at once where none is."""
        ...

    def cut(self) -> None:
        """It is gone, and what waits for it is told so."""
        ...


class Peers(ServerState):
    """The connections of one server, and the tasks that answer them."""

    def __init__(self, bounds: ConnectionBounds, stopping: asyncio.Event) -> None:
        super().__init__()
        self.bounds = bounds
        self.stopping = stopping
        self._open: dict[Peer, None] = {}
        self._idle: dict[Peer, None] = {}
        self._refused: set[Peer] = set()
        self._changed = asyncio.Event()
        # Where a process may open 1,024 files, the log and its clients need some of them, too.
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files_max == resource.RLIM_INFINITY:
            files_max = 2 * bounds.connections_max
        self._open_max = max(1, min(bounds.connections_max, files_max * 3 // 4))

    def enter(self, peer: Peer) -> bool:
        """True: `peer` is one of the connections; the one that was idle longest may be gone for it.

        False: there is no room. It is to be told so and to leave.
        """
        if len(self._open) >= self._open_max and self._idle:
            oldest = next(iter(self._idle))
            self.leave(oldest)
            oldest.evict()
        if len(self._open) >= self._open_max:
            self._refused.add(peer)
            return False
        self._open[peer] = None
        return True

    @property
    def may_tell(self) -> bool:
        """Whether those who were refused are few enough to be told."""
        return len(self._refused) <= limits.REFUSALS_MAX

    def leave(self, peer: Peer) -> None:
        """`peer` is connected no longer."""
        self._open.pop(peer, None)
        self._idle.pop(peer, None)
        self._refused.discard(peer)
        self._changed.set()

    def rest(self, peer: Peer) -> None:
        """`peer` was answered and has sent nothing since."""
        self._idle[peer] = None

    def wake(self, peer: Peer) -> None:
        """`peer` sends again."""
        self._idle.pop(peer, None)

    def run(self, task: asyncio.Task[None]) -> None:
        """`task` answers a request."""
        self.tasks.add(task)
        task.add_done_callback(self._on_done)

    def all_open(self) -> list[Peer]:
        """Everyone who is connected now."""
        return [*self._open, *self._refused]

    async def gone(self) -> None:
        """Nobody is connected, and no request is under way."""
        while self._open or self._refused or self.tasks:
            self._changed.clear()
            await self._changed.wait()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._changed.set()
