"""The blobs port on a folder: `ROOT/TENANT/AB/SHA256`, where AB begins the hash.

A file has its name only once its bytes are durable: it is written beside it under a name that is no
hash, then renamed. So a crash leaves at most a file that nobody serves. Several processes may put
the same content at once; the last rename wins, and all of them bring the same bytes. Folders are
walked by descriptor and no symbolic link is followed, so nothing outside ROOT is read or written.
"""

import asyncio
import contextlib
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256 as digest
from pathlib import Path

from threadlog import ids
from threadlog.errors import RefusedError, RejectedError, TransientError
from threadlog.events.content import BlobRef
from threadlog.ids import TenantId

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe that somebody put there must not wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# The way is not there, or something else lies in it: a link, a socket, a file for a folder.
_ABSENT = {errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENXIO}
_FOLDERS_REMEMBERED_MAX = 65_536


class FileBlobs:
    """Implements `ports.blobs.Blobs`. `root` is made when something is first put."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Folders whose own entry this process made durable, so that it is done once for each.
        self._durable: set[tuple[str, ...]] = set()

    async def check(self) -> None:
        """Something can be stored here.

        Raises:  RefusedError: it cannot; says where.
        """
        await asyncio.to_thread(self.probe)

    def probe(self) -> None:
        """The same, in the caller's thread. Raises as `check`."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root) as file:
                file.write(b"can be written")
                file.flush()
        except OSError as error:
            raise RefusedError(
                f"nothing can be stored in the blob store {self._root}: {error.strerror}; correct "
                "THREADLOG_BLOBS__URL, or who may write there"
            ) from error

    async def put(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        if not ids.is_tenant(tenant):
            raise RejectedError("the tenant of a blob is no tenant id")
        if not contents:
            return []
        return await asyncio.to_thread(self._put_all, tenant, contents)

    async def get(self, tenant: TenantId, sha256: str) -> bytes | None:
        if not ids.is_tenant(tenant) or not _SHA256.fullmatch(sha256):
            return None
        return await asyncio.to_thread(self._get, tenant, sha256)

    async def size(self, tenant: TenantId, sha256: str) -> int | None:
        if not ids.is_tenant(tenant) or not _SHA256.fullmatch(sha256):
            return None
        return await asyncio.to_thread(self._size, tenant, sha256)

    def _put_all(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        references = []
        for content, media_type in contents:
            sha256 = digest(content).hexdigest()
            try:
                self._put(tenant, sha256, content)
            except OSError as error:
                raise self._unavailable(error) from error
            references.append(BlobRef(sha256=sha256, bytes=len(content), media_type=media_type))
        return references

    def _put(self, tenant: TenantId, sha256: str, content: bytes) -> None:
        """1. The folder is there. 2. The bytes are. 3. Its entry for them is durable."""
        with self._made_folder(tenant, sha256[:2]) as folder:
            if not _touched(folder, sha256, content):
                _write(folder, sha256, content)
            # Also when the file was there: whoever made it may not have come this far.
            os.fsync(folder)

    def _get(self, tenant: TenantId, sha256: str) -> bytes | None:
        try:
            with self._folder(tenant, sha256[:2]) as folder:
                content = _read(folder, sha256)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise self._unavailable(error) from error
        return content if digest(content).hexdigest() == sha256 else None

    def _size(self, tenant: TenantId, sha256: str) -> int | None:
        try:
            with self._folder(tenant, sha256[:2]) as folder:
                return os.stat(sha256, dir_fd=folder, follow_symlinks=False).st_size
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise self._unavailable(error) from error

    @contextlib.contextmanager
    def _folder(self, *names: str) -> Iterator[int]:
        """A descriptor of the folder ROOT/NAMES."""
        with contextlib.ExitStack() as stack:
            # Where ROOT lies is the operator's choice: it alone may be a symbolic link.
            folder = _opened(stack, os.open(self._root, _FOLDER & ~os.O_NOFOLLOW))
            for name in names:
                folder = _opened(stack, os.open(name, _FOLDER, dir_fd=folder))
            yield folder

    @contextlib.contextmanager
    def _made_folder(self, *names: str) -> Iterator[int]:
        """The same, made where it is missing, and durable itself."""
        self._make_root()
        with contextlib.ExitStack() as stack:
            folder = _opened(stack, os.open(self._root, _FOLDER & ~os.O_NOFOLLOW))
            for depth, name in enumerate(names, 1):
                is_new = False
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=folder)
                    is_new = True
                # One that was there may have been made a moment ago by a process that died since.
                if is_new or names[:depth] not in self._durable:
                    os.fsync(folder)
                    self._remember(names[:depth])
                folder = _opened(stack, os.open(name, _FOLDER, dir_fd=folder))
            yield folder

    def _make_root(self) -> None:
        """The root and what is missing above it, each durable in the folder that holds it."""
        missing = []
        for path in (self._root, *self._root.parents):
            if path.exists():
                break
            missing.append(path)
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
            with contextlib.ExitStack() as stack:
                os.fsync(_opened(stack, os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)))

    def _remember(self, names: tuple[str, ...]) -> None:
        if len(self._durable) >= _FOLDERS_REMEMBERED_MAX:
            self._durable.clear()
        self._durable.add(names)

    def _unavailable(self, error: OSError) -> TransientError:
        said = error.strerror or type(error).__name__
        return TransientError(f"the blob store {self._root} does not work now: {said}")


def _opened(stack: contextlib.ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


def _read(folder: int, name: str) -> bytes:
    with contextlib.ExitStack() as stack:
        descriptor = _opened(stack, os.open(name, _READ, dir_fd=folder))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a file")
        return _all_of(descriptor)


def _touched(folder: int, name: str, content: bytes) -> bool:
    """Whether exactly this content lies there already; its time is now then."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = _opened(stack, os.open(name, _READ, dir_fd=folder))
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size != len(content):
            return False
        if _all_of(descriptor) != content:
            return False
        os.utime(descriptor)
        return True


def _all_of(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read()


def _write(folder: int, name: str, content: bytes) -> None:
    """The file has these bytes, whatever it was before."""
    beside = f".new-{ids.draw()}"
    try:
        with os.fdopen(os.open(beside, _WRITE, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
