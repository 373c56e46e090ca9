"""One runtime a file: the lock, the note of its holder, and who counts as alive under it."""

import os
import signal
from pathlib import Path

import pytest

from tests.helpers.processes import child, next_line
from threadlog import ids
from threadlog.adapters.memory.members import MemoryMembers
from threadlog.adapters.sqlite.lock import FileLock, Holder, lock_path, read_holder
from threadlog.adapters.sqlite.members import LockMembers
from threadlog.errors import LockedError, RefusedError
from threadlog.ids import WorkerId

ME = Holder(os.getpid(), "instance-1", "2026-11-30T18:00:00.000Z", "/run/one.sock")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "threadlog.db"


def test_F29_second_runtime_is_refused_by_the_lock(file: Path) -> None:
    with child("hold", str(file)) as holder:
        assert next_line(holder) == "held"
        with pytest.raises(LockedError) as refused:
            FileLock(file).acquire(ME)
        for known in (str(holder.pid), "holder-1", "/run/x.sock", "2026-11-30"):
            assert known in str(refused.value)
        found = read_holder(file)
        assert found == Holder(holder.pid, "holder-1", "2026-11-30T18:00:00Z", "/run/x.sock")


def test_F29_lock_is_free_after_kill_9(file: Path) -> None:
    with child("hold", str(file)) as holder:
        assert next_line(holder) == "held"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        # The note is still there; it says whom to ask, not that they live.
        assert read_holder(file) is not None
        lock = FileLock(file)
        lock.acquire(ME)
        assert read_holder(file) == ME
        lock.release()


def test_F29_lock_is_not_inherited_by_a_tool(file: Path) -> None:
    """A command that outlives its runner must not keep the file from the next runtime."""
    with child("orphan", str(file)) as holder:
        name, pid = next_line(holder).split()
        try:
            assert name == "child"
            holder.wait()
            lock = FileLock(file)
            lock.acquire(ME)
            lock.release()
        finally:
            os.kill(int(pid), signal.SIGKILL)


def test_the_lock_excludes_in_one_process_too(file: Path) -> None:
    first, second = FileLock(file), FileLock(file)
    first.acquire(ME)
    with pytest.raises(LockedError):
        second.acquire(ME)
    first.release()
    first.release()
    second.acquire(ME)
    second.release()
    assert read_holder(file) is None
    assert lock_path(file).exists(), "the lock file is what is locked: it is never deleted"


def test_a_link_to_the_file_has_the_same_lock(file: Path, tmp_path: Path) -> None:
    first = FileLock(file)
    first.acquire(ME)
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with pytest.raises(LockedError):
        FileLock(link).acquire(ME)
    first.release()


def test_what_is_made_is_private(file: Path) -> None:
    before = os.umask(0)
    try:
        lock = FileLock(file)
        lock.acquire(ME)
    finally:
        os.umask(before)
    assert lock_path(file).stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    lock.release()


def test_a_later_note_replaces_a_longer_one(file: Path) -> None:
    lock = FileLock(file)
    lock.acquire(Holder(1, "x" * 500, "then", "/s" * 50, "http://127.0.0.1:1", "/tokens"))
    lock.announce(ME)
    assert read_holder(file) == ME
    lock.release()


@pytest.mark.parametrize(
    "note",
    [b"", b"{", b"[]", b"7", b"null", b'{"pid": 1}', b'{"pid": "x", "instance": 1}', b"\xff\x00"],
)
def test_a_note_that_makes_no_sense_is_no_note(file: Path, note: bytes) -> None:
    lock = FileLock(file)
    lock.acquire(ME)
    lock_path(file).write_bytes(note)
    assert read_holder(file) is None
    with pytest.raises(LockedError, match="another runtime holds"):
        FileLock(file).acquire(ME)
    lock.release()


def test_a_note_from_another_version_is_understood(file: Path) -> None:
    file.parent.mkdir()
    lock_path(file).write_bytes(b'{"pid": 7, "instance": "i", "socket": 4, "later": []}\n{"old')
    assert read_holder(file) == Holder(7, "i", "")


def test_a_lock_that_cannot_be_opened_is_refused(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir()
    lock_path(file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match=r"threadlog\.db\.lock"):
        FileLock(file).acquire(ME)
    assert not (tmp_path / "elsewhere").exists()


async def test_under_the_lock_all_but_my_own_workers_are_gone() -> None:
    members = LockMembers()
    mine, earlier = WorkerId(ids.draw()), WorkerId(ids.draw())
    members.register(mine)
    assert members.watch_ms == 0
    assert not await members.is_gone(mine)
    assert await members.is_gone(earlier)


async def test_in_memory_the_living_join_and_leave() -> None:
    members = MemoryMembers(watch_ms=50)
    worker = WorkerId(ids.draw())
    assert await members.is_gone(worker)
    members.join(worker)
    assert not await members.is_gone(worker)
    members.leave(worker)
    assert await members.is_gone(worker)
    assert members.watch_ms == 50
