"""Where a thread works: managed folders of ours, and folders that a person attached.

A managed folder is `ROOT/TENANT/THREAD`, 0700, below parents that are 0711. Where the runner is
root each has a uid of its own from `UID_FIRST` on, remembered by who owns the folder. A folder that
was made once and is gone, or is no folder any more, is refused: a new one needs an event.
"""

import fcntl
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from threadlog import ids
from threadlog.adapters.sandbox.recipe import Identity
from threadlog.errors import RefusedError
from threadlog.ports.tools import WorkspaceRef

UID_FIRST = 1_900_000_000
"""Above what systemd gives to containers (up to 0x6fffffff), below 2^31."""
UID_COUNT = 1_000_000
_COPY_HINT = "use --copy to work on a copy in a managed workspace"
_PARENT_MODE = 0o711


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that exists, and who works in it."""

    path: Path
    identity: Identity


class Folders:
    """Finds and makes workspaces. Blocking: a few system calls each, more when one is made.

    `own`: folders of the runtime itself, which no command may reach.
    """

    def __init__(self, root: Path, own: tuple[Path, ...], *, drops_uid: bool) -> None:
        self._root = root
        self._own = (root, *own)
        self._drops = drops_uid

    def prepare(self, workspace: WorkspaceRef) -> Place:
        """The workspace exists, can be used, and has room.

        Raises:  RefusedError: it cannot be used; the message says why and what to do.
        """
        if workspace.path is None:
            path = self._managed(workspace)
            if not self._marker(path).exists():
                self.make(path)
        place = self.find(workspace)
        room = os.statvfs(place.path)
        if room.f_bavail == 0 or (room.f_files and room.f_favail == 0):
            raise RefusedError(f"no_space: the file system of the workspace {place.path} is full")
        return place

    def find(self, workspace: WorkspaceRef) -> Place:
        """The workspace as it is now; nothing is made."""
        if workspace.path is None:
            return self._owned(self._managed(workspace))
        return self._attached(workspace.path)

    def make(self, path: Path) -> None:
        """A new managed folder with its uid, or the end of making one; marked as made.

        Raises:  RefusedError: it cannot be made, or something else lies there.
        """
        try:
            self._make(path)
        except OSError as error:
            raise RefusedError(f"the workspace {path} cannot be made: {error.strerror}") from error

    def _make(self, path: Path) -> None:
        with self._locked():
            path.parent.mkdir(exist_ok=True)
            path.parent.chmod(_PARENT_MODE)
            if not path.is_symlink() and not path.exists():
                path.mkdir(mode=0o700)
            is_new = path.lstat().st_uid == os.geteuid() and not any(_folder_entries(path))
            if self._drops and is_new:
                uid = self._free_uid()
                os.chown(path, uid, uid, follow_symlinks=False)
            self._marker(path).touch()

    def scratch(self) -> Place:
        """An own folder for the self-test, under a name that no tenant has."""
        path = self._root / ".self-test" / "scratch"
        self.make(path)
        return self._owned(path)

    def _managed(self, workspace: WorkspaceRef) -> Path:
        if not ids.is_tenant(workspace.tenant_id) or not ids.is_uuid(workspace.thread_id):
            raise RefusedError("the tenant or thread id cannot name a workspace")
        return self._root / workspace.tenant_id / workspace.thread_id

    def _marker(self, path: Path) -> Path:
        return path.with_suffix(".made")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One runner at a time gives out uids below this root."""
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(_PARENT_MODE)
        lock = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _free_uid(self) -> int:
        used = {entry.lstat().st_uid for entry in self._root.glob("*/*")}
        for uid in range(UID_FIRST + 1, UID_FIRST + UID_COUNT):
            if uid not in used:
                return uid
        raise RefusedError(f"all {UID_COUNT} uids are in use: remove workspaces below {self._root}")

    def _owned(self, path: Path) -> Place:
        found = _folder(path)
        if not self._drops:
            if found.st_uid != os.geteuid():
                raise RefusedError(f"{path} belongs to another user (uid {found.st_uid})")
            return Place(path, Identity(os.geteuid(), os.getegid(), is_dropped=False))
        if not UID_FIRST <= found.st_uid < UID_FIRST + UID_COUNT:
            raise RefusedError(
                f"{path} was made without a sandbox (uid {found.st_uid}); remove it, or copy it"
            )
        identity = Identity(found.st_uid, found.st_uid, is_dropped=True)
        barrier = barrier_to(path, identity)
        if barrier is not None:
            raise RefusedError(
                f"uid {identity.uid} cannot pass through {barrier} to the workspace; keep the data "
                f"where every user may pass, such as /var/lib/threadlog, or chmod o+x {barrier}"
            )
        return Place(path, identity)

    def _attached(self, path: Path) -> Place:
        if not path.is_absolute():
            raise RefusedError(f"the workspace {path} is not an absolute path")
        found = _folder(path)
        real = path.resolve()
        for own in self._own:
            if own.resolve().is_relative_to(real):
                raise RefusedError(f"{path} holds Threadlog's own data ({own}); {_COPY_HINT}")
        if not self._drops:
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                raise RefusedError(f"{path} cannot be read and written; {_COPY_HINT}")
            return Place(path, Identity(os.geteuid(), os.getegid(), is_dropped=False))
        if found.st_uid == 0:
            raise RefusedError(
                f"{path} belongs to root, whose rights no command gets; {_COPY_HINT}"
            )
        identity = Identity(found.st_uid, _group_of(found.st_uid), is_dropped=True)
        barrier = barrier_to(real, identity)
        if barrier is not None:
            raise RefusedError(f"its owner cannot pass through {barrier}; {_COPY_HINT}")
        return Place(path, identity)


def barrier_to(path: Path, identity: Identity) -> Path | None:
    """The topmost parent that the identity may not pass through, or None."""
    for parent in reversed(path.parents):
        found = parent.stat()
        if found.st_uid == identity.uid:
            may_pass = found.st_mode & stat.S_IXUSR
        elif found.st_gid == identity.gid:
            may_pass = found.st_mode & stat.S_IXGRP
        else:
            may_pass = found.st_mode & stat.S_IXOTH
        if not may_pass:
            return parent
    return None


def _folder(path: Path) -> os.stat_result:
    try:
        found = path.lstat()
    except OSError as error:
        raise RefusedError(
            f"the workspace {path} is gone or out of reach: {error.strerror}"
        ) from error
    if stat.S_ISLNK(found.st_mode):
        raise RefusedError(f"the workspace {path} is a symbolic link; name the folder itself")
    if not stat.S_ISDIR(found.st_mode):
        raise RefusedError(f"the workspace {path} is no folder")
    return found


def _folder_entries(path: Path) -> Iterator[Path]:
    _folder(path)
    return path.iterdir()


def _group_of(uid: int) -> int:
    """The user's own group; never root's, and never the folder's, which may be a powerful one."""
    try:
        return pwd.getpwuid(uid).pw_gid or uid
    except KeyError:
        return uid
