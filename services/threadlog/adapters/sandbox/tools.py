"""The tools port on Linux: `SandboxTools` with bubblewrap, `BareTools` without any sandbox.

Both run a line in a process tree that is gone when `run` returns. `read`, `write` and `edit` run as
a small Python program in the same place as a command would: no process of the runner opens a path
of a workspace. A sandbox that cannot be had is an error, never a bare run: bare is a class of its
own, chosen by the operator (`THREADLOG_SANDBOX=off`).
"""

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from threadlog import limits
from threadlog.adapters.sandbox import program, recipe, results, seccomp, self_test
from threadlog.adapters.sandbox.copying import Copied, copy_tree
from threadlog.adapters.sandbox.folders import Folders, Place
from threadlog.adapters.sandbox.pipes import Status, sealed
from threadlog.adapters.sandbox.records import RunRecords
from threadlog.adapters.sandbox.supervise import Bounds, Ending, Launch, supervise
from threadlog.errors import RefusedError
from threadlog.ids import CallId, draw
from threadlog.ports.tools import Finding, ToolCall, ToolResult, WorkspaceRef
from threadlog.thread import command_line
from threadlog.thread.command_line import ReadOutput, ShellLine, UsageProblem

_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OPEN = b"go\n"
_COMPILE_MS = 20_000


def _always() -> bool:
    """Programs of our own have no effect that could come too late."""
    return True


class _LinuxTools(ABC):
    """What both share: folders, records, and the way from a line to a result."""

    def __init__(
        self, workspaces_root: Path, state_dir: Path, *, memory_bytes_max: int, drops_uid: bool
    ) -> None:
        self._own = (workspaces_root, state_dir)
        self._folders = Folders(workspaces_root, (state_dir,), drops_uid=drops_uid)
        self._records = RunRecords(state_dir)
        self._records.open()
        self._memory_bytes_max = memory_bytes_max
        self._helper: bytes | None = None
        self._compiling = asyncio.Lock()

    async def settle_orphans(self) -> None:
        await self._records.settle()

    async def prepare(self, workspace: WorkspaceRef) -> None:
        place = await asyncio.to_thread(self._folders.prepare, workspace)
        with suppress(RefusedError):  # a call that needs it says why; the others do not need it
            await self._compiled(place)

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        self._records.path(call.call_id, call.attempt)  # refuses an id that cannot be recorded
        place = self._folders.find(workspace)
        command = command_line.parse(call.command)
        match command:
            case UsageProblem(message):
                raise RefusedError(message)
            case ReadOutput():
                raise RefusedError("a stored output is not read in a workspace")
            case ShellLine(line):
                launch = await self._launch(call, place, recipe.shell(line), _OPEN)
                return results.of_shell(await self._supervise(launch, call, may_start))
            case _:
                request = results.request(command, self._root_seen(place))
                helper = await self._compiled(place)
                ending = await self._run_program(call, place, helper, request, may_start)
                result = results.of_built_in(ending)
                if result.reason == "sandbox":
                    self._helper = None  # its Python may have been upgraded: compile it again
                return result

    async def copy_into_workspace(self, source: Path, workspace: WorkspaceRef) -> Copied:
        """The managed workspace holds a copy of `source`, owned by who works there.

        Effects: makes the workspace. Links that lead out, sockets and devices stay behind.
        Raises:  RefusedError: it holds something else already, or the source cannot be read.
        """
        if workspace.path is not None:
            raise RefusedError("only a managed workspace can be filled with a copy")

        def copy() -> Copied:
            place = self._folders.prepare(workspace)
            identity = place.identity
            owner = (identity.uid, identity.gid) if identity.is_dropped else None
            return copy_tree(source, place.path, owner, self._own)

        return await asyncio.to_thread(copy)

    async def _compiled(self, place: Place) -> bytes:
        """The compiled helper: ready before the first claim, so that no call waits for it."""
        async with self._compiling:
            if self._helper is None:
                call = ToolCall(CallId(draw()), 1, "", "compile", _COMPILE_MS)
                text = program.helper_compiler()
                ending = await self._run_program(call, place, text, _OPEN, _always)
                if ending.code != 0:
                    said = ending.output.decode(errors="replace")
                    raise RefusedError(f"Python does not run: {said}")
                self._helper = ending.output
            return self._helper

    async def _run_program(
        self,
        call: ToolCall,
        place: Place,
        text: bytes,
        request: bytes,
        may_start: Callable[[], bool],
    ) -> Ending:
        descriptor = sealed("program", text)
        try:
            launch = await self._launch(call, place, self._python(descriptor), request)
        except BaseException:
            os.close(descriptor)
            raise
        whole = replace(launch, descriptors=(*launch.descriptors, descriptor))
        return await self._supervise(whole, call, may_start)

    async def _supervise(
        self, launch: Launch, call: ToolCall, may_start: Callable[[], bool]
    ) -> Ending:
        attempt = (call.call_id, call.attempt)
        bounds = Bounds(call.timeout_ms, self._memory_bytes_max)
        ending = await supervise(launch, attempt, self._records, bounds, may_start=may_start)
        if not ending.is_started:
            said = ending.output.decode(errors="replace").strip()
            raise RefusedError(f"the command could not be started: {said or ending.why}")
        return ending

    def _variables(self, call: ToolCall, home: str) -> dict[str, str]:
        own = {
            "THREADLOG_CALL_ID": call.call_id,
            "THREADLOG_ATTEMPT": str(call.attempt),
            "THREADLOG_IDEMPOTENCY_KEY": call.idempotency_key,
        }
        return recipe.environment(home, own)

    @abstractmethod
    async def _launch(
        self, call: ToolCall, place: Place, inner: tuple[str, ...], request: bytes
    ) -> Launch:
        """What to start so that `inner` runs in `place` once it is given `request`."""

    @abstractmethod
    def _python(self, descriptor: int) -> tuple[str, ...]:
        """The words that run a program behind a descriptor."""

    @abstractmethod
    def _root_seen(self, place: Place) -> str:
        """The workspace's folder as a command sees it."""


class SandboxTools(_LinuxTools):
    """Commands in bubblewrap, each workspace as a uid of its own where the runner is root.

    `workspaces_root`: the managed workspaces, on a path that every user may pass through when the
    runner is root. `state_dir`: run records; it belongs to one runtime.
    """

    def __init__(
        self,
        workspaces_root: Path,
        state_dir: Path,
        *,
        memory_bytes_max: int = limits.SANDBOX_PSS_BYTES_MAX,
        search_path: str = _SEARCH_PATH,
    ) -> None:
        is_root = os.geteuid() == 0
        super().__init__(
            workspaces_root, state_dir, memory_bytes_max=memory_bytes_max, drops_uid=is_root
        )
        self._search_path = search_path

    async def check(self) -> tuple[Finding, ...]:
        return await self_test.of_sandbox(self._folders, self._search_path, self._probe)

    async def _probe(self, place: Place, text: bytes) -> Ending:
        return await self._run_program(self_test.CALL, place, text, _OPEN, _always)

    async def _launch(
        self, call: ToolCall, place: Place, inner: tuple[str, ...], request: bytes
    ) -> Launch:
        texts = {
            "seccomp": await asyncio.to_thread(seccomp.program),
            "passwd": recipe.passwd(place.identity),
            "group": recipe.group(place.identity),
        }
        with ExitStack() as stack:
            made = {}
            for name, text in texts.items():
                made[name] = sealed(name, text)
                stack.callback(os.close, made[name])
            status = Status()
            stack.pop_all()
        descriptors = recipe.Descriptors(status=status.writer, **made)
        argv = recipe.sandboxed(
            inner,
            folder=str(place.path),
            identity=place.identity,
            variables=self._variables(call, recipe.WORKSPACE),
            descriptors=descriptors,
        )
        passed = (status.writer, *made.values())
        return Launch(argv, place.path, {"PATH": self._search_path}, passed, request, status)

    def _python(self, descriptor: int) -> tuple[str, ...]:
        return recipe.python(recipe.PYTHON, descriptor)

    def _root_seen(self, place: Place) -> str:
        return recipe.WORKSPACE


class BareTools(_LinuxTools):
    """Commands with all rights of the runner: for machines that are a sandbox themselves.

    What a command leaves behind is found by its process group and by the mark in its environment;
    a process that clears both stays.
    """

    def __init__(
        self,
        workspaces_root: Path,
        state_dir: Path,
        *,
        memory_bytes_max: int = limits.SANDBOX_PSS_BYTES_MAX,
    ) -> None:
        super().__init__(
            workspaces_root, state_dir, memory_bytes_max=memory_bytes_max, drops_uid=False
        )

    async def check(self) -> tuple[Finding, ...]:
        return self_test.of_bare(_SEARCH_PATH)

    async def _launch(
        self, call: ToolCall, place: Place, inner: tuple[str, ...], request: bytes
    ) -> Launch:
        variables = self._variables(call, str(place.path))
        return Launch(recipe.bare(inner), place.path, variables, (), request, None)

    def _python(self, descriptor: int) -> tuple[str, ...]:
        return recipe.python(sys.executable, descriptor)

    def _root_seen(self, place: Place) -> str:
        return str(place.path)
