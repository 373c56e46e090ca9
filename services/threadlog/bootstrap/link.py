"""A command's link to whatever runs its turns: a gateway, a cluster, or the runtime of a file.

Of a file this process is the runtime, or talks to it, or takes its place.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from threadlog.adapters.sqlite.lock import Holder, read_holder
from threadlog.bootstrap.embedded import Notice, RunOptions, Runtime, copy_folder
from threadlog.bootstrap.models import fingerprints
from threadlog.bootstrap.reading import reading
from threadlog.client.connection import Connection
from threadlog.client.http import HttpCommands
from threadlog.client.interface import CommandPort
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import LockedError, RefusedError, ThreadlogError, UnauthenticatedError
from threadlog.ids import CallId, ThreadId, TurnId
from threadlog.queries.reading import Reader
from threadlog.settings import Settings

_TRY_S = 0.1
_WATCH_S = 0.5
_DEADLINE_S = 20.0
_LEAVE_MS = 10_000
"""How long a command that leaves in order lets what runs in it end."""

T = TypeVar("T")


class Link(Protocol):
    """Commands and reads, wherever the services run."""

    @property
    def commands(self) -> CommandPort:
        """Commands that find the services, wherever they run by now."""
        ...

    @property
    def reader(self) -> Reader:
        """Reads; they go on whoever runs the services."""
        ...

    async def copy_folder(self, source: Path, thread: ThreadId) -> None:
        """The folder's files are in the managed workspace of `thread`."""
        ...

    async def check_model(self, provider: str) -> None:
        """Who asks the model has the same one configured as this process, as far as is known.

        Raises:  RefusedError: it has another one.
        """
        ...

    async def stopped(self, thread: ThreadId) -> None:
        """Returns when it is known that an error has stopped the thread; else never."""
        ...

    def detach(self) -> None:
        """The open turn is left to whoever runs the services; do not wait for it."""
        ...


class FileLink:
    """Implements `Link` on one file. `holds_lock`: this process runs the services."""

    def __init__(self, settings: Settings, options: RunOptions, notice: Notice) -> None:
        self._settings = settings
        self._options = options
        self._notice = notice
        self._runtime: Runtime | None = None
        self._remote: HttpCommands | None = None
        self._had_remote = False
        """Another process has held the lock: whoever takes it now carries on for it."""
        self._taking = asyncio.Lock()
        self._reader: Reader | None = None
        self._is_stuck = False
        self.is_detached = False

    @property
    def holds_lock(self) -> bool:
        """Whether the services run in this process."""
        return self._runtime is not None

    @property
    def commands(self) -> CommandPort:
        """Commands that find the runtime, whoever it is by now."""
        return _Finding(self)

    @property
    def reader(self) -> Reader:
        """Reads; they go on whoever holds the lock."""
        assert self._reader is not None
        return self._reader

    async def copy_folder(self, source: Path, thread: ThreadId) -> None:
        """The folder's files are in the managed workspace of `thread`."""
        await copy_folder(self._settings, source, thread)

    async def check_model(self, provider: str) -> None:
        """The process that will ask the model has the same one configured as this process.

        Raises:  RefusedError: another process runs the log, with another script, address or key.
        """
        ours = fingerprints(self._settings, self._options.script)
        theirs = await self.ask(lambda to: _models_of(to, ours))
        if theirs.get(provider) != ours.get(provider):
            raise RefusedError(
                f"another process runs this log with another {provider} model than the one given "
                "here: wait until it ends, or use a log of your own (THREADLOG_LOG__FILE)"
            )

    async def ask(self, send: Callable[[CommandPort], Awaitable[T]]) -> T:
        """The answer of the runtime, whoever it is by then.

        Raises:  LockedError: another process holds the lock and cannot be reached.
        """
        deadline = asyncio.get_running_loop().time() + _DEADLINE_S
        while True:
            target = await self.target()
            try:
                return await send(target)
            except (LockedError, UnauthenticatedError):
                # A token that is not taken any more is that of a runtime before this one.
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await self.lose(target)
                await asyncio.sleep(_TRY_S)

    async def stopped(self, thread: ThreadId) -> None:
        """Returns when an error has stopped the thread in this process; else never."""
        while not self._is_stuck:
            services = None if self._runtime is None else self._runtime.services
            if services is not None and (services.has_failed or thread in services.broken):
                return
            await asyncio.sleep(_WATCH_S)

    def detach(self) -> None:
        """The open turn is left to whoever runs the services next; do not wait for it."""
        self.is_detached = True

    async def target(self) -> CommandPort:
        """Where a command goes now: this process, or the one that holds the lock.

        Raises:  LockedError: another process holds the lock and cannot be reached.
        """
        async with self._taking:
            if self._runtime is not None:
                return self._runtime.commands(self._options.actor)
            if self._remote is not None:
                return self._remote
            return await self._find()

    async def _find(self) -> CommandPort:
        deadline = asyncio.get_running_loop().time() + _DEADLINE_S
        while True:
            try:
                runtime = await Runtime.start(
                    self._settings, self._options, self._notice, takes_over=self._had_remote
                )
            except LockedError:
                holder = read_holder(self._settings.log_file())
                if holder is not None and (way := _way_to(holder)) is not None:
                    self._remote, self._had_remote = HttpCommands(way), True
                    return self._remote
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(_TRY_S)
            else:
                self._runtime = runtime
                return runtime.commands(self._options.actor)

    async def lose(self, lost: CommandPort) -> None:
        """The runtime behind `lost` did not answer: look for it again, or be it."""
        async with self._taking:
            remote = self._remote
            if remote is not None and remote is lost:
                self._remote = None
                await remote.close()

    async def watch(self) -> None:
        """Takes the lock as soon as whoever holds it is gone, and carries on from the log."""
        while self._runtime is None:
            await asyncio.sleep(_WATCH_S)
            try:
                runtime = await Runtime.start(
                    self._settings, self._options, self._notice, takes_over=True
                )
            except LockedError:
                continue
            except ThreadlogError as error:
                self._notice(f"the other process ended, and this one cannot carry on: {error}")
                self._is_stuck = True
                return
            # No await between: whoever cancels this task finds the runtime, and stops it.
            self._runtime = runtime

    async def open(self) -> None:
        """The runtime was found or started."""
        await self.target()
        if self._runtime is not None:
            self._reader = self._runtime.reader()

    async def close(self, *, in_order: bool) -> None:
        """Everything is closed; turns that this process carries have ended, when `in_order`."""
        if self._remote is not None:
            await self._remote.close()
        if self._runtime is None:
            return
        try:
            if in_order and not self.is_detached:
                await self._runtime.rest(self._notice)
        finally:
            await self._stop(self._runtime)

    async def _stop(self, runtime: Runtime) -> None:
        """The runtime is stopped. Who leaves lets what runs end first, and may be told to hurry."""
        drain_ms = _LEAVE_MS if self.is_detached else 0
        if drain_ms and runtime.services.is_busy:
            self._notice(f"what runs may end, for up to {drain_ms // 1_000} s; again to end it now")
        stopping = asyncio.create_task(runtime.stop(drain_ms))
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            runtime.services.hurry()
            await stopping
            raise


async def _models_of(target: CommandPort, ours: dict[str, str]) -> dict[str, str]:
    return (await target.info()).models if isinstance(target, HttpCommands) else ours


def _way_to(holder: Holder) -> Connection | None:
    """A connection to the runtime that holds the lock; None: it takes no commands yet, or more."""
    if holder.socket is None or holder.token_file is None:
        return None
    try:
        token = Path(holder.token_file).read_text().strip()
    except OSError:
        return None
    return Connection.through(Path(holder.socket), token)


class _Finding:
    """Implements `CommandPort`: the same key goes to the next runtime when one does not answer."""

    def __init__(self, link: FileLink) -> None:
        self._link = link

    async def create_thread(self, new: NewThread, *, key: str) -> Accepted:
        return await self._link.ask(lambda to: to.create_thread(new, key=key))

    async def configure(self, thread: ThreadId, settings: ThreadSettings, *, key: str) -> Accepted:
        return await self._link.ask(lambda to: to.configure(thread, settings, key=key))

    async def send_message(self, thread: ThreadId, message: NewMessage, *, key: str) -> Accepted:
        return await self._link.ask(lambda to: to.send_message(thread, message, key=key))

    async def cancel(
        self, thread: ThreadId, turn: TurnId, call: CallId | None = None, *, key: str
    ) -> Accepted:
        return await self._link.ask(lambda to: to.cancel(thread, turn, call, key=key))


@asynccontextmanager
async def connected(settings: Settings, options: RunOptions, notice: Notice) -> AsyncIterator[Link]:
    """A link to the gateway, to the cluster, or to the file's runtime: maybe this process.

    Effects: on leaving without an error, a process that runs the services stays until the turns
             that it carries have ended. If another process ran them and dies, this one carries on.
    """
    if settings.url is not None:
        from threadlog.bootstrap.url_link import url_connected

        async with url_connected(settings, options) as remote:
            yield remote
        return
    if settings.is_cluster:
        from threadlog.bootstrap.cluster_link import cluster_connected

        async with cluster_connected(settings, options, notice) as clustered:
            yield clustered
        return
    link = FileLink(settings, options, notice)
    await link.open()
    in_order = False
    try:
        if link.holds_lock:
            yield link
        else:
            async with reading(settings) as reader:
                link._reader = reader
                watching = asyncio.create_task(link.watch())
                try:
                    yield link
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        in_order = True
    finally:
        await link.close(in_order=in_order)
