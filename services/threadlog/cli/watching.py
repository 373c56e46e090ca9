"""Waiting for the turn that takes a message: following it, and stopping it when asked to."""

import asyncio
from dataclasses import dataclass, field

from threadlog.bootstrap.link import Link
from threadlog.cli.interrupts import Interrupts
from threadlog.cli.progress import Progress
from threadlog.cli.window import followed
from threadlog.commands.requests import Accepted
from threadlog.errors import ConflictError, CorruptError, ThreadlogError
from threadlog.events.envelope import Event
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import TurnId, draw
from threadlog.ports.notify import LiveDelta
from threadlog.queries.reading import TurnResult

_START_S = 5.0
"""How long a cancel waits for the turn that it shall stop."""
_APPEND_S = 2.0
"""How long somebody who leaves waits for a cancel that is on its way into the log."""
_STILL_S = 10.0
"""After this long without an event a line says what is waited for."""


@dataclass(slots=True)
class Watch:
    """One message, from its acceptance to the end of the turn that takes it."""

    link: Link
    message: Accepted
    progress: Progress
    interrupts: Interrupts
    timeout_s: float | None
    turn: TurnId | None = None
    is_timed_out: bool = False
    _has_started: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def result(self) -> TurnResult | None:
        """What came of the turn; None when the person left before it ended.

        Effects: the first interrupt, or the timeout, appends `cancel.requested`.
        """
        following = asyncio.create_task(self._follow())
        leaving = asyncio.create_task(self.interrupts.detach.wait())
        stopping = asyncio.create_task(self._stop_when_asked())
        telling = asyncio.create_task(self._still())
        stopped = asyncio.create_task(self.link.stopped(self.message.thread_id))
        ends = {following, leaving, stopped}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                return following.result()
            if stopped.done():
                raise CorruptError("an error stopped the thread: the lines above say where")
            if self.interrupts.cancel.is_set():
                # Who presses Ctrl-C twice in a row means the turn, too.
                await asyncio.wait({stopping}, timeout=_APPEND_S)
            return None
        finally:
            tasks = (following, leaving, stopping, telling, stopped)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self) -> TurnResult:
        message = self.message
        async with followed(self.link.reader, message.thread_id, message.seq) as stream:
            async for item in stream:
                self._moved.set()
                if isinstance(item, LiveDelta):
                    if item.turn_id == self.turn:
                        self.progress.delta(item)
                elif self._ends(item.event):
                    break
        result = await self.link.reader.find_result(
            message.thread_id, message.event_id, message.seq
        )
        assert result is not None, "the turn has ended"
        return result

    def _ends(self, event: Event) -> bool:
        """Whether our turn has ended with this event, which is told if it is of our turn."""
        body = event.body
        if isinstance(body, TurnStarted) and self.message.event_id in body.admits:
            self.turn = event.turn_id
            self._has_started.set()
        if self.turn is None or event.turn_id != self.turn:
            return False
        self.progress.event(event)
        return isinstance(body, TurnFinished)

    async def _stop_when_asked(self) -> None:
        """The cancel is in the log; or the command leaves, since there is nothing to cancel."""
        try:
            # Not wait_for: in Python 3.11 it may swallow the cancel of this task.
            async with asyncio.timeout(self.timeout_s):
                await self.interrupts.cancel.wait()
            self.progress.line("stopping the turn; Ctrl-C again to leave it behind")
        except TimeoutError:
            self.is_timed_out = True
            self.progress.line(f"stopping the turn after {self.timeout_s:g} s")
        try:
            async with asyncio.timeout(_START_S):
                await self._has_started.wait()
            assert self.turn is not None
            await self.link.commands.cancel(self.message.thread_id, self.turn, key=draw())
        except TimeoutError:
            self.progress.line("the turn has not started: the message stays in the inbox")
            self.interrupts.detach.set()
        except ConflictError:
            return  # it has ended, or somebody else was faster
        except ThreadlogError as error:
            self.progress.line(f"cannot stop the turn: {error}")
            self.interrupts.detach.set()

    async def _still(self) -> None:
        """Whoever waits for long is told that it goes on."""
        waited_s = 0.0
        while True:
            try:
                async with asyncio.timeout(_STILL_S):
                    await self._moved.wait()
                self._moved.clear()
                waited_s = 0.0
            except TimeoutError:
                waited_s += _STILL_S
                self.progress.line(f"  {self.progress.doing} ({waited_s:.0f} s)")
