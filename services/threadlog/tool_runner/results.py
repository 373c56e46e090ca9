"""One attempt of a call: what it needs, what came of it, and its content in the blob store."""

from dataclasses import dataclass

from threadlog.events.content import BlobRef
from threadlog.events.tool import Outcome, ToolFinished
from threadlog.ids import TenantId
from threadlog.ports.blobs import Blobs
from threadlog.ports.tools import FileChange, FileSide, ToolCall, ToolResult, WorkspaceRef
from threadlog.runtime.patience import patiently
from threadlog.tool_runner.output import inline_output


@dataclass(frozen=True, slots=True)
class Job:
    """What a claim of a call needs to become an effect."""

    call: ToolCall
    workspace: WorkspaceRef
    problem: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of an attempt, its content already in the blob store."""

    outcome: Outcome
    output: str
    reason: str | None = None
    output_blob: BlobRef | None = None
    output_bytes: int = 0
    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int = 0
    changes: tuple[tuple[str, BlobRef | None, BlobRef | None], ...] = ()


async def output_of(blobs: Blobs, tenant: TenantId, body: ToolFinished) -> bytes | None:
    """The whole output of a finished call, None when it is not to be had any more."""
    if body.output_blob is not None:
        return await blobs.get(tenant, body.output_blob.sha256)
    return body.output.encode() if isinstance(body.output, str) else None


async def store_result(
    blobs: Blobs, tenant: TenantId, job: Job, result: ToolResult, duration_ms: int
) -> Ended:
    """The result, its content in the store before the events that refer to it."""
    text, is_long = inline_output(result.output, result.output_bytes, job.call.call_id)
    contents = [(result.output, "text/plain")] if is_long else []
    sides = [side for change in result.changes for side in (change.before, change.after)]
    contents += [
        (side.content, "application/octet-stream")
        for side in sides
        if side is not None and side.content is not None
    ]
    blob = None
    if contents:
        refs = await patiently(lambda: blobs.put(tenant, contents))
        blob = refs[0] if is_long else None
    return Ended(
        outcome=result.outcome,
        output=text,
        reason=result.reason,
        output_blob=blob,
        output_bytes=result.output_bytes,
        exit_code=result.exit_code,
        signal=result.signal,
        duration_ms=duration_ms,
        changes=tuple(map(_change, result.changes)),
    )


def _change(change: FileChange) -> tuple[str, BlobRef | None, BlobRef | None]:
    return change.path, _ref(change.before), _ref(change.after)


def _ref(side: FileSide | None) -> BlobRef | None:
    if side is None:
        return None
    return BlobRef(sha256=side.sha256, bytes=side.bytes, media_type="application/octet-stream")
