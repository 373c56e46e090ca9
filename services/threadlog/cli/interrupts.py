"""Ctrl-C in `run`: the first asks the turn to stop, the second leaves, a third leaves at once.

Before there is a turn, and after it has ended, there is nothing to stop: Ctrl-C ends the command.
"""

import asyncio
import signal
from types import TracebackType

from threadlog.cli.failures import ExitCode


class Interrupts:
    """The signals of this process while a turn is carried. Use it as a context manager."""

    def __init__(self) -> None:
        self.cancel = asyncio.Event()
        """The turn is to be cancelled."""
        self.detach = asyncio.Event()
        """The command is to end, whatever becomes of the turn."""
        self.code: ExitCode | None = None
        """What the command ends with because of a signal; None: there was none."""
        self._has_turn = False
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task

    def __enter__(self) -> "Interrupts":
        self._loop.add_signal_handler(signal.SIGINT, self._interrupted)
        self._loop.add_signal_handler(signal.SIGTERM, self._terminated)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
        self._loop.remove_signal_handler(signal.SIGTERM)

    def turn_begins(self) -> None:
        """From now on there is something to cancel."""
        self._has_turn = True

    def turn_ended(self) -> None:
        """From now on a signal ends the command at once."""
        self._has_turn = False

    def _interrupted(self) -> None:
        self.code = ExitCode.INTERRUPTED
        if not self._has_turn or self.detach.is_set():
            self._task.cancel()
        elif self.cancel.is_set():
            self.detach.set()
        else:
            self.cancel.set()

    def _terminated(self) -> None:
        """Whoever ends this process in order wants no turn cancelled: it goes on later."""
        self.code = ExitCode.TERMINATED
        if not self._has_turn or self.detach.is_set():
            self._task.cancel()
        else:
            self.detach.set()
