"""Waiting for a turn, and what happens when it cannot be stopped."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from tests.helpers.events import event_id, thread_id
from tests.helpers.turns import TURN, whole_turn
from threadlog.bootstrap.link import Link
from threadlog.cli import watching
from threadlog.cli.interrupts import Interrupts
from threadlog.cli.progress import Progress
from threadlog.cli.terminal import Screen
from threadlog.cli.watching import Watch
from threadlog.commands.requests import Accepted
from threadlog.errors import ConflictError, CorruptError, LockedError
from threadlog.ids import EventId, Position, Seq, ThreadId
from threadlog.ports.notify import LiveDelta
from threadlog.ports.views import StoredEvent
from threadlog.queries.reading import TurnResult

MESSAGE = Accepted(thread_id(), EventId(event_id("message")), Position(3), Seq(2))
RESULT = TurnResult(thread_id(), TURN, Seq(17), "completed", None, "Done.", 2, None)


class Readings:
    """A thread whose next events come when they are given."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[StoredEvent | LiveDelta] = asyncio.Queue()

    async def follow(self, thread: ThreadId, first: int) -> AsyncIterator[StoredEvent | LiveDelta]:
        assert (thread, first) == (MESSAGE.thread_id, MESSAGE.seq)
        while True:
            yield await self.coming.get()

    async def find_result(self, thread: ThreadId, message: EventId, first: int) -> TurnResult:
        return RESULT


class Linked:
    """A link whose cancel fails as told. `asked` is set when it was asked for."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.reader = Readings()
        self.commands = self
        self.asked = asyncio.Event()
        self.broken = asyncio.Event()
        self._failure = failure

    async def stopped(self, thread: ThreadId) -> None:
        assert thread == MESSAGE.thread_id
        await self.broken.wait()

    async def cancel(self, thread: ThreadId, turn: str, *, key: str) -> Accepted:
        assert (thread, turn) == (MESSAGE.thread_id, TURN)
        assert key
        self.asked.set()
        if self._failure is not None:
            raise self._failure
        return MESSAGE

    async def give(self, *events: StoredEvent) -> None:
        for event in events:
            await self.reader.coming.put(event)


async def test_a_thread_that_an_error_stopped_is_told_not_waited_for() -> None:
    link = Linked()
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        link.broken.set()
        with pytest.raises(CorruptError):
            await asyncio.wait_for(waiting, 5)


def watch(link: Linked, interrupts: Interrupts, timeout_s: float | None = None) -> Watch:
    progress = Progress(Screen())
    return Watch(cast(Link, link), MESSAGE, progress, interrupts, timeout_s)


async def test_the_result_comes_with_the_end_of_our_turn() -> None:
    link = Linked()
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        await link.give(*whole_turn()[2:-1])
        await asyncio.sleep(0)
        assert not waiting.done()
        await link.give(whole_turn()[-1])
        assert await waiting == RESULT


async def test_turns_of_others_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    link = Linked()
    turn = [s for s in whole_turn() if s.event.turn_id is not None]
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        await link.give(*turn[1:])
        while not link.reader.coming.empty():
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert capsys.readouterr().err == ""


async def test_a_turn_that_has_not_started_is_left_in_the_inbox(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "_START_S", 0.01)
    link = Linked()
    with Interrupts() as interrupts:
        interrupts.cancel.set()
        assert await watch(link, interrupts).result() is None
    assert not link.asked.is_set()
    assert "the message stays in the inbox" in capsys.readouterr().err


async def test_a_cancel_that_cannot_be_sent_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    link = Linked(LockedError("nobody answers"))
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        await link.give(whole_turn()[3])
        interrupts.cancel.set()
        assert await waiting is None
    assert "cannot stop the turn: nobody answers" in capsys.readouterr().err


async def test_a_cancel_that_came_too_late_changes_nothing() -> None:
    link = Linked(ConflictError("it has ended"))
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        await link.give(whole_turn()[3])
        interrupts.cancel.set()
        await link.asked.wait()
        await link.give(*whole_turn()[4:])
        assert await waiting == RESULT


async def test_the_timeout_cancels(capsys: pytest.CaptureFixture[str]) -> None:
    link = Linked()
    with Interrupts() as interrupts:
        watched = watch(link, interrupts, 0.01)
        waiting = asyncio.create_task(watched.result())
        await link.give(whole_turn()[3])
        await link.asked.wait()
        await link.give(*whole_turn()[4:])
        assert await waiting == RESULT
    assert watched.is_timed_out
    assert not interrupts.cancel.is_set()
    assert "stopping the turn after 0.01 s" in capsys.readouterr().err


async def test_two_interrupts_at_once_still_send_the_cancel() -> None:
    link = Linked()
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        await link.give(whole_turn()[3])
        interrupts.cancel.set()
        interrupts.detach.set()
        assert await waiting is None
    assert link.asked.is_set()


async def test_whoever_waits_long_is_told_what_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "_STILL_S", 0.01)
    link = Linked()
    with Interrupts() as interrupts:
        waiting = asyncio.create_task(watch(link, interrupts).result())
        said = ""
        while "(0 s)" not in said:
            await asyncio.sleep(0)
            said += capsys.readouterr().err
        assert "waiting for the turn to start" in said
        await link.give(*whole_turn()[3:])
        assert await waiting == RESULT


async def test_leaving_never_hangs() -> None:
    """In Python 3.11 `wait_for` may swallow a cancel that comes together with what it waits for."""
    for delay in range(20):
        link = Linked()
        with Interrupts() as interrupts:
            waiting = asyncio.create_task(watch(link, interrupts).result())
            await link.give(whole_turn()[3])
            for _ in range(delay):
                await asyncio.sleep(0)
            await link.give(whole_turn()[4])
            interrupts.detach.set()
            async with asyncio.timeout(5):
                assert await waiting is None
