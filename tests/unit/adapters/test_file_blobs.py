"""Blobs in a folder at its edges: damage, links, several processes, crashes, a failing disk."""

import errno
import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.events import LOCAL, OTHER
from threadlog.adapters.blobs.files import FileBlobs
from threadlog.errors import RejectedError, TransientError
from threadlog.ids import TenantId

CONTENT = b"some content\n" * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PUT = [(CONTENT, "text/plain")]
NAMED = f"{LOCAL}/{SHA256[:2]}/{SHA256}"

# Puts CONTENT, from stdin, as often as it is told; with a name, it dies in place of that os call.
CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from threadlog.adapters.blobs.files import FileBlobs
from threadlog.ids import LOCAL_TENANT
root, times, fatal = sys.argv[1:]
if fatal:
    setattr(os, fatal, lambda *args, **named: os.kill(os.getpid(), signal.SIGKILL))
content = sys.stdin.buffer.read()
for _ in range(int(times)):
    asyncio.run(FileBlobs(Path(root)).put(LOCAL_TENANT, [(content, "text/plain")]))
"""


def child(root: Path, times: int, fatal: str = "") -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", CHILD, str(root), str(times), fatal]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(CONTENT)
    process.stdin.close()
    return process


def files(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def blobs(root: Path) -> FileBlobs:
    return FileBlobs(root)


async def test_only_the_owner_may_read(blobs: FileBlobs, root: Path) -> None:
    await blobs.put(LOCAL, PUT)
    assert files(root) == [NAMED]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*/"))}
    assert modes == {0o700}
    assert stat.S_IMODE((root / NAMED).stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT[:-1] + b"X", CONTENT + b"X"])
async def test_putting_again_repairs(blobs: FileBlobs, root: Path, damage: bytes) -> None:
    await blobs.put(LOCAL, PUT)
    (root / NAMED).write_bytes(damage)
    assert await blobs.get(LOCAL, SHA256) is None
    await blobs.put(LOCAL, PUT)
    assert await blobs.get(LOCAL, SHA256) == CONTENT
    assert files(root) == [NAMED]


@pytest.mark.parametrize(
    "name", ["", "..", "../" * 20 + "etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n", "0" * 65]
)
async def test_a_name_that_is_no_hash_is_no_path(blobs: FileBlobs, name: str) -> None:
    await blobs.put(LOCAL, PUT)
    assert await blobs.get(LOCAL, name) is None


@pytest.mark.parametrize("tenant", ["", "..", "a/b", "Local", "a\n", "-a", "a" * 64])
async def test_a_tenant_that_is_none_is_no_path(blobs: FileBlobs, root: Path, tenant: str) -> None:
    with pytest.raises(RejectedError):
        await blobs.put(TenantId(tenant), PUT)
    assert not root.exists()
    assert await blobs.get(TenantId(tenant), SHA256) is None


async def test_a_link_in_place_of_a_file_is_not_followed(
    blobs: FileBlobs, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(CONTENT)
    await blobs.put(LOCAL, PUT)
    (root / NAMED).unlink()
    (root / NAMED).symlink_to(outside)
    assert await blobs.get(LOCAL, SHA256) is None
    await blobs.put(LOCAL, PUT)
    assert not (root / NAMED).is_symlink()
    assert await blobs.get(LOCAL, SHA256) == CONTENT


@pytest.mark.parametrize("depth", [0, 1])
async def test_a_link_in_place_of_a_folder_is_not_followed(
    blobs: FileBlobs, root: Path, tmp_path: Path, depth: int
) -> None:
    """One that leads to another tenant's content, which would match the hash."""
    await blobs.put(OTHER, PUT)
    theirs, ours = [(root / OTHER, root / LOCAL)[n] for n in (0, 1)]
    if depth:
        theirs, ours = theirs / SHA256[:2], ours / SHA256[:2]
        ours.parent.mkdir()
    ours.symlink_to(theirs)
    assert await blobs.get(LOCAL, SHA256) is None
    with pytest.raises(TransientError):
        await blobs.put(LOCAL, PUT)


async def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    (tmp_path / "blobs").symlink_to(tmp_path / "mount")
    blobs = FileBlobs(tmp_path / "blobs")
    await blobs.put(LOCAL, PUT)
    assert files(tmp_path / "mount") == [NAMED]
    assert await blobs.get(LOCAL, SHA256) == CONTENT


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
async def test_what_is_no_file_is_not_read(
    blobs: FileBlobs, root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blobs.put(LOCAL, PUT)
    path = root / NAMED
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            # The path of a socket is short, so it is made from its folder.
            monkeypatch.chdir(path.parent)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
        case _:
            path.mkdir()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    assert await blobs.get(LOCAL, SHA256) is None
    if kind == "folder":
        with pytest.raises(TransientError, match="directory"):
            await blobs.put(LOCAL, PUT)
    else:
        await blobs.put(LOCAL, PUT)
        assert await blobs.get(LOCAL, SHA256) == CONTENT
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


async def test_two_processes_put_the_same_at_once(blobs: FileBlobs, root: Path) -> None:
    processes = [child(root, 30) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert await blobs.get(LOCAL, SHA256) == CONTENT
    assert files(root) == [NAMED]


@pytest.mark.parametrize("fatal", ["mkdir", "fsync", "replace"])
async def test_a_crash_before_the_rename_leaves_nothing_that_is_served(
    blobs: FileBlobs, root: Path, fatal: str
) -> None:
    await blobs.put(LOCAL, PUT)
    (root / NAMED).unlink()
    if fatal == "mkdir":
        (root / NAMED).parent.rmdir()
    assert child(root, 1, fatal).wait() == -signal.SIGKILL
    assert await blobs.get(LOCAL, SHA256) is None
    leftovers = files(root)
    assert NAMED not in leftovers
    assert bool(leftovers) == (fatal == "replace")
    await blobs.put(LOCAL, PUT)
    assert await blobs.get(LOCAL, SHA256) == CONTENT
    for name in leftovers:
        assert await blobs.get(LOCAL, Path(name).name) is None


async def test_what_is_acknowledged_is_durable_in_this_order(
    blobs: FileBlobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes before their name, and every folder's entry before the answer."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        is_new = path.name.startswith(".new-")
        calls.append("bytes" if is_new else str(path.relative_to(root.parent)))
        fsync(descriptor)

    def replaced(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        calls.append("name")
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    shard = f"blobs/{LOCAL}/{SHA256[:2]}"
    await blobs.put(LOCAL, PUT)
    assert calls == [".", "blobs", f"blobs/{LOCAL}", "bytes", "name", shard]
    calls.clear()
    await blobs.put(LOCAL, PUT)
    assert calls == [shard]
    calls.clear()
    # Another process may have made all of it and died before it was durable.
    await FileBlobs(root).put(LOCAL, PUT)
    assert calls == ["blobs", f"blobs/{LOCAL}", shard]


async def test_a_folder_that_is_gone_is_made_again(blobs: FileBlobs, root: Path) -> None:
    await blobs.put(LOCAL, PUT)
    (root / NAMED).unlink()
    (root / NAMED).parent.rmdir()
    (root / LOCAL).rmdir()
    assert await blobs.get(LOCAL, SHA256) is None
    await blobs.put(LOCAL, PUT)
    assert await blobs.get(LOCAL, SHA256) == CONTENT


def failing(code: int) -> Callable[..., int]:
    def fail(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "replace", "fdopen"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
async def test_a_failing_disk_is_transient_and_leaves_nothing(
    blobs: FileBlobs, root: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    root.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(code))
        with pytest.raises(TransientError, match=os.strerror(code)):
            await blobs.put(LOCAL, PUT)
    assert not files(root)
    assert await blobs.get(LOCAL, SHA256) is None
    await blobs.put(LOCAL, PUT)
    assert await blobs.get(LOCAL, SHA256) == CONTENT


async def test_a_disk_that_does_not_read_is_transient(
    blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not None: content that cannot be read now is not content that is gone."""
    await blobs.put(LOCAL, PUT)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", failing(errno.EIO))
        with pytest.raises(TransientError, match=os.strerror(errno.EIO)):
            await blobs.get(LOCAL, SHA256)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(errno.EACCES))
        with pytest.raises(TransientError, match=os.strerror(errno.EACCES)):
            await blobs.get(LOCAL, SHA256)
    assert await blobs.get(LOCAL, SHA256) == CONTENT
