"""Clients of a cluster under test: threads that talk on until they are told to stop.

Each input has a key, and is sent again with that key while the answer is "try again": so what was
acknowledged is known, and what was not is never counted. No wait is without a deadline.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from tests.helpers.cluster import Cluster
from threadlog.bootstrap.cluster import Cluster as Connections
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import TransientError
from threadlog.events.content import ModelRef, TextPart
from threadlog.ids import ThreadId, draw
from threadlog.queries.reading import Reader, TurnResult

SEND_S = 60.0
"""How long an input may be tried again and again."""
TURN_S = 60.0
"""How long a turn may take, with whatever befalls the cluster meanwhile."""
_SLICE_S = 5.0
_TELL_S = 1.0
"""How long after a result can be read its waiting reader may take to hear of it."""
_AGAIN_S = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class Client:
    """One client. `sent`: acknowledged inputs in order; `results`: of every turn that ended.

    Shapes:  `retries` counts answers that said "try again", by the error's code; `missed` counts
             results that were there although nobody had told the waiting reader.
    """

    commands: Commands
    reader: Reader
    model: ModelRef
    sent: list[Accepted] = field(default_factory=list)
    results: list[TurnResult] = field(default_factory=list)
    retries: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    slowest_s: float = 0.0

    async def create(self, text: str) -> Accepted:
        """A new thread with its first message."""
        key = draw()
        new = NewThread(ThreadSettings(model=self.model), message=message(text))
        return await self._input(lambda: self.commands.create_thread(new, key=key))

    async def send(self, thread: ThreadId, text: str) -> Accepted:
        """A message for this thread."""
        key = draw()
        return await self._input(lambda: self.commands.send_message(thread, message(text), key=key))

    async def result(self, sent: Accepted, deadline_s: float = TURN_S) -> TurnResult:
        """The result of the turn that takes this message."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            waited_s = loop.time() - began_s
            assert waited_s < deadline_s, f"thread {sent.thread_id}: no result in {deadline_s} s"
            try:
                if (found := await self._result_soon(sent)) is not None:
                    self.results.append(found)
                    self.slowest_s = max(self.slowest_s, loop.time() - began_s)
                    return found
            except TransientError as error:
                await self._noted(error)

    async def turn(self, text: str, thread: ThreadId | None = None) -> TurnResult:
        """The result of the turn that this message starts; `thread` None: in a new thread."""
        sent = await (self.create(text) if thread is None else self.send(thread, text))
        return await self.result(sent)

    async def _result_soon(self, sent: Accepted) -> TurnResult | None:
        """The result, if it comes within a slice of time."""
        reading = self.reader.turn_result(sent.thread_id, sent.event_id, sent.seq)
        waiting = asyncio.create_task(reading)
        try:
            await asyncio.wait([waiting], timeout=_SLICE_S)
            if waiting.done():
                return waiting.result()
            found = await self.reader.find_result(sent.thread_id, sent.event_id, sent.seq)
            if found is not None:
                # It may be on its way to whoever waits.
                await asyncio.wait([waiting], timeout=_TELL_S)
                self.missed += not waiting.done()
            return found
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _input(self, send: Callable[[], Awaitable[Accepted]]) -> Accepted:
        accepted = await self.patiently(send)
        self.sent.append(accepted)
        return accepted

    async def patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer, once there is one."""
        async with asyncio.timeout(SEND_S):
            while True:
                try:
                    return await call()
                except TransientError as error:
                    await self._noted(error)

    async def _noted(self, error: TransientError) -> None:
        self.retries[error.code] += 1
        await asyncio.sleep(_AGAIN_S)


@dataclass(slots=True)
class Load:
    """Threads of one client. `stop`: no further message is sent; `lives`: one task a thread."""

    client: Client
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    lives: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, threads: int, pause_s: float = 0.2) -> None:
        """So many threads talk on, each with a pause behind every turn."""
        self.lives += [asyncio.create_task(self._live(n, pause_s)) for n in range(threads)]

    async def _live(self, number: int, pause_s: float) -> None:
        thread: ThreadId | None = None
        # Not all at once.
        await self._rest(pause_s * number / 16)
        while not self.stop.is_set():
            result = await self.client.turn(f"thread {number}, {len(self.client.sent)}", thread)
            thread = result.thread_id
            await self._rest(pause_s)

    async def _rest(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self.stop.wait()

    def check(self) -> None:
        """Nobody has failed so far."""
        for life in self.lives:
            if life.done():
                life.result()

    async def finish(self) -> None:
        """Every thread has had the result of its last message."""
        self.stop.set()
        await asyncio.gather(*self.lives)

    async def turns(self, count: int) -> None:
        """So many turns more have ended. Bounded by the deadline of each."""
        wanted = len(self.client.results) + count
        while len(self.client.results) < wanted:
            self.check()
            await asyncio.sleep(_AGAIN_S)


def message(text: str) -> NewMessage:
    """A message of one text."""
    return NewMessage((TextPart(text=text),))


def client_of(connections: Connections, model: ModelRef) -> Client:
    """A client on these connections."""
    return Client(connections.commands("user:test"), connections.reader(), model)


@contextlib.asynccontextmanager
async def loaded(cluster: Cluster, model: ModelRef) -> AsyncIterator[Load]:
    """A client with a load to be started; it has ended when the block is left."""
    async with cluster.connected() as connections:
        load = Load(client_of(connections, model))
        try:
            yield load
        finally:
            for life in load.lives:
                life.cancel()
            await asyncio.gather(*load.lives, return_exceptions=True)
