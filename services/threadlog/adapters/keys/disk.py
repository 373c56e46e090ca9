"""Private files: read only when nobody else could have written or read them, replaced as a whole.

A file has its new content or its old one, never a part of both: it is written beside itself, made
durable, and renamed. Writers take turns through `FILE.lock`, which stays. A symbolic link is
followed, since mounted secrets are links; what counts is the file behind it, checked once open.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from threadlog import ids
from threadlog.errors import LockedError, RefusedError

# Opening a pipe that somebody put there must not wait for its writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = 0o600


class Identity(NamedTuple):
    """What changes when a file is replaced, written or opened to others."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Identity":
        """The identity of the file that was looked at."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_private(path: Path, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """The content of the file, and what was open while it was read.

    Raises:  FileNotFoundError: there is none. OSError: it cannot be read. RefusedError: others may
             have read or written it, or it is no file of at most `bytes_max`; says what to do.
    """
    with os.fdopen(os.open(path, _READ), "rb") as file:
        found = os.fstat(file.fileno())
        wrong = not_private(found, os.geteuid())
        if wrong is not None:
            raise RefusedError(f"{path} {wrong}")
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise RefusedError(f"{path} is larger than {bytes_max} bytes: it is no file of ours")
    return content, found


def not_private(found: os.stat_result, user: int) -> str | None:
    """Why this is no private file for `user`, with the fix; None: it is one.

    It belongs to the user, or to root; root itself takes anybody's, for it keeps the files of the
    users that services run as. Nobody but its owner may do anything with it, with one exception:
    the group may read a file of root, which is how Kubernetes mounts a secret with an `fsGroup`.
    """
    if not stat.S_ISREG(found.st_mode):
        return "is not a file"
    if user not in (0, found.st_uid) and found.st_uid != 0:
        return "belongs to another user: chown it to the user that runs this"
    is_of_root = found.st_uid == 0
    if stat.S_IMODE(found.st_mode) & ~(0o740 if is_of_root else 0o700):
        fix = "chmod 600 it, or mount it with defaultMode 0440" if is_of_root else "chmod 600 it"
        return f"is open to other users: {fix}"
    return None


@contextlib.contextmanager
def locked(path: Path, *, waits: bool) -> Iterator[Path]:
    """Nobody else changes the file meanwhile; gives where it really lies.

    Effects: makes `FILE.lock` (0600), which stays. Another process ends its change in milliseconds.
    Raises:  LockedError: somebody else holds it and `waits` is False. OSError: it cannot be locked.
    """
    try:
        real = path.resolve()
    except RuntimeError:  # what some versions raise for links in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    beside = real.with_name(f"{real.name}.lock")
    while True:
        descriptor = os.open(beside, _LOCK, _PRIVATE)
        try:
            _flock(descriptor, beside, waits=waits)
            if _is_there(descriptor, beside):
                yield real
                return
        finally:
            os.close(descriptor)


def _flock(descriptor: int, beside: Path, *, waits: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        raise LockedError(f"another process holds {beside}") from None


def _is_there(descriptor: int, path: Path) -> bool:
    """Whether the file that was locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def replace(real: Path, content: bytes, before: os.stat_result | None) -> None:
    """The file has this content, durable. Call it only while it is `locked`.

    Shapes:  `before`: the file as it was, whose owner and mode stay; None: it is new, 0600.
    Raises:  OSError: it could not be written, and is as it was, unless only its name may be lost.
    """
    beside = real.with_name(f".{real.name}.new-{ids.draw()}")
    try:
        with os.fdopen(os.open(beside, _WRITE, _PRIVATE), "wb") as file:
            if before is not None:
                _keep_owner(file.fileno(), before)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(real)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    """Root that revokes a key must not lock the gateway's user out of its file."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    # A mode without the right to write, as of a mounted secret, is a fence for editors: it stays.
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
