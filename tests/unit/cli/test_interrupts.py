"""Ctrl-C: cancel, then leave, then leave at once."""

import asyncio
import os
import signal

import pytest

from threadlog.cli.failures import ExitCode
from threadlog.cli.interrupts import Interrupts


async def press(number: signal.Signals = signal.SIGINT) -> None:
    """The signal has reached the loop."""
    os.kill(os.getpid(), number)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def press_and_wait() -> None:
    """Ctrl-C, and nothing else ever happens."""
    await press()
    await asyncio.Event().wait()


async def test_the_first_cancels_the_second_leaves_the_third_leaves_at_once() -> None:
    with Interrupts() as interrupts:
        interrupts.turn_begins()
        await press()
        await asyncio.wait_for(interrupts.cancel.wait(), 5)
        assert not interrupts.detach.is_set()
        await press()
        await asyncio.wait_for(interrupts.detach.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await press_and_wait()
        assert interrupts.code is ExitCode.INTERRUPTED


async def test_before_and_after_the_turn_it_ends_the_command() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(asyncio.CancelledError):
            await press_and_wait()
        interrupts.turn_begins()
        interrupts.turn_ended()
        with pytest.raises(asyncio.CancelledError):
            await press_and_wait()
        assert not interrupts.cancel.is_set()


async def test_being_terminated_cancels_no_turn() -> None:
    with Interrupts() as interrupts:
        interrupts.turn_begins()
        await press(signal.SIGTERM)
        await asyncio.wait_for(interrupts.detach.wait(), 5)
        assert not interrupts.cancel.is_set()
        assert interrupts.code is ExitCode.TERMINATED


async def test_afterwards_signals_mean_what_they_meant() -> None:
    with Interrupts():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
