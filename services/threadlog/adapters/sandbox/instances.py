"""Run records of several runners on one machine: a folder for each, and who cleans up after whom.

A runner holds a lock in its folder as long as it lives. Whoever starts ends what runners without
that lock have left running, before any claim of theirs is settled.
"""

import fcntl
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from threadlog.adapters.sandbox.records import RunRecords
from threadlog.errors import RefusedError

_LOCK = "lock"
_HIDDEN = "."
"""A folder that is being made; no command was started from it yet."""


class RunnerFolder:
    """The folder of one living runner. Made by `claim`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def claim(cls, root: Path, instance: str) -> "RunnerFolder":
        """The folder of `instance` exists, and its lock is held until the process ends.

        Raises:  RefusedError: it cannot be made, or is there already.
        """
        path, hidden = root / instance, root / f"{_HIDDEN}{instance}"
        with ExitStack() as undo:
            try:
                hidden.mkdir(mode=0o700, parents=True)
                undo.callback(shutil.rmtree, hidden, ignore_errors=True)
                lock = _locked(hidden)
                undo.callback(os.close, lock)
                # Others see it only with its lock: without one it would be a dead runner's.
                hidden.rename(path)
            except OSError as error:
                raise RefusedError(f"{path} cannot be made: {error.strerror}") from error
            undo.pop_all()
        return cls(path, lock)

    async def settle_others(self) -> None:
        """Nothing runs any more that a runner which is gone has started on this machine.

        Raises:  RefusedError: a process would not end.
        """
        for path in sorted(self.path.parent.iterdir()):
            if path == self.path or path.name.startswith(_HIDDEN) or not path.is_dir():
                continue
            try:
                lock = _locked(path)
            except OSError:
                continue  # it lives, or another one cleans up right now
            try:
                await RunRecords(path).settle()
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)

    def release(self) -> None:
        """The runner is gone, and left nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock of this folder. Raises OSError when somebody else does."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock
