"""The commands of a thread, whichever way they travel: in process or through a socket."""

from typing import Protocol

from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.ids import CallId, ThreadId, TurnId


class CommandPort(Protocol):
    """What `commands.service.Commands` does; `client.http.HttpCommands` does it from afar.

    Raises:  the errors of `Commands`, the same ones either way.
    """

    async def create_thread(self, new: NewThread, *, key: str) -> Accepted:
        """A thread exists, with its settings and, where there is one, its first message."""
        ...

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Accepted:
        """The settings are in force from the next step on."""
        ...

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Accepted:
        """The message is in the inbox."""
        ...

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Accepted:
        """The open turn, or one call of it, was told to stop."""
        ...
