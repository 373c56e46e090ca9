"""Folders of runners on one machine: the living are left alone, the dead cleaned up after."""

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT
from threadlog.adapters.sandbox import instances
from threadlog.adapters.sandbox.instances import RunnerFolder
from threadlog.adapters.sandbox.records import Record, RunRecords
from threadlog.errors import RefusedError

HOLDER = """
import sys
from pathlib import Path
from threadlog.adapters.sandbox.instances import RunnerFolder
folder = RunnerFolder.claim(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def runner(root: Path, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that lives, and holds its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def command() -> Iterator["subprocess.Popen[bytes]"]:
    """What a runner has started: a process group of its own, that would run on for long."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def is_locked(path: Path) -> bool:
    """Whether somebody holds the folder."""
    descriptor = os.open(path / "lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


async def test_a_living_runners_folder_is_left_alone(tmp_path: Path) -> None:
    with runner(tmp_path, "a"), command() as process:
        RunRecords(tmp_path / "a").add(Record("call-a", 1, (process.pid,)))
        mine = RunnerFolder.claim(tmp_path, "b")
        await mine.settle_others()
        assert process.poll() is None
        assert (tmp_path / "a" / "call-a.1.json").exists()
        mine.release()


async def test_a_dead_runners_processes_are_ended_and_its_folder_removed(tmp_path: Path) -> None:
    with command() as process, command() as of_mine:
        with runner(tmp_path, "a") as dead:
            RunRecords(tmp_path / "a").add(Record("call-a", 1, (process.pid,)))
            dead.kill()
            dead.wait()
        mine = RunnerFolder.claim(tmp_path, "b")
        RunRecords(mine.path).add(Record("call-b", 1, (of_mine.pid,)))
        await mine.settle_others()
        process.wait(5)
        assert not (tmp_path / "a").exists()
        assert of_mine.poll() is None, "its own are its own"
        assert is_locked(mine.path)
        mine.release()


async def test_a_folder_that_was_released_leaves_nothing(tmp_path: Path) -> None:
    mine = RunnerFolder.claim(tmp_path / "deep" / "root", "a")
    assert is_locked(mine.path)
    assert mine.path.stat().st_mode & 0o077 == 0, "what is in it will be killed"
    mine.release()
    assert list((tmp_path / "deep" / "root").iterdir()) == []


async def test_two_that_start_at_once_clean_up_once_and_leave_each_other_alone(
    tmp_path: Path,
) -> None:
    with command() as process:
        with runner(tmp_path, "dead") as dead:
            RunRecords(tmp_path / "dead").add(Record("call-x", 1, (process.pid,)))
            dead.kill()
            dead.wait()
        folders = [RunnerFolder.claim(tmp_path, name) for name in ("a", "b")]
        await asyncio.gather(*(folder.settle_others() for folder in folders))
        process.wait(5)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
        assert all(is_locked(folder.path) for folder in folders)
        for folder in folders:
            folder.release()


async def test_a_folder_that_is_just_being_made_is_not_mistaken_for_a_dead_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one cleans up between the making of the folder and its lock."""
    first = RunnerFolder.claim(tmp_path, "a")
    lock, was_cleaned = instances._locked, False

    def interrupted(path: Path) -> int:
        nonlocal was_cleaned
        if not was_cleaned and "b" in path.name:
            was_cleaned = True
            monkeypatch.setattr(instances, "_locked", lock)
            cleaning = threading.Thread(target=lambda: asyncio.run(first.settle_others()))
            cleaning.start()
            cleaning.join()
        return lock(path)

    monkeypatch.setattr(instances, "_locked", interrupted)
    second = RunnerFolder.claim(tmp_path, "b")
    assert was_cleaned
    assert second.path.is_dir()
    assert is_locked(second.path)
    await first.settle_others()
    assert second.path.is_dir()
    first.release()
    second.release()


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    folder = RunnerFolder.claim(tmp_path, "a")
    with pytest.raises(RefusedError):
        RunnerFolder.claim(tmp_path, "a")
    assert is_locked(folder.path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    folder.release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="cannot be made"):
        RunnerFolder.claim(tmp_path / "file", "a")
