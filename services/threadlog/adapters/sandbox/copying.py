"""A copy of a folder for `run --copy`, made by the runner without following a link.

Folders, regular files and links that stay inside are copied; sockets, devices, FIFOs and links that
lead out are counted and left behind. The source is opened part by part, never through a symbolic
link, so that a source that changes meanwhile leads nowhere else. Set-uid bits are dropped.
"""

import hashlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from threadlog.errors import RefusedError

_CHUNK_BYTES = 1024 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied. `skipped`: relative paths that were not, in order."""

    files: int
    bytes: int
    skipped: tuple[str, ...]


def copy_tree(
    source: Path, target: Path, owner: tuple[int, int] | None, without: tuple[Path, ...]
) -> Copied:
    """`target`, an existing empty folder, is a copy of `source`; or it was one already.

    Shapes:  `owner`: uid and gid of all that is made, None: the runner's own. `without`: folders
             that are left out, such as the one that the target lies in.
    Effects: made beside the target and moved there whole, so that half a copy is never used.
    Raises:  RefusedError: the target holds something else, or the source cannot be read.
    """
    copy = _Copy(owner, {_key(path.stat()) for path in without if path.exists()})
    beside = target.with_suffix(".copying")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        top = os.open(source, _FOLDER_FLAGS)
        beside.mkdir(mode=0o700)
        made = os.open(beside, _FOLDER_FLAGS)
        try:
            copy.folder(top, made, PurePosixPath())
        finally:
            os.close(top)
            os.close(made)
        if any(target.iterdir()):
            if digest(beside) != digest(target):
                raise RefusedError(f"{target} already holds something else than {source}")
            shutil.rmtree(beside)
        else:
            copy.own(beside)
            beside.rename(target)
    except (OSError, RecursionError) as error:
        raise RefusedError(f"{source} could not be copied: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Copied(copy.files, copy.bytes, tuple(copy.skipped))


def digest(folder: Path) -> str:
    """A hash over names, kinds, links, execute bits and contents of a tree."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found = path.lstat()
        name = path.relative_to(folder).as_posix()
        total.update(f"{len(name)}:{name}:{stat.S_IFMT(found.st_mode)}:".encode())
        total.update(b"x" if found.st_mode & 0o100 else b"-")
        if path.is_symlink():
            total.update(os.fsencode(path.readlink()))
        elif path.is_file():
            with os.fdopen(os.open(path, _FILE_FLAGS), "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


class _Copy:
    def __init__(self, owner: tuple[int, int] | None, without: set[tuple[int, int]]) -> None:
        self._owner = owner
        self._without = without
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []

    def own(self, what: Path | int) -> None:
        if self._owner is not None:
            os.chown(what, *self._owner)

    def folder(self, source: int, target: int, at: PurePosixPath) -> None:
        for name in sorted(os.listdir(source)):
            found = os.stat(name, dir_fd=source, follow_symlinks=False)
            mode = found.st_mode
            if stat.S_ISDIR(mode) and _key(found) not in self._without:
                self._subfolder(name, source, target, at)
            elif stat.S_ISREG(mode):
                self._file(name, source, target)
            elif not stat.S_ISLNK(mode) or not self._link(name, source, target, at):
                self.skipped.append(str(at / name))

    def _subfolder(self, name: str, source: int, target: int, at: PurePosixPath) -> None:
        inner = os.open(name, _FOLDER_FLAGS, dir_fd=source)
        os.mkdir(name, 0o700, dir_fd=target)
        made = os.open(name, _FOLDER_FLAGS, dir_fd=target)
        try:
            self.folder(inner, made, at / name)
            self.own(made)
            _like(inner, made)
        finally:
            os.close(inner)
            os.close(made)

    def _file(self, name: str, source: int, target: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        inner = os.open(name, _FILE_FLAGS, dir_fd=source)
        made = os.open(name, flags, 0o600, dir_fd=target)
        try:
            while chunk := os.read(inner, _CHUNK_BYTES):
                self.bytes += os.write(made, chunk)
            self.own(made)
            _like(inner, made)
            self.files += 1
        finally:
            os.close(inner)
            os.close(made)

    def _link(self, name: str, source: int, target: int, at: PurePosixPath) -> bool:
        """Whether the link stays inside and was copied."""
        leads_to = os.readlink(name, dir_fd=source)
        inside = os.path.normpath(at / leads_to)
        if leads_to.startswith("/") or inside == ".." or inside.startswith("../"):
            return False
        os.symlink(leads_to, name, dir_fd=target)
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=target, follow_symlinks=False)
        return True


def _key(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _like(source: int, target: int) -> None:
    """Rights without set-uid bits, and times."""
    found = os.fstat(source)
    os.fchmod(target, stat.S_IMODE(found.st_mode) & 0o777)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
