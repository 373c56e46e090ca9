"""The embedded runtime: all services in one process on one file, and commands that find it.

One process holds the file's lock and runs the services; another command talks to it through its
socket, and takes its place when it dies. Reads open the file read-only and ask nobody.
"""

import asyncio
import contextlib
import hashlib
import importlib
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from threadlog.adapters.keys.local import token_file
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools
from threadlog.adapters.sqlite.file import SqliteFile, open_file
from threadlog.adapters.sqlite.lock import FileLock, Holder, token_path
from threadlog.bootstrap.file_services import file_ports, file_services
from threadlog.bootstrap.models import (
    close_models,
    fingerprints,
    known_model,
    load_models,
    load_prices,
)
from threadlog.bootstrap.services import Counting, Services
from threadlog.bootstrap.sockets import listen, socket_path
from threadlog.bootstrap.traced import traced
from threadlog.clock import SystemClock, rfc3339
from threadlog.commands.service import Commands
from threadlog.errors import LogFileError, RefusedError, ThreadlogError, UsageError
from threadlog.events.content import ModelRef
from threadlog.faults import POINTS, arm
from threadlog.ids import LOCAL_TENANT, ThreadId, WorkspaceId, derive, draw
from threadlog.limits import DRAIN_TIMEOUT_MS
from threadlog.ports.tools import Tools, WorkspaceRef
from threadlog.queries.reading import Reader
from threadlog.settings import Settings
from threadlog.telemetry.scope import mark_process

_REST_S = 0.05
_SERVICE = "embedded"
_GUARD_S = 0.5

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a command says beside the settings: who acts, and the scripted model's script.

    Shapes:  `counting`: where the services count; None: nowhere.
    """

    actor: str
    script: Path | None = None
    counting: Counting | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests of others come in, who then acts, and what is closed in the end.

    Shapes:  `token` is what they must know. `models`: a hash of each provider's configuration;
             `model`: of a thread that names none.
    """

    settings: Settings
    holder: Holder
    address: Path
    token: str
    actor: str
    models: Mapping[str, str]
    model: ModelRef | None
    stack: contextlib.ExitStack


def make_tools(settings: Settings, running: Path | None = None) -> Tools:
    """The tools of these settings: in the sandbox, or bare where that was switched off.

    Shapes:  `running`: the folder of run records, of one runner alone; None: the log file's.
    """
    kind = BareTools if settings.sandbox == "off" else SandboxTools
    name = hashlib.sha256(os.fsencode(settings.log_file().resolve())).hexdigest()[:16]
    state = running or settings.data_folder() / "running" / name
    return kind(workspaces_root=settings.workspaces_folder(), state_dir=state)


async def checked_tools(settings: Settings, running: Path | None = None) -> Tools:
    """Tools that have passed their self-test: without a sandbox no runtime starts.

    Raises:  RefusedError: what failed, what to do, and how to go without a sandbox.
    """
    tools = make_tools(settings, running)
    failed = [finding for finding in await tools.check() if finding.level == "fail"]
    if not failed:
        return tools
    first = failed[0]
    off = "" if settings.sandbox == "off" else "; or run without it: THREADLOG_SANDBOX=off"
    raise RefusedError(f"sandbox: {first.check}: {first.evidence}: {first.fix}{off}")


def make_data_folder(settings: Settings) -> None:
    """The data folder exists; as root others may pass through it to their workspaces.

    Raises:  RefusedError: it cannot be made.
    """
    folder = settings.data_folder()
    try:
        folder.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(
            f"cannot make the data folder {folder}: {error.strerror}; set THREADLOG_DATA_DIR"
        ) from error


class Runtime:
    """The services on one file, whose lock this process holds. Made by `start`."""

    def __init__(self, lock: FileLock, file: SqliteFile, services: Services, at: "Place") -> None:
        self._lock = lock
        self._file = file
        self.services = services
        self._at = at
        self._identity = _identity(file.path)
        self._guarding: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None
        self._server: object = None

    @classmethod
    async def start(
        cls,
        settings: Settings,
        options: RunOptions,
        notice: Notice,
        *,
        takes_over: bool = False,
    ) -> "Runtime":
        """The lock is held, all services run, and the socket takes commands.

        Shapes:  `takes_over`: another process held the lock a moment ago, which is told.
        Raises:  LockedError: another process holds the lock.
                 RefusedError: no command can be run here; the message says why.
                 UsageError: the script, an address or the price list is wrong.
        """
        # 1. The lock: from here on no other process writes the file.
        path, clock, instance = settings.log_file(), SystemClock(), draw()
        holder = Holder(os.getpid(), instance, rfc3339(clock.now_ms()))
        lock = FileLock(path)
        make_data_folder(settings)
        lock.acquire(holder)
        if takes_over:
            notice("the other process ended: carrying on from the log")
        stack = contextlib.ExitStack()
        try:
            # 2. Everything that may be wrong with what was asked for, or with this machine.
            arm_faults(settings)
            models = await load_models(settings, options.script)
            hashes = fingerprints(settings, options.script)
            prices, tools = load_prices(settings), await checked_tools(settings)
            address = socket_path(settings, path)
            secret = token_path(path)
            token = stack.enter_context(token_file(secret))
            mark_process(_SERVICE, instance)
            tracer = stack.enter_context(traced(settings, _SERVICE, instance, clock))
            file = await open_file(path, clock=clock, on_fatal=die)
        except BaseException:
            stack.close()
            lock.release()
            raise
        ports = file_ports(file, models, tools, prices, tracer)
        services = file_services(replace(ports, counting=options.counting), instance)
        holder = replace(holder, socket=str(address), token_file=str(secret))
        model = known_model(settings, options.script)
        place = Place(settings, holder, address, token, options.actor, hashes, model, stack)
        runtime = cls(lock, file, services, place)
        if settings.sandbox == "off":
            notice("warning: THREADLOG_SANDBOX=off, commands run WITHOUT a sandbox, as this user")
        try:
            # 3. The services. Whoever comes from now on waits in the socket's queue.
            runtime.bind()
            await runtime.services.start()
            # 4. Others may come.
            lock.announce(holder)
            await runtime.take_commands()
            runtime._guarding = asyncio.create_task(runtime._guard())
        except BaseException:
            await runtime.stop(drain_ms=0)
            raise
        return runtime

    async def _guard(self) -> None:
        """The process ends when the lock or the file is not what it holds any more.

        Somebody removed or replaced it: another process may run on the new one, and one of two that
        both believe to be alone must go, before it claims anything more.
        """
        while self._lock.is_held() and _identity(self._file.path) == self._identity:
            await asyncio.sleep(_GUARD_S)
        die(LogFileError(f"{self._file.path} or its lock was removed or replaced: stopping"))

    def bind(self) -> None:
        """Commands may come through the socket; they wait until they are taken."""
        self._listener = listen(self._at.address)

    async def take_commands(self) -> None:
        """Requests that come through the socket are taken."""
        gateway = await asyncio.to_thread(importlib.import_module, "threadlog.bootstrap.gateway")
        at = self._at
        self._server = gateway.serve_embedded(
            at.settings,
            self.services.ports,
            gateway.LocalUser(at.token, at.actor, at.model),
            at.models,
            [self._listener],
        )

    async def serve_loopback(self) -> str:
        """The gateway is served on loopback, too, for who has the token; its address."""
        gateway = await asyncio.to_thread(importlib.import_module, "threadlog.bootstrap.gateway")
        if self._at.settings.gateway.host not in gateway.LOOPBACK:
            raise UsageError(
                "up serves this machine alone: unset THREADLOG_GATEWAY__HOST, or run a cluster "
                "with threadlog serve gateway"
            )
        listener = gateway.tcp_listener(self._at.settings, is_choosy=False)
        self._at.stack.callback(listener.close)
        address: str = gateway.address_of(listener)
        await self._server.add(listener)  # type: ignore[attr-defined]  # a GatewayServer
        self._lock.announce(replace(self._at.holder, address=address))
        return address

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
        while True:
            while not await self.services.is_resting():
                await asyncio.sleep(_REST_S)
            await self._close_socket()
            if await self.services.is_resting():
                return
            # A command came in at the last moment: its turn is carried, and can be cancelled.
            self.bind()
            await self.take_commands()

    async def stop(self, drain_ms: int = DRAIN_TIMEOUT_MS) -> None:
        """Nothing runs, the file is closed, the lock is free."""
        try:
            await self._close_socket()
            await self.services.stop(drain_ms)
            if self._guarding is not None:
                self._guarding.cancel()
            await close_models(self.services.ports.models)
            await self._file.close()
        finally:
            self._at.stack.close()
            self._lock.release()

    async def _close_socket(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()  # type: ignore[attr-defined]  # a GatewayServer, imported late
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._at.address.unlink(missing_ok=True)


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

    Effects: metrics are served if the settings name a port for them.
    Raises:  LockedError: another process holds the file. RefusedError: the port is taken.
    """
    counting = None
    if settings.metrics.port is not None:
        # Only then: importing it takes a while.
        pages = await asyncio.to_thread(importlib.import_module, "threadlog.bootstrap.counting")
        counting = pages.FileCounting(settings)
    runtime = await Runtime.start(settings, replace(options, counting=counting), notice)
    try:
        if counting is not None:
            notice(f"metrics on {counting.serve(settings, runtime.services)}")
        address = await runtime.serve_loopback()
        if settings.gateway.port is None and not address.endswith(":8080"):
            notice("port 8080 is taken: another one is used; THREADLOG_GATEWAY__PORT names one")
        notice(f"ready: {settings.log_file()}")
        notice(f"HTTP on {address}, for who knows the token in {token_path(settings.log_file())}")
        failed = asyncio.create_task(runtime.services.failed())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([failed, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if failed.done() and (error := failed.result()) is not None:
            raise error
        failed.cancel()
    finally:
        if counting is not None:
            counting.close()
        await runtime.stop()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies at the path; None: none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def arm_faults(settings: Settings) -> None:
    """Tests may ask for the process to die at a named point.

    Raises:  UsageError: there is no such point, or what follows its name is no count.
    """
    if settings.fault is None:
        return
    name, _, visit = settings.fault.partition(":")
    if name not in POINTS or re.fullmatch(r"([1-9][0-9]{0,8})?", visit) is None:
        points = " ".join(POINTS)
        raise UsageError(f"THREADLOG_FAULT must be POINT or POINT:VISIT; the points are: {points}")
    arm(name, int(visit or 1))


def die(error: ThreadlogError) -> None:
    """A log that cannot be appended to any more ends the process: nothing may go on without it."""
    if logging.getLogger().handlers:
        logging.getLogger("threadlog").critical("%s", error)
    else:
        os.write(2, f"threadlog: {error}\n".encode())
    os._exit(1)
