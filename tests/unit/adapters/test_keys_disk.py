"""Private files: who may own one, who may read it, and the turns of those who write."""

import os
import stat
from pathlib import Path

import pytest

from threadlog.adapters.keys import disk
from threadlog.adapters.keys.disk import locked, not_private, replace
from threadlog.errors import LockedError

ROOT, US, THEM = 0, 1_000, 2_000


def found(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, owner, 10, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "mode", "user", "is_private"),
    [
        (US, 0o600, US, True),
        (US, 0o400, US, True),
        (US, 0o700, US, True),
        (US, 0o640, US, False),
        (US, 0o604, US, False),
        (US, 0o602, US, False),
        (US, 0o620, US, False),
        (ROOT, 0o600, US, True),
        (ROOT, 0o440, US, True),  # a mounted secret with an fsGroup
        (ROOT, 0o400, ROOT, True),
        (ROOT, 0o640, ROOT, True),
        (ROOT, 0o444, US, False),
        (ROOT, 0o644, ROOT, False),
        (ROOT, 0o660, US, False),
        (THEM, 0o600, US, False),
        (THEM, 0o600, ROOT, True),
        (THEM, 0o640, ROOT, False),
    ],
)
def test_who_may_own_and_read_a_private_file(
    owner: int, mode: int, user: int, is_private: bool
) -> None:
    wrong = not_private(found(owner, stat.S_IFREG | mode), user)
    assert (wrong is None) is is_private
    assert wrong is None or "chmod 600" in wrong or "chown" in wrong


def test_only_a_file_is_a_file() -> None:
    assert not_private(found(US, stat.S_IFIFO | 0o600), US) == "is not a file"


def test_owner_and_mode_stay(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o400)
    if os.geteuid() == ROOT:
        os.chown(path, US, US)
    before = path.stat()
    replace(path, b"new", before)
    after = path.stat()
    assert path.read_bytes() == b"new"
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )
    assert after.st_ino != before.st_ino


def test_one_at_a_time_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with locked(path, waits=False), pytest.raises(LockedError), locked(path, waits=False):
        pass
    with locked(path, waits=False) as real:
        assert real == path


def test_a_lock_file_that_was_replaced_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    lock = tmp_path / "f.lock"
    tries = []
    flock = disk._flock

    def replaced(descriptor: int, beside: Path, *, waits: bool) -> None:
        flock(descriptor, beside, waits=waits)
        tries.append(descriptor)
        if len(tries) == 1:
            lock.unlink()

    monkeypatch.setattr(disk, "_flock", replaced)
    with locked(path, waits=True):
        assert len(tries) == 2
        assert lock.exists()
