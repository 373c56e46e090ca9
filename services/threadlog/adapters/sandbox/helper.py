"""`read`, `write` and `edit`: the program that runs inside the sandbox, in the workspace's folder.

It runs alone, under any Python >= 3.8 with the standard library only; `program` sends it there
together with the modules it imports. It does nothing unless its whole request has arrived.
"""

from __future__ import annotations

import errno
import os
import sys

from threadlog.adapters.sandbox.helper_files import (
    Content,
    ProblemError,
    Target,
    replace,
    sha256,
    show,
)
from threadlog.adapters.sandbox.helper_frames import pack, unpack
from threadlog.adapters.sandbox.helper_lines import Lines, with_lines, with_text

_HASH_SHOWN = 16
_REGION_LINES = 12
_PLAIN = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:,-")


def _read(request: dict[str, bytes]) -> dict[str, bytes]:
    target = Target(request["path"], request["root"], make=False)
    content = Content(target, os.O_RDONLY, int(request["bytes_max"]))
    text = Lines(content.bytes)
    count = len(text.lines)
    first = int(request["first"])
    last = min(int(request["last"]) if request["last"] else count, count)
    if first > max(count, 1):
        raise ProblemError("range", f"it has {count} lines")
    rows, end = text.shown(first, last, int(request["window_bytes"]))
    span = f"lines {first}-{end} of {count}" if rows else "no lines"
    head = f"{show(target.path)}: {span}, {_hash_text(content.sha256)}{text.notes()}"
    tail = []
    if end < count:
        wish = f":{last}" if request["last"] and end < last else ""
        tail = [f"[read on: read {_quoted(target.path)} {end + 1}{wish}]"]
    return _reply("\n".join([head, *rows, *tail]) + "\n")


def _write(request: dict[str, bytes]) -> dict[str, bytes]:
    target = Target(request["path"], request["root"], make=True)
    before = None
    if target.kind() is not None:
        before = Content(target, os.O_RDWR, int(request["bytes_max"]))
    after = request["content"]
    size = f"{len(after)} bytes, {_hash_text(sha256(after))}\n"
    if before is not None and before.bytes == after:
        return _reply(f"{show(target.path)} is so already: {size}")
    problem = replace(target, before, after)
    verb = "made" if before is None else "replaced"
    text = f"{verb} {show(target.path)}: {size}"
    return {**_reply(text, problem), **_sides(request, target, before, after)}


def _edit(request: dict[str, bytes]) -> dict[str, bytes]:
    target = Target(request["path"], request["root"], make=False)
    before = Content(target, os.O_RDWR, int(request["bytes_max"]))
    if not before.sha256.startswith(request["base"].decode()):
        raise ProblemError(
            "stale", f"it changed since it was read; now {_hash_text(before.sha256)}: read it again"
        )
    text = Lines(before.bytes)
    if "old" in request:
        at, body = with_text(text, text.adapted(request["old"]), text.adapted(request["new"]))
    else:
        first, last = int(request["first"]), int(request["last"])
        at, body = first, with_lines(text, first, last, text.adapted(request["text"]))
    after = text.bom + body
    if after == before.bytes:
        raise ProblemError("no_change", "the edit would change nothing")
    if len(after) > int(request["bytes_max"]):
        raise ProblemError("too_large", f"it would have {len(after)} bytes")
    now = Lines(after)
    problem = replace(target, before, after)
    end = min(at + _REGION_LINES, len(now.lines))
    rows, _ = now.shown(max(at - 1, 1), end, int(request["window_bytes"]))
    head = f"edited {show(target.path)}: {len(now.lines)} lines, {_hash_text(sha256(after))}"
    reply = _reply("\n".join([head, *rows]) + "\n", problem)
    return {**reply, **_sides(request, target, before, after)}


def _hash_text(digest: str) -> str:
    return f"hash {digest[:_HASH_SHOWN]}"


def _quoted(path: bytes) -> str:
    if set(path) <= _PLAIN and not path.startswith((b"-", b"@")):
        return show(path)
    lead = "-- " if path.startswith((b"-", b"@")) else ""
    return lead + "'" + show(path).replace("'", "'\\''") + "'"


def _reply(text: str, problem: str = "") -> dict[str, bytes]:
    reason = b"io" if problem else b""
    return {"reason": reason, "text": (text + problem).encode()}


def _sides(
    request: dict[str, bytes], target: Target, before: Content | None, after: bytes
) -> dict[str, bytes]:
    """The change for the log: hash and size of both sides, and content that is small enough."""
    found = {"path": target.path}
    for side, data in (("before", before.bytes if before else None), ("after", after)):
        if data is not None:
            found[f"{side}_sha256"] = sha256(data).encode()
            found[f"{side}_bytes"] = b"%d" % len(data)
            if len(data) <= int(request["kept_bytes_max"]):
                found[f"{side}_content"] = data
    return found


_REASONS = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EFBIG: "too_large",
    errno.ENAMETOOLONG: "name_too_long",
    errno.ELOOP: "not_regular",
}
_OPERATIONS = {b"read": _read, b"write": _write, b"edit": _edit}


def main() -> int:
    """Serve the one request on standard input; without a whole request do nothing."""
    request = unpack(sys.stdin.buffer.read())
    try:
        reply = _OPERATIONS[request["operation"]](request)
    except ProblemError as error:
        reply = _failed(request, error.reason, error.text)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, "io")
        reply = _failed(request, reason, error.strerror or str(error))
    sys.stdout.buffer.write(pack(reply))
    return 0


def _failed(request: dict[str, bytes], reason: str, text: str) -> dict[str, bytes]:
    line = f"{show(request['operation'])} {show(request['path'])}: {text}\n"
    return {"reason": reason.encode(), "text": line.encode()}
