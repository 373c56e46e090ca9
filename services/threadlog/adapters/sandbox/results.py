"""From lines to requests of the helper, and from what ended back to results."""

from typing import Literal, assert_never

from threadlog import limits
from threadlog.adapters.sandbox import helper_frames
from threadlog.adapters.sandbox.supervise import Ending
from threadlog.ports.tools import FileChange, FileSide, ToolResult
from threadlog.thread.command_line import Edit, Read, ReplaceLines, ReplaceText, Write

_FAILED_EXIT = 1


def request(command: Read | Write | Edit, root: str) -> bytes:
    """What the helper reads. `root`: the workspace's folder as the command sees it."""
    fields = {
        "root": root,
        "path": command.path,
        "bytes_max": str(limits.FILE_BYTES_MAX),
        "kept_bytes_max": str(limits.FILE_KEPT_BYTES_MAX),
        "window_bytes": str(limits.READ_WINDOW_BYTES),
        **_own_fields(command),
    }
    return helper_frames.pack({key: value.encode() for key, value in fields.items()})


def of_shell(ending: Ending) -> ToolResult:
    """The result of a shell line."""
    outcome, reason = _judged(ending)
    return ToolResult(
        outcome=outcome,
        output=ending.output,
        output_bytes=ending.output_bytes,
        exit_code=ending.code,
        signal=ending.signal,
        reason=reason,
    )


def of_built_in(ending: Ending) -> ToolResult:
    """The result of a built-in; a helper that failed itself is a failure of the sandbox."""
    outcome, reason = _judged(ending)
    if outcome == "ok":
        answered = _answered(ending.output)
        if answered is not None:
            return answered
    if outcome in ("ok", "error") and reason != "memory":
        outcome, reason = "error", "sandbox"
    return ToolResult(outcome, ending.output, ending.output_bytes, reason=reason)


def _judged(
    ending: Ending,
) -> tuple[Literal["ok", "error", "timeout", "unknown"], str | None]:
    """(outcome, reason). A sandbox that ended without telling the command's end has failed."""
    if not ending.is_gone:
        return "unknown", "unkillable"
    if ending.why == "timeout":
        return "timeout", "deadline"
    if ending.why == "memory":
        return "error", "memory"
    if ending.signal is not None:
        return "error", "signal"
    if ending.code is None:
        return "error", "sandbox"
    return ("error", "exit") if ending.code else ("ok", None)


def _own_fields(command: Read | Write | Edit) -> dict[str, str]:
    match command:
        case Read(_, first, last):
            text = "" if last is None else str(last)
            return {"operation": "read", "first": str(first), "last": text}
        case Write(_, content):
            return {"operation": "write", "content": content}
        case Edit(_, base, change):
            return {"operation": "edit", "base": base, **_change_fields(change)}
        case _:
            assert_never(command)


def _change_fields(change: ReplaceText | ReplaceLines) -> dict[str, str]:
    match change:
        case ReplaceText(old, new):
            return {"old": old, "new": new}
        case ReplaceLines(first, last, text):
            return {"first": str(first), "last": str(last), "text": text}
        case _:
            assert_never(change)


def _answered(reply: bytes) -> ToolResult | None:
    """What the helper answered, or None when that is no whole reply."""
    try:
        fields = helper_frames.unpack(reply)
        reason = fields["reason"].decode()
        text = fields["text"]
        change = _change(fields)
    except (ValueError, KeyError):
        return None
    return ToolResult(
        outcome="error" if reason else "ok",
        output=text,
        output_bytes=len(text),
        exit_code=_FAILED_EXIT if reason else 0,
        reason=reason or None,
        changes=(change,) if change else (),
    )


def _change(fields: dict[str, bytes]) -> FileChange | None:
    if "path" not in fields:
        return None
    before, after = (_side(fields, side) for side in ("before", "after"))
    return FileChange(fields["path"].decode(), before, after)


def _side(fields: dict[str, bytes], side: str) -> FileSide | None:
    if f"{side}_sha256" not in fields:
        return None
    return FileSide(
        sha256=fields[f"{side}_sha256"].decode(),
        bytes=int(fields[f"{side}_bytes"]),
        content=fields.get(f"{side}_content"),
    )
