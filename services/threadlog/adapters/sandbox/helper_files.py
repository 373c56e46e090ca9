"""One file of the workspace: nothing outside it is reached, and it is replaced whole or not at all.

A path is resolved as text and refused beyond the top; then every part is opened relative to the
descriptor of the part before it and never through a symbolic link, so that nothing swapped in
between is followed. A file is left old or new, never torn: temporary file, fsync, rename, fsync of
the folder. Runs under any Python >= 3.8.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat

_PATH_BYTES_MAX = 4_000
_DEPTH_MAX = 64


class ProblemError(Exception):
    """The request cannot be met; `reason` is one word, `text` is for the model."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class Target:
    """One file of the workspace, known by the descriptor of its folder and its name in it."""

    def __init__(self, path: bytes, root: bytes, *, make: bool) -> None:
        parts = _parts(path, root)
        self.path = b"/".join(parts)
        self.name = parts[-1]
        self.folder = os.open(b".", os.O_PATH | os.O_DIRECTORY)
        for part in parts[:-1]:
            if make:
                _make_folder(part, self.folder)
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
            try:
                inner = os.open(part, flags, dir_fd=self.folder)
            except NotADirectoryError:
                self._refuse_as_folder(part)
                raise
            os.close(self.folder)
            self.folder = inner

    def kind(self) -> int | None:
        """The file type bits, or None when there is no such file."""
        try:
            return self._kind(self.name)
        except FileNotFoundError:
            return None

    def _refuse_as_folder(self, part: bytes) -> None:
        if self._kind(part) == stat.S_IFLNK:
            raise ProblemError(
                "not_regular", f"{show(part)} in it is a symbolic link, not followed"
            )

    def _kind(self, name: bytes) -> int:
        return stat.S_IFMT(os.stat(name, dir_fd=self.folder, follow_symlinks=False).st_mode)


class Content:
    """All bytes of one regular file, from one descriptor."""

    def __init__(self, target: Target, flags: int, bytes_max: int) -> None:
        kind = target.kind()
        if kind is not None:
            _require_regular(kind)
        more = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        with os.fdopen(os.open(target.name, flags | more, dir_fd=target.folder), "rb") as file:
            self.stat = os.fstat(file.fileno())
            _require_regular(self.stat.st_mode)
            is_small = self.stat.st_size <= bytes_max
            self.bytes = file.read(bytes_max + 1) if is_small else b""
        size = max(self.stat.st_size, len(self.bytes))
        if size > bytes_max:
            why = f"it has {size} bytes, more than {bytes_max}; use head, tail or sed"
            raise ProblemError("too_large", why)
        self.sha256 = sha256(self.bytes)


def replace(target: Target, before: Content | None, data: bytes) -> str:
    """Put `data` in the file's place, whole or not at all; a text when it may not last."""
    temporary = b".threadlog-" + sha256(target.name)[:12].encode() + b".tmp"
    try:
        file = _create(temporary, target.folder)
        try:
            _fill(file, before, data)
        finally:
            os.close(file)
        if _now(target) != (_identity(before.stat) if before else None):
            raise ProblemError("stale", "it changed while it was being written; read it again")
        os.rename(temporary, target.name, src_dir_fd=target.folder, dst_dir_fd=target.folder)
    except BaseException:
        _remove(temporary, target.folder)
        raise
    try:  # the descriptor ends with the program
        os.fsync(os.open(b".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=target.folder))
    except OSError as error:
        return f"the new content is in place, but the disk did not confirm it: {error.strerror}\n"
    return ""


def sha256(data: bytes) -> str:
    """The hash of `data` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def show(path: bytes) -> str:
    """A path as text for the model."""
    return path.decode(errors="replace")


def _create(name: bytes, folder: int) -> int:
    """A new file; what a killed call left under the same name is removed first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, 0o666, dir_fd=folder)
    except FileExistsError:
        _remove(name, folder)
        return os.open(name, flags, 0o666, dir_fd=folder)


def _give(file: int, uid: int, gid: int) -> None:
    """The owner and group of before, where they can be given: in here most ids do not exist."""
    try:
        os.fchown(file, uid, gid)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise


def _fill(file: int, before: Content | None, data: bytes) -> None:
    if before is not None:
        if (before.stat.st_uid, before.stat.st_gid) != (os.geteuid(), os.getegid()):
            _give(file, before.stat.st_uid, before.stat.st_gid)
        os.fchmod(file, stat.S_IMODE(before.stat.st_mode) & 0o777)
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)


def _remove(name: bytes, folder: int) -> None:
    try:  # noqa: SIM105  # importing contextlib costs 3 ms of each call
        os.unlink(name, dir_fd=folder)
    except OSError:
        pass  # it was never made


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _now(target: Target) -> tuple[int, ...] | None:
    try:
        return _identity(os.stat(target.name, dir_fd=target.folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _parts(path: bytes, root: bytes) -> list[bytes]:
    """The parts below the workspace; an absolute path is taken when it lies below `root`."""
    outside = ProblemError("outside_workspace", "it lies outside the workspace")
    if len(path) > _PATH_BYTES_MAX:
        raise ProblemError("name_too_long", f"the path has {len(path)} bytes")
    if path.startswith(b"/"):
        if not path.startswith(root + b"/"):
            raise outside
        path = path[len(root) :]
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            if not parts:
                raise outside
            parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    if len(parts) > _DEPTH_MAX:
        raise ProblemError("name_too_long", f"it lies {len(parts)} folders deep")
    if not parts or path.endswith((b"/", b"/.", b"/..")):
        _require_regular(stat.S_IFDIR)
    return parts


def _make_folder(name: bytes, parent: int) -> None:
    try:  # noqa: SIM105  # importing contextlib costs 3 ms of each call
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        pass


def _require_regular(mode: int) -> None:
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFREG:
        return
    names = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link, which is not followed"}
    raise ProblemError("not_regular", f"it is {names.get(kind, 'no regular file')}")
