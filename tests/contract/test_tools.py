"""The tools suites over bubblewrap and over no sandbox, and what only one of them has."""

import os
import socket
from pathlib import Path

import pytest

from tests.contract.files_suite import FilesSuite
from tests.contract.tools_suite import ToolsSuite
from tests.helpers.bench_tools import FOREIGN_UID, Bench
from threadlog.adapters.sandbox.folders import UID_COUNT, UID_FIRST
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools
from threadlog.errors import RefusedError
from threadlog.limits import MIB

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another uid")


async def prepared(kind: type[SandboxTools] | type[BareTools], top: Path, **more: int) -> Bench:
    bench = Bench(kind, top, **more)
    await bench.tools.prepare(bench.workspace)
    return bench


class Sandboxed:
    @pytest.fixture
    async def bench(self, short_dir: Path) -> Bench:
        return await prepared(SandboxTools, short_dir)

    @pytest.fixture
    async def hungry(self, short_dir: Path) -> Bench:
        return await prepared(SandboxTools, short_dir, memory_bytes_max=200 * MIB)


class Bare:
    @pytest.fixture
    async def bench(self, short_dir: Path) -> Bench:
        return await prepared(BareTools, short_dir)

    @pytest.fixture
    async def hungry(self, short_dir: Path) -> Bench:
        return await prepared(BareTools, short_dir, memory_bytes_max=200 * MIB)


class TestSandboxTools(Sandboxed, ToolsSuite):
    async def test_the_self_test_finds_nothing(self, bench: Bench) -> None:
        findings = await bench.tools.check()
        assert [finding for finding in findings if finding.level != "ok"] == []
        assert {finding.check for finding in findings} >= {"bwrap", "seccomp", "python", "probes"}

    async def test_memory_shared_by_many_is_counted_once(self, hungry: Bench) -> None:
        fork = "import os, time; b = bytearray(60 << 20); [os.fork() for _ in 'ab']; time.sleep(1)"
        result = await hungry.run(f'python3 -c "{fork}"; exit 0')
        assert result.outcome == "ok"

    @needs_root
    async def test_each_managed_workspace_has_a_uid_of_its_own(self, bench: Bench) -> None:
        uids = []
        for name in ("main", "other", "third"):
            ref = bench.managed(name)
            await bench.tools.prepare(ref)
            uids.append(int((await bench.run("id -u", workspace=ref)).output))
        assert len(set(uids)) == 3
        assert all(UID_FIRST < uid < UID_FIRST + UID_COUNT for uid in uids)
        assert bench.folder.stat().st_uid == uids[0]
        assert bench.folder.stat().st_mode & 0o777 == 0o700
        assert bench.folder.parent.stat().st_mode & 0o777 == 0o711
        again = Bench(SandboxTools, bench.root.parent)
        assert int((await again.run("id -u")).output) == uids[0]

    @needs_root
    async def test_an_attached_folder_is_worked_in_by_its_owner(
        self, bench: Bench, short_dir: Path
    ) -> None:
        folder = short_dir / "project"
        folder.mkdir()
        os.chown(folder, FOREIGN_UID, 0)
        ref = bench.attached(folder)
        await bench.tools.prepare(ref)
        result = await bench.run("id -u; id -g; echo x > a.txt", workspace=ref)
        assert result.output.split() == [str(FOREIGN_UID).encode()] * 2
        assert (folder / "a.txt").stat().st_uid == FOREIGN_UID
        assert (await bench.run("write b.txt x", workspace=ref)).outcome == "ok"

    @needs_root
    @pytest.mark.parametrize("barrier", ["owner", "parent"])
    async def test_an_attached_folder_out_of_reach_names_copy(
        self, bench: Bench, short_dir: Path, barrier: str
    ) -> None:
        folder = short_dir / "private" / "project"
        folder.mkdir(parents=True)
        if barrier == "parent":
            os.chown(folder, FOREIGN_UID, FOREIGN_UID)
            folder.parent.chmod(0o700)
        with pytest.raises(RefusedError, match="--copy"):
            await bench.tools.prepare(bench.attached(folder))
        with pytest.raises(RefusedError, match="--copy"):
            await bench.run("true", workspace=bench.attached(folder))

    @needs_root
    async def test_data_out_of_reach_of_the_uids_is_refused(self, short_dir: Path) -> None:
        short_dir.chmod(0o700)
        bench = Bench(SandboxTools, short_dir)
        with pytest.raises(RefusedError, match=str(short_dir)):
            await bench.tools.prepare(bench.workspace)
        assert "fail" in {finding.level for finding in await bench.tools.check()}


class TestBareTools(Bare, ToolsSuite):
    async def test_the_self_test_warns_loudly(self, bench: Bench) -> None:
        findings = await bench.tools.check()
        assert [f.check for f in findings if f.level == "warn"] == ["sandbox"]
        assert "UNSANDBOXED" in findings[0].evidence
        assert findings[0].fix


class TestSandboxFiles(Sandboxed, FilesSuite):
    pass


class TestBareFiles(Bare, FilesSuite):
    pass


class CopySuite:
    async def test_a_folder_is_copied_once(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/a.sh").write_text("#!/bin/sh\necho ran\n")
        (tmp_path / "sub/a.sh").chmod(0o4755)
        (tmp_path / "inside").symlink_to("sub/a.sh")
        (tmp_path / "outside").symlink_to("../secret")
        (tmp_path / "absolute").symlink_to("/etc/shadow")
        os.mkfifo(tmp_path / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "socket"))
        ref = bench.managed("copy")
        copied = await bench.tools.copy_into_workspace(tmp_path, ref)
        assert copied.files == 1
        assert copied.skipped == ("absolute", "fifo", "outside", "socket")
        result = await bench.run("sub/a.sh; ./inside; echo x > sub/new; ls", workspace=ref)
        assert result.output == b"ran\nran\ninside\nsub\n"
        path = bench.root / "local" / ref.thread_id
        assert (path / "sub/a.sh").stat().st_mode & 0o7777 == 0o755
        assert (path / "sub/a.sh").stat().st_uid == path.stat().st_uid

    async def test_the_same_copy_again_is_no_error_another_is(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        (tmp_path / "a.txt").write_text("one")
        ref = bench.managed("copy")
        await bench.tools.copy_into_workspace(tmp_path, ref)
        await bench.tools.copy_into_workspace(tmp_path, ref)
        await bench.run("echo two > a.txt", workspace=ref)
        with pytest.raises(RefusedError):
            await bench.tools.copy_into_workspace(tmp_path, ref)
        assert (await bench.run("cat a.txt", workspace=ref)).output == b"two\n"

    async def test_a_source_that_holds_our_data_is_copied_without_it(
        self, bench: Bench, short_dir: Path
    ) -> None:
        (short_dir / "a.txt").write_text("one")
        ref = bench.managed("copy")
        copied = await bench.tools.copy_into_workspace(short_dir, ref)
        assert (copied.files, copied.skipped) == (1, ("state", "workspaces"))

    async def test_a_source_that_is_not_there_or_a_link_is_refused(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        for source in (tmp_path / "none", tmp_path / "link"):
            with pytest.raises(RefusedError):
                await bench.tools.copy_into_workspace(source, bench.managed("copy"))


class TestSandboxCopy(Sandboxed, CopySuite):
    pass


class TestBareCopy(Bare, CopySuite):
    pass
