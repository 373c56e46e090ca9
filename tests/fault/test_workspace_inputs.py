"""Odd and hostile inputs of the tool (RELIABILITY e, C40-C62): an error, no hang, no reach."""

import asyncio
import hashlib
import os
import resource
import shutil
from pathlib import Path

import pytest

from tests.helpers.bench_tools import Bench
from threadlog import limits
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools
from threadlog.errors import RefusedError

SECRET = "root:*:secret-of-the-host"


@pytest.fixture(params=[SandboxTools, BareTools], ids=["sandbox", "bare"])
async def bench(request: pytest.FixtureRequest, short_dir: Path) -> Bench:
    """For both: the built-ins guard the workspace's edge also where nothing else does."""
    made = Bench(request.param, short_dir)
    await made.tools.prepare(made.workspace)
    (short_dir / "secret").write_text(SECRET)
    return made


@pytest.fixture
async def sandbox(short_dir: Path) -> Bench:
    """Only in the sandbox: what would reach the machine without one."""
    made = Bench(SandboxTools, short_dir)
    await made.tools.prepare(made.workspace)
    return made


async def refused(bench: Bench, line: str) -> str:
    """The reason of a line that ends in an error, without a hang, and changes nothing."""
    async with asyncio.timeout(10):
        result = await bench.run(line, timeout_ms=5_000)
    assert result.outcome == "error", result
    assert result.changes == ()
    assert SECRET not in result.output.decode(errors="replace")
    assert result.reason is not None
    return result.reason


OUTSIDE = [
    *("../../../etc/passwd", "/etc/passwd", "./x/../../y", "..", "a/../..", "/", "//etc/passwd"),
    *("/workspace/../etc/passwd", "/proc/self/environ", "/proc/1/environ", "/proc/kmsg"),
    *("/proc/self/root/etc/passwd", "/dev/zero"),
]


@pytest.mark.parametrize("form", ["read {}", "write {} x", "edit {} --base 0123456789ab a b"])
async def test_C40_C41_C42_a_path_outside_the_workspace(bench: Bench, form: str) -> None:
    reasons = await asyncio.gather(*(refused(bench, form.format(path)) for path in OUTSIDE))
    assert set(reasons) <= {"outside_workspace", "not_regular"}


async def test_C42_odd_names(bench: Bench) -> None:
    names = ["-n", "@x", "a b", "ü", "*", "$HOME", "`id`"]
    for name in names:
        bench.put(name, b"content\n")
    for shown in await asyncio.gather(*(bench.text(f"read -- '{name}'") for name in names)):
        assert "content" in shown
    assert "content" in await bench.text("read x/../ü")
    with pytest.raises(RefusedError):
        await bench.run('read ""')


async def test_C41_the_shell_sees_the_cleared_environment_only(
    sandbox: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    result = await sandbox.run("cat /proc/*/environ; env")
    assert SECRET not in result.output.decode()


async def test_C44_C45_what_is_no_regular_file(bench: Bench, short_dir: Path) -> None:
    names = ["fifo", "folder", "link", "loop", "dangling", "socket"]
    os.mkfifo(bench.folder / "fifo")
    (bench.folder / "folder").mkdir()
    (bench.folder / "link").symlink_to(short_dir / "secret")
    (bench.folder / "loop").symlink_to("loop")
    (bench.folder / "dangling").symlink_to("nothing")
    os.mknod(bench.folder / "socket", 0o140644)
    forms = ("read {}", "write {} x", "edit {} --base 0123456789ab a b")
    lines = [form.format(name) for form in forms for name in names]
    reasons = await asyncio.gather(*(refused(bench, line) for line in lines))
    assert set(reasons) == {"not_regular"}
    assert (bench.folder / "link").is_symlink()


async def test_C45_a_link_among_the_folders_of_a_path(bench: Bench, short_dir: Path) -> None:
    (bench.folder / "out").symlink_to(short_dir)
    (bench.folder / "in").symlink_to(".")
    bench.put("a.txt", b"x\n")
    assert await refused(bench, "read out/secret") == "not_regular"
    assert await refused(bench, "write out/new x") == "not_regular"
    assert await refused(bench, "read in/a.txt") == "not_regular"
    assert not (short_dir / "new").exists()


async def test_C45_a_command_does_not_reach_the_shadow_file(sandbox: Bench) -> None:
    result = await sandbox.run("ln -s /etc/shadow s; cat s; cat /etc/shadow")
    assert result.outcome == "error"
    assert b"$" not in result.output


async def test_C46_a_file_beyond_the_cap(bench: Bench) -> None:
    with bench.put("sparse", b"").open("r+b") as file:
        file.truncate(5 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert await refused(bench, "read sparse") == "too_large"
    assert await refused(bench, "write sparse x") == "too_large"
    assert await refused(bench, "edit sparse --base 0123456789ab a b") == "too_large"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert (bench.folder / "sparse").stat().st_size == 5 << 30


async def test_C47_a_file_that_changes_during_the_read(bench: Bench) -> None:
    path = bench.put("a.txt", b"x\n" * 1_000)
    is_over = asyncio.Event()

    async def churn() -> None:
        while not is_over.is_set():
            path.unlink(missing_ok=True)
            await asyncio.sleep(0)
            bench.put("a.txt", b"y\n" * 500_000)
            await asyncio.sleep(0.001)

    task = asyncio.create_task(churn())
    for _ in range(10):
        result = await bench.run("read a.txt", timeout_ms=5_000)
        assert result.outcome == "ok" or result.reason in ("not_found", "too_large", "permission")
    is_over.set()
    await task


@pytest.mark.parametrize("path", ["x" * 256, "a/" * 2_500 + "a", "a/" * 40 + "x" * 300])
async def test_C48_a_path_that_is_too_long(bench: Bench, path: str) -> None:
    assert await refused(bench, f"read {path}") in ("name_too_long", "not_found")
    result = await bench.run(f"write {path} x")
    assert (result.outcome, result.reason) == ("error", "name_too_long")


async def test_C49_an_edit_of_nothing(bench: Bench) -> None:
    path = bench.put("a.txt", b"a\n")
    base = await bench.hash_of("a.txt")
    assert await refused(bench, f"edit a.txt --base {base} '' new") == "no_match"
    assert await refused(bench, f"edit a.txt --base {base} a a") == "no_change"
    assert path.read_bytes() == b"a\n"


async def test_C50_a_file_that_is_not_utf8(bench: Bench) -> None:
    content = "Grüße\n".encode("latin-1")
    path = bench.put("a.txt", content)
    base = hashlib.sha256(content).hexdigest()
    assert await refused(bench, "read a.txt") == "not_text"
    assert await refused(bench, f"edit a.txt --base {base} Gr x") == "not_text"
    assert path.read_bytes() == content
    result = await bench.run("read a.txt")
    assert b"a.txt" in result.output
    assert b"UTF-8" in result.output


@pytest.mark.skipif(os.geteuid() != 0, reason="the runner's own uid may change its own rights")
async def test_C52_a_file_or_folder_without_rights(sandbox: Bench) -> None:
    sandbox.put("secret", b"x\n", mode=0)
    sandbox.put("fixed", b"x\n", mode=0o444)
    folder = sandbox.folder / "folder"
    folder.mkdir()
    sandbox.put("folder/a.txt", b"x\n")
    folder.chmod(0o555)
    for line in ("read secret", "write secret y", "write fixed y", "write folder/b.txt y"):
        assert await refused(sandbox, line) == "permission"
    base = await sandbox.hash_of("folder/a.txt")
    assert await refused(sandbox, f"edit folder/a.txt --base {base} x y") == "permission"
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    names = sorted(path.name for path in sandbox.folder.iterdir())
    assert names == ["fixed", "folder", "secret"]


async def test_X8_a_hard_link_is_left_alone(bench: Bench, short_dir: Path) -> None:
    bench.own(short_dir / "secret")
    (bench.folder / "link").hardlink_to(short_dir / "secret")
    assert (await bench.run("write link changed")).outcome == "ok"
    assert (short_dir / "secret").read_text() == SECRET
    assert (bench.folder / "link").read_text() == "changed"


async def test_C53_a_fork_bomb_stays_in_its_sandbox(sandbox: Bench) -> None:
    bomb = sandbox.run("bash -c ':(){ :|:& };:'; sleep 5", timeout_ms=1_500)
    neighbour = sandbox.managed("neighbour")
    await sandbox.tools.prepare(neighbour)
    task = asyncio.create_task(bomb)
    loop = asyncio.get_running_loop()
    times = []
    while not task.done():
        start = loop.time()
        assert (await sandbox.run("true", workspace=neighbour)).outcome == "ok"
        times.append(loop.time() - start)
    assert (await task).outcome in ("timeout", "error")
    assert sorted(times)[len(times) // 2] < 0.25
    assert sandbox.alive() == 0


async def test_C54_kill_all_reaches_the_sandbox_only(sandbox: Bench) -> None:
    result = await sandbox.run("sleep 600 & kill -9 -1; echo on")
    assert (result.outcome, sandbox.alive()) == ("ok", 0)
    assert b"on\n" in result.output


async def test_C58_C59_X7_no_host_process_runs_what_lies_in_a_workspace(
    bench: Bench, short_dir: Path
) -> None:
    canary = short_dir / "canary"
    hook = f"#!/bin/sh\ntouch {canary}\n"
    names = ["git", "python3", "sh", "ls", "node_modules/.bin/git", ".git/hooks/post-checkout"]
    for name in [*names, "prlimit", "setpriv", "bwrap"]:
        (bench.folder / name).parent.mkdir(parents=True, exist_ok=True)
        bench.put(name, hook.encode(), mode=0o755)
    python = f"import pathlib; pathlib.Path({str(canary)!r}).touch()\n".encode()
    for name in ("sitecustomize.py", "usercustomize.py", "os.py", "hashlib.py", "binascii.py"):
        bench.put(name, python)
    bench.put(".envrc", hook.encode())
    bench.put(".git/config", f'[core]\nfsmonitor = "touch {canary}"\n'.encode())
    await bench.tools.prepare(bench.workspace)
    await bench.tools.check()
    await bench.text("read .envrc")
    await bench.text("write new x")
    await bench.text("ls -a")
    await bench.tools.settle_orphans()
    assert not canary.exists()


async def test_C60_nothing_set_in_one_call_lasts(bench: Bench) -> None:
    await bench.run("export LD_PRELOAD=/nowhere.so; alias ls=false; echo false > .profile; cd /")
    result = await bench.run("ls .profile; pwd; echo [$LD_PRELOAD]")
    root = str(bench.folder) if isinstance(bench.tools, BareTools) else "/workspace"
    assert result.output.decode() == f".profile\n{root}\n[]\n"


async def test_C61_C62_output_is_stored_exactly(bench: Bench) -> None:
    text = "\x1b[31mred\x1b]8;;http://x\x07link\x1b]52;c;aGk=\x07 ![i](http://x/?q=secret) \x00\xff"
    bench.put("bytes", text.encode("latin-1"))
    assert (await bench.run("cat bytes")).output == text.encode("latin-1")


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted for it")
@pytest.mark.parametrize("option", ["size=256k", "nr_inodes=4"])
async def test_S1_S2_a_full_workspace(short_dir: Path, option: str) -> None:
    bench = Bench(SandboxTools, short_dir)
    folder = short_dir / "small"
    folder.mkdir()
    owner = f"{option},uid=1950000002,gid=1950000002,mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", owner, "threadlog-test", str(folder)]
    process = await asyncio.create_subprocess_exec(*mount)
    assert await process.wait() == 0
    try:
        ref = bench.attached(folder)
        await bench.tools.prepare(ref)
        assert (await bench.run("write old.txt old", workspace=ref)).outcome == "ok"
        result = await bench.run(
            "for i in 1 2 3 4; do head -c 80000 /dev/zero > f$i; done", workspace=ref
        )
        assert result.outcome == "error"
        assert b"No space left" in result.output
        new = "x" * (limits.COMMAND_BYTES_MAX - 100)
        result = await bench.run(f"write old.txt {new}", workspace=ref)
        assert (result.outcome, result.reason, result.changes) == ("error", "no_space", ())
        assert (folder / "old.txt").read_text() == "old"
        assert not [path for path in folder.iterdir() if path.name.startswith(".threadlog")]
        with pytest.raises(RefusedError, match="no_space"):
            await bench.tools.prepare(ref)
    finally:
        process = await asyncio.create_subprocess_exec("umount", str(folder))
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)
