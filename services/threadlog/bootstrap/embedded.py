"""The embedded runtime: all services in one process on one file, and commands that find it.

One process holds the file's lock and runs the services; another command talks to it through its
socket, and takes its place when it dies. Reads open the file read-only and ask nobody.
"""

import asyncio
import hashlib
import importlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools
from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.adapters.sqlite.file import SqliteFile, open_file, open_read_only
from threadlog.adapters.sqlite.lock import FileLock, Holder
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.members import LockMembers
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.bootstrap.models import MissingModel, load_models, load_prices
from threadlog.bootstrap.services import Ports, Services
from threadlog.bootstrap.sockets import listen, socket_path
from threadlog.client.reading import Reader
from threadlog.clock import SystemClock, rfc3339
from threadlog.commands.service import Commands
from threadlog.errors import ThreadlogError
from threadlog.faults import arm
from threadlog.ids import LOCAL_TENANT, ThreadId, WorkerId, WorkspaceId, derive, draw
from threadlog.limits import DRAIN_TIMEOUT_MS
from threadlog.ports.tools import Tools, WorkspaceRef
from threadlog.settings import Settings
from threadlog.version import VERSION

_REST_S = 0.05

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a command says beside the settings: who acts, and the scripted model's script."""

    actor: str
    script: Path | None = None


def make_tools(settings: Settings) -> Tools:
    """The tools of these settings: in the sandbox, or bare where that was switched off."""
    kind = BareTools if settings.sandbox == "off" else SandboxTools
    name = hashlib.sha256(os.fsencode(settings.log_file().resolve())).hexdigest()[:16]
    state = settings.data_folder() / "running" / name
    return kind(workspaces_root=settings.workspaces_folder(), state_dir=state)


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Reader]:
    """A reader of the file, whether or not a runtime holds it.

    Raises:  NotFoundError: there is no file yet.
    """
    file = await open_read_only(settings.log_file())
    try:
        blobs = SqliteBlobs(file, clock=SystemClock())
        yield Reader(SqliteViews(file), blobs, None, LOCAL_TENANT)
    finally:
        await file.close()


class Runtime:
    """The services on one file, whose lock this process holds. Made by `start`."""

    def __init__(
        self, lock: FileLock, file: SqliteFile, services: Services, listener: socket.socket
    ) -> None:
        self._lock = lock
        self._file = file
        self.services = services
        self._listener: socket.socket | None = listener
        self._server: object = None

    @classmethod
    async def start(cls, settings: Settings, options: RunOptions, notice: Notice) -> "Runtime":
        """The lock is held, all services run, and the socket takes commands.

        Raises:  LockedError: another process holds the lock.
        """
        # 1. Everything that may be wrong with what the user asked for, before the lock.
        models = await load_models(settings, options.script)
        prices = load_prices(settings)
        _arm(settings)
        # 2. The lock: from here on no other process writes the file.
        path, clock, instance = settings.log_file(), SystemClock(), draw()
        holder = Holder(os.getpid(), instance, rfc3339(clock.now_ms()))
        lock = FileLock(path)
        lock.acquire(holder)
        try:
            address = socket_path(settings, path)
            listener = listen(address)
            file = await open_file(path, clock=clock, on_fatal=_die)
        except BaseException:
            lock.release()
            raise
        views, members = SqliteViews(file), LockMembers()
        ports = Ports(
            log=SqliteLog(file),
            views=views,
            view_writer=views,
            snapshots=SqliteSnapshots(file),
            blobs=SqliteBlobs(file, clock=clock),
            notify=MemoryNotify(),
            members=members,
            clock=clock,
            models=models,
            unknown_model=MissingModel(),
            tools=make_tools(settings),
            prices=prices,
        )
        planner, runner = WorkerId(f"p-{instance}"), WorkerId(f"t-{instance}")
        members.register(planner)
        members.register(runner)
        runtime = cls(lock, file, Services(ports, planner, runner), listener)
        if settings.sandbox == "off":
            notice("warning: THREADLOG_SANDBOX=off, commands run WITHOUT a sandbox, as this user")
        try:
            # 3. The services.
            await runtime.services.start()
            # 4. Others may come: the socket has queued them since it was bound.
            lock.announce(replace(holder, socket=str(address)))
            await runtime.listen(options.actor)
        except BaseException:
            await runtime.stop(drain_ms=0)
            raise
        return runtime

    async def listen(self, actor: str) -> None:
        """Commands that come through the socket are taken."""
        server = await asyncio.to_thread(importlib.import_module, "threadlog.gateway.server")
        assert self._listener is not None
        self._server = server.GatewayServer(self.commands(actor), self._listener, VERSION)

    def commands(self, actor: str) -> Commands:
        """The commands of this process."""
        ports = self.services.ports
        return Commands(
            ports.log, ports.views, ports.blobs, ports.clock, tenant=LOCAL_TENANT, actor=actor
        )

    def reader(self) -> Reader:
        """A reader that hears frames."""
        ports = self.services.ports
        return Reader(ports.views, ports.blobs, ports.notify, LOCAL_TENANT)

    async def rest(self, notice: Notice) -> None:
        """No thread has anything to do, and no new command can come any more."""
        if not await self.services.is_resting():
            notice("staying until the turns that this process carries have ended")
        while not await self.services.is_resting():
            await asyncio.sleep(_REST_S)
        await self._close_socket()
        while not await self.services.is_resting():
            await asyncio.sleep(_REST_S)

    async def stop(self, drain_ms: int = DRAIN_TIMEOUT_MS) -> None:
        """Nothing runs, the file is closed, the lock is free."""
        try:
            await self._close_socket()
            await self.services.stop(drain_ms)
            await self._file.close()
        finally:
            self._lock.release()

    async def _close_socket(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()  # type: ignore[attr-defined]  # a GatewayServer, imported late
        if self._listener is not None:
            self._listener.close()
            self._listener = None


async def copy_folder(settings: Settings, source: Path, thread: ThreadId) -> None:
    """The folder's files are in the managed workspace of `thread`."""
    workspace = WorkspaceRef(
        WorkspaceId(derive("workspace", LOCAL_TENANT, thread)), LOCAL_TENANT, thread, None
    )
    tools = make_tools(settings)
    assert isinstance(tools, SandboxTools | BareTools)
    await tools.copy_into_workspace(source, workspace)


async def serve(
    settings: Settings, options: RunOptions, notice: Notice, stop: asyncio.Event
) -> None:
    """`threadlog up`: the runtime runs until `stop` is set or a service fails.

    Raises:  LockedError: another process holds the file.
    """
    runtime = await Runtime.start(settings, options, notice)
    try:
        notice(f"ready: {settings.log_file()}")
        failed = asyncio.create_task(runtime.services.failed())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([failed, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if failed.done() and (error := failed.result()) is not None:
            raise error
        failed.cancel()
    finally:
        await runtime.stop()


def _arm(settings: Settings) -> None:
    """Tests may ask for the process to die at a named point."""
    if settings.fault is not None:
        name, _, visit = settings.fault.partition(":")
        arm(name, int(visit or 1))


def _die(error: ThreadlogError) -> None:
    """A log that cannot be appended to any more ends the process: nothing may go on without it."""
    os.write(2, f"threadlog: {error}\n".encode())
    os._exit(1)
