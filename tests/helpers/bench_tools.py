"""A workspace with its tools, and what the tests ask of both."""

import asyncio
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from threadlog.adapters.sandbox.records import of_call
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools
from threadlog.ids import LOCAL_TENANT, CallId, ThreadId, WorkspaceId
from threadlog.limits import SANDBOX_PSS_BYTES_MAX
from threadlog.ports.tools import ToolCall, ToolResult, WorkspaceRef

FOREIGN_UID = 1_950_000_001
"""Some user who is not the runner, outside the range of managed workspaces."""


class Bench:
    """One managed workspace, below a folder that every user may pass through."""

    compiled: ClassVar[dict[str, bytes | None]] = {}
    """The helper that an earlier bench has compiled; each would give the same."""

    def __init__(
        self,
        kind: type[SandboxTools] | type[BareTools],
        top: Path,
        memory_bytes_max: int = SANDBOX_PSS_BYTES_MAX,
    ) -> None:
        self.root, self.state = top / "workspaces", top / "state"
        self.tools = kind(self.root, self.state, memory_bytes_max=memory_bytes_max)
        self.tools._helper = self.compiled.get(kind.__name__)
        self.workspace = self.managed("main")
        self.calls: list[CallId] = []

    def managed(self, name: str) -> WorkspaceRef:
        """The managed workspace of a thread that is called `name` here."""
        thread = ThreadId(str(uuid.uuid5(uuid.NAMESPACE_OID, name)))
        return WorkspaceRef(WorkspaceId(name), LOCAL_TENANT, thread, None)

    def attached(self, path: Path) -> WorkspaceRef:
        """A folder of a person as workspace."""
        return WorkspaceRef(WorkspaceId("attached"), LOCAL_TENANT, self.workspace.thread_id, path)

    @property
    def folder(self) -> Path:
        """Where the managed workspace lies on this machine."""
        return self.root / self.workspace.tenant_id / self.workspace.thread_id

    def put(self, name: str, content: bytes, mode: int = 0o644) -> Path:
        """A file in the workspace, owned like the workspace."""
        path = self.folder / name
        path.write_bytes(content)
        self.own(path)
        path.chmod(mode)
        return path

    def own(self, path: Path) -> None:
        """What the test made belongs to who works here."""
        found = self.folder.stat()
        os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)

    def call(self, line: str, timeout_ms: int = 10_000) -> ToolCall:
        """A call of its own."""
        call_id = CallId(str(uuid.uuid4()))  # noqa: TID251  # marks processes of this run only
        self.calls.append(call_id)
        return ToolCall(call_id, 1, line, f"key-{call_id}", timeout_ms)

    async def run(
        self,
        line: str,
        *,
        timeout_ms: int = 10_000,
        workspace: WorkspaceRef | None = None,
        may_start: Callable[[], bool] = lambda: True,
    ) -> ToolResult:
        """What comes of the line."""
        call = self.call(line, timeout_ms)
        result = await self.tools.run(call, workspace or self.workspace, may_start=may_start)
        self.compiled[type(self.tools).__name__] = self.tools._helper
        return result

    async def text(self, line: str) -> str:
        """The output of a line that succeeds."""
        result = await self.run(line)
        assert result.outcome == "ok", result
        return result.output.decode()

    async def hash_of(self, name: str) -> str:
        """The hash that `read` prints."""
        return (await self.text(f"read {name}")).splitlines()[0].partition("hash ")[2].split()[0]

    def alive(self) -> int:
        """How many processes of its calls are alive."""
        return sum(alive(call_id) for call_id in self.calls)

    def records(self) -> list[str]:
        """The run records there are."""
        return sorted(path.name for path in self.state.iterdir())


def alive(call_id: str) -> int:
    """How many processes of the call there are, bubblewrap's own included."""
    found = of_call(call_id)
    for descriptor in found:
        os.close(descriptor)
    return len(found)


def is_gone(call_id: str) -> bool:
    """Whether no process of the call is alive."""
    return alive(call_id) == 0


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for a fact, with a deadline."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
