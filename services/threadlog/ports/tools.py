"""The tools port: run one command line in a thread's workspace, in a sandbox that fails closed."""

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from threadlog.ids import CallId, TenantId, ThreadId, WorkspaceId


@dataclass(frozen=True, slots=True)
class WorkspaceRef:
    """Where a call works.

    Shapes:  `path` None: a managed folder, found from tenant and thread; else the attached folder.
    """

    workspace_id: WorkspaceId
    tenant_id: TenantId
    thread_id: ThreadId
    path: Path | None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One attempt of one call.

    Shapes:  `idempotency_key` is equal on every attempt of a call and differs between calls; the
             command finds it in `THREADLOG_IDEMPOTENCY_KEY`.
    Units:   `timeout_ms` milliseconds from the start of the command.
    """

    call_id: CallId
    attempt: int
    command: str
    idempotency_key: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class FileSide:
    """One file before or after a change. `content` None: too large to keep, only hash and size."""

    sha256: str
    bytes: int
    content: builtins.bytes | None


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that the call changed; `path` is relative to the workspace, with `/`."""

    path: str
    before: FileSide | None
    after: FileSide | None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call that started.

    Shapes:  `output` holds stdout and stderr as they came, up to `limits.OUTPUT_BYTES_MAX`;
             `output_bytes` counts all of it. `exit_code` None: killed by `signal`, or no exit.
             `reason`: a word for `error` and `timeout`, such as `exit`, `signal`, `no_space`,
             `sandbox`, `memory`.
    """

    outcome: Literal["ok", "error", "timeout", "unknown"]
    output: bytes
    output_bytes: int
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    changes: tuple[FileChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a self-test: `fix` says what to do, empty when `level` is `ok`."""

    level: Literal["ok", "warn", "fail"]
    check: str
    evidence: str
    fix: str = ""


class Tools(Protocol):
    """Runs commands. Nothing outside an implementation opens a path of a workspace."""

    async def check(self) -> tuple[Finding, ...]:
        """The self-test: can commands be run here, and is the sandbox tight?

        Effects: starts and ends processes.
        """
        ...

    async def settle_orphans(self) -> None:
        """No process that an earlier life of this runtime started is alive any more.

        Effects: kills recorded process groups that still live (checked by pid and start time).
        """
        ...

    async def prepare(self, workspace: WorkspaceRef) -> None:
        """The workspace exists and can be used; called before the claim.

        Effects: makes a managed folder; what every call needs is made ready.
        Raises:  RefusedError: it cannot be used; the message says why and what to do.
        """
        ...

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        """The command ran and its whole process tree is gone.

        Shapes:  `may_start` is asked once and last: when all stands ready, with nothing between its
                 answer and the start of the command.
        Effects: whatever the command does, at most once. When the awaiting task is cancelled the
                 whole process tree is killed and reaped before CancelledError goes on.
        Raises:  RefusedError: nothing was started.
                 LateError: `may_start` said no; nothing of the command ran, and nothing is left.
        """
        ...
