"""The local socket of a runtime: where it lies, and that nobody else can put one there."""

import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from threadlog.errors import RefusedError
from threadlog.settings import Settings

_BACKLOG = 64
_PATH_BYTES_MAX = 100
"""Linux takes 107 bytes, other systems 103."""


def socket_path(settings: Settings, file: Path) -> Path:
    """The socket of the runtime on `file`.

    Effects: makes its folder, for this user alone.
    Raises:  RefusedError: the folder belongs to somebody else, or others may write it; it cannot be
             made; or it lies so deep that no socket can lie in it.
    """
    folder = settings.socket_folder() or Path(tempfile.gettempdir()) / f"threadlog-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise RefusedError(
            f"cannot make {folder} for the socket: {error.strerror}; set TMPDIR to a folder that "
            "this user may write"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise RefusedError(f"{folder} is not a private folder of this user: remove it")
    name = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]
    path = folder / f"{name}.sock"
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        raise RefusedError(f"{path} is too long for a socket: set TMPDIR to a shorter folder")
    return path


def listen(path: Path) -> socket.socket:
    """A socket that listens at `path`, mode 0600. Call it only while the file's lock is held."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
