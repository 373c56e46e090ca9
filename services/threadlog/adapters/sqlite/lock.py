"""The lock of an embedded file: one running runtime, and a note of who that is.

`FILE.lock` is held with flock, which the kernel lets go when the process ends, however it ends. The
lock file stays, for its identity is what is locked; what it says is only a note of the last holder
and may be about a dead one. Children do not inherit the lock (the descriptor closes on exec).
"""

import fcntl
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from threadlog.errors import LockedError, RefusedError

_NOTE_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock. `socket`, `address`: where it can be reached, None: not yet, or not so.

    Shapes:  `started_at` is RFC 3339 text; `token_file` the path of the token that it asks for.
    """

    pid: int
    instance: str
    started_at: str
    socket: str | None = None
    address: str | None = None
    token_file: str | None = None


def token_path(file: Path) -> Path:
    """Where the token of the runtime on `file` lies."""
    return file.with_name(f"{file.name}.token")


class FileLock:
    """The right of this process to write `file`, once `acquire` has returned."""

    def __init__(self, file: Path) -> None:
        self._path = lock_path(file)
        self._descriptor: int | None = None

    def acquire(self, holder: Holder) -> None:
        """This process holds the lock and the note names it. Does not wait.

        Effects: makes the lock file (0600) and its folder (0700) where they are missing.
        Raises:  LockedError: another process holds it; the message says which, as far as is known.
                 RefusedError: the lock file cannot be opened.
        """
        assert self._descriptor is None, "held already"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise RefusedError(f"cannot open {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise LockedError(_held_by(self._path, _read(self._path))) from error
        except OSError as error:
            os.close(descriptor)
            raise RefusedError(f"cannot lock {self._path}: {error.strerror}") from error
        self._descriptor = descriptor
        if not self.is_held():
            self.release()
            raise LockedError(f"{self._path} was replaced in this moment: try again")
        self.announce(holder)

    def is_held(self) -> bool:
        """Whether the file that this process locked is still the lock file of that path.

        False: somebody removed or replaced it, and another process may hold the new one.
        """
        if self._descriptor is None:
            return False
        ours = os.fstat(self._descriptor)
        try:
            there = self._path.stat()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def announce(self, holder: Holder) -> None:
        """The note says `holder` from now on: the socket is known only after the lock is held."""
        assert self._descriptor is not None, "not held"
        note = orjson.dumps(asdict(holder)) + b"\n"
        assert len(note) <= _NOTE_BYTES_MAX
        # One write, then the cut: a reader in between sees the new line and the old one's rest.
        os.pwrite(self._descriptor, note, 0)
        os.ftruncate(self._descriptor, len(note))

    def release(self) -> None:
        """Another process may have the lock. Releasing twice is harmless."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def lock_path(file: Path) -> Path:
    """`FILE.lock`, beside the file that symbolic links lead to: one file, one lock."""
    real = file.resolve()
    return real.with_name(f"{real.name}.lock")


def read_holder(file: Path) -> Holder | None:
    """The note in the lock file of `file`; None when there is none that can be understood.

    It tells whom to ask, not whether they live: connect to the socket, or try to `acquire`.
    """
    return _read(lock_path(file))


def is_open_in(holder: Holder, file: Path) -> bool:
    """Whether the process of this note lives and has the lock file open; in doubt, it does.

    The lock itself is not tried: whoever starts in that moment would be refused.
    """
    path = lock_path(file)
    try:
        opened = [found.resolve() for found in Path(f"/proc/{holder.pid}/fd").iterdir()]
    except PermissionError:
        return True
    except OSError:
        return False
    return path in opened


def _read(path: Path) -> Holder | None:
    try:
        with path.open("rb") as opened:
            note = orjson.loads(opened.read(_NOTE_BYTES_MAX).partition(b"\n")[0])
        texts = {
            name: value
            for name in ("socket", "address", "token_file")
            if isinstance(value := note.get(name), str)
        }
        return Holder(
            int(note["pid"]), str(note["instance"]), str(note.get("started_at", "")), **texts
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _held_by(path: Path, holder: Holder | None) -> str:
    if holder is None:
        return f"another runtime holds {path}"
    where = f", socket {holder.socket}" if holder.socket else ""
    return (
        f"another runtime holds {path}: process {holder.pid}, instance {holder.instance}, "
        f"since {holder.started_at}{where}"
    )
