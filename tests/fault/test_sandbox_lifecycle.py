"""Deaths around a command: of the runner, of threads, of a write; and greedy neighbours."""

import ast
import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyseccomp
import pytest

import threadlog
from tests.helpers.bench_tools import FOREIGN_UID, Bench, alive, is_gone, until
from tests.helpers.sandbox_child import KINDS
from threadlog import limits
from threadlog.adapters.sandbox import helper_files, helper_frames
from threadlog.adapters.sandbox.records import Record, RunRecords
from threadlog.adapters.sandbox.tools import SandboxTools

ROOT = Path(__file__).resolve().parents[2]
BUSY = "touch started; (sleep 600 & sleep 600) & (trap '' TERM; sleep 600); sleep 600"
HELPER = "import sys; from threadlog.adapters.sandbox.helper import main; sys.exit(main())"


@contextlib.contextmanager
def runner(kind: str, top: Path, line: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A runner of its own and the id of its call."""
    command = [sys.executable, "-m", "tests.helpers.sandbox_child", kind, str(top), line]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", KINDS)
async def test_X6_nothing_outlives_a_killed_runner_for_long(kind: str, short_dir: Path) -> None:
    bench = Bench(KINDS[kind], short_dir)
    with runner(kind, short_dir, BUSY) as (process, call_id):
        await until((bench.folder / "started").exists)
        await until(lambda: alive(call_id) > 2)
        assert bench.records() == [f"{call_id}.1.json"]
        process.kill()
        process.wait()
        if kind == "sandbox":  # by itself
            await until(partial(is_gone, call_id), seconds=1)
        await bench.tools.settle_orphans()
        assert alive(call_id) == 0
        assert bench.records() == []


@pytest.mark.parametrize("kind", KINDS)
async def test_X6_a_runner_killed_at_any_moment_leaves_nothing(kind: str, short_dir: Path) -> None:
    bench = Bench(KINDS[kind], short_dir)
    call_ids = []
    for wait_ms in range(0, 24, 2):
        with runner(kind, short_dir, "sleep 600 & sleep 600") as (process, call_id):
            await asyncio.sleep(wait_ms / 1000)
            process.kill()
            process.wait()
        call_ids.append(call_id)
        await bench.tools.settle_orphans()
        assert bench.records() == []
    for call_id in call_ids:  # not before: what was just starting is not seen at once
        await until(partial(is_gone, call_id), seconds=1)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_runner_that_is_number_1_keeps_no_zombies(kind: str, short_dir: Path) -> None:
    """As in a container without an init: what loses its parent becomes the runner's child."""
    libc, set_child_subreaper = ctypes.CDLL(None), 36
    own = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = own.read_text()  # the servers of this run, if they were started
    libc.prctl(set_child_subreaper, 1, 0, 0, 0)
    try:
        bench = Bench(KINDS[kind], short_dir)
        await bench.tools.prepare(bench.workspace)
        for line in ("true", "(setsid sleep 600 &)", "read none"):
            await bench.run(line)
        await bench.run("sleep 600", timeout_ms=100)
        assert own.read_text() == before
    finally:
        libc.prctl(set_child_subreaper, 0, 0, 0, 0)


async def test_settling_spares_a_process_that_only_got_the_number(short_dir: Path) -> None:
    records = RunRecords(short_dir / "state")
    records.open()
    other = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    try:
        path = records.add(Record("call", 1, (other.pid,)))
        body = json.loads(path.read_text())
        [[pid, start]] = body["processes"]
        for changed in ({"processes": [[pid, start + 1]]}, {"boot": "another"}):
            path.write_text(json.dumps({**body, **changed}))
            await records.settle()
            assert other.poll() is None
            assert not path.exists()
        path.write_text("{damaged")
        await records.settle()
        records.add(Record("call", 1, (other.pid,)))
        await records.settle()
        assert other.poll() is not None
    finally:
        other.kill()
        other.wait()


async def test_X4_a_sandbox_is_started_by_the_thread_that_stays(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    start = subprocess.Popen

    def spied(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", spied)
    bench = Bench(SandboxTools, short_dir)
    await bench.tools.prepare(bench.workspace)
    await bench.run("read a.txt")
    task = asyncio.create_task(bench.run("touch started; until test -e go; do sleep 0.01; done"))
    await until((bench.folder / "started").exists)
    for _ in range(8):
        worker = threading.Thread(target=list)
        worker.start()
        worker.join()
    bench.put("go", b"")
    assert (await task).outcome == "ok"
    assert set(threads) == {threading.main_thread()}


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("python3 -c 'import os; fds = [os.dup(0) for _ in range(2000)]'", "error"),
        ("for i in $(seq 300); do sleep 60 & done; wait", "error"),
        ("head -c 1G /dev/zero > /tmp/x", "error"),
        ("head -c 1G /dev/zero > /dev/shm/x", "error"),
        ("head -c 300M /dev/zero", "ok"),
        ("while :; do :; done & while :; do :; done & while :; do :; done", "timeout"),
    ],
    ids=["descriptors", "processes", "tmp", "shm", "output", "processor"],
)
async def test_X3_F54_a_greedy_command_is_capped(short_dir: Path, line: str, outcome: str) -> None:
    bench = Bench(SandboxTools, short_dir)
    neighbour = bench.managed("neighbour")
    for ref in (bench.workspace, neighbour):
        await bench.tools.prepare(ref)
    greedy = asyncio.create_task(bench.run(line, timeout_ms=2_000))
    loop = asyncio.get_running_loop()
    times: list[float] = []
    while not greedy.done() or not times:
        start = loop.time()
        assert (await bench.run("true", workspace=neighbour)).outcome == "ok"
        times.append(loop.time() - start)
    result = await greedy
    assert result.outcome in (outcome, "timeout")
    assert len(result.output) <= limits.OUTPUT_BYTES_MAX
    assert sorted(times)[len(times) // 2] < 0.25
    assert bench.alive() == 0


async def test_X9_a_uid_at_its_process_limit_does_not_stop_others(short_dir: Path) -> None:
    bench = Bench(SandboxTools, short_dir)
    neighbour = bench.managed("neighbour")
    for ref in (bench.workspace, neighbour):
        await bench.tools.prepare(ref)
    fill = "i=0; while [ $i -lt 100 ]; do sleep 60 & i=$((i+1)); done; touch full; wait"
    tasks = [asyncio.create_task(bench.run(fill)) for _ in range(2)]
    await until((bench.folder / "full").exists)
    for ref in (neighbour, bench.workspace):
        many = "for i in $(seq 60); do sleep 0.1 & done; wait; echo done"
        assert (await bench.run(many, workspace=ref)).output == b"done\n"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert bench.alive() == 0


async def test_a_helper_that_fails_is_compiled_again(short_dir: Path) -> None:
    bench = Bench(SandboxTools, short_dir)
    await bench.tools.prepare(bench.workspace)
    assert (await bench.run("write a.txt x")).outcome == "ok"
    bench.tools._helper = b"import sys; sys.stdin.read(); sys.exit(3)"
    result = await bench.run("read a.txt")
    assert (result.outcome, result.reason) == ("error", "sandbox")
    assert (await bench.run("read a.txt")).outcome == "ok"


def asked(folder: Path, content: bytes) -> subprocess.Popen[bytes]:
    """The helper itself, outside of any sandbox, given a `write`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "services")},
    )
    assert process.stdin is not None
    process.stdin.write(write_request(content))
    process.stdin.close()
    process.stdin = None
    return process


def write_request(content: bytes) -> bytes:
    return helper_frames.pack(
        {
            "operation": b"write",
            "path": b"file",
            "root": b"/nowhere",
            "content": content,
            "bytes_max": b"%d" % (64 * limits.MIB),
            "kept_bytes_max": b"0",
            "window_bytes": b"1000",
        }
    )


def test_S4_F51_write_leaves_old_or_new_under_kill(tmp_path: Path) -> None:
    versions = [bytes([letter]) * (4 * limits.MIB) for letter in b"ab"]
    path = tmp_path / "file"
    path.write_bytes(versions[0])
    temporary = tmp_path / f".threadlog-{helper_files.sha256(b'file')[:12]}.tmp"
    replaced = set()
    for number in range(60):
        inode = path.stat().st_ino
        # Killed while the new version grows, a little later each time; the last ones at its end.
        wanted = number * len(versions[0]) // 50
        process = asked(tmp_path, versions[number % 2])
        while process.poll() is None and not (temporary.exists() and grown(temporary, wanted)):
            pass
        process.kill()
        process.communicate()
        assert path.read_bytes() in versions
        replaced.add(path.stat().st_ino != inode)
        temporary.unlink(missing_ok=True)
    assert replaced == {False, True}, "the kills came all too early or all too late"


def grown(path: Path, size: int) -> bool:
    """The file has that size; a size that it will never have waits for its end."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size >= size
    return True


def test_S4_what_a_killed_write_left_is_gone_after_the_next(tmp_path: Path) -> None:
    (tmp_path / f".threadlog-{helper_files.sha256(b'file')[:12]}.tmp").write_text("left behind")
    asked(tmp_path, b"new").communicate()
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("file", b"new")]


@pytest.mark.skipif(
    shutil.which("strace") is None and "CI" not in os.environ,
    reason="strace is not installed: make setup-dev installs or names it",
)
@pytest.mark.parametrize(
    ("fault", "is_whole"),
    [
        ("fsync:error=EIO:when=1", True),
        ("write:error=ENOSPC:when=1", True),
        ("rename,renameat,renameat2:error=EIO:when=1", True),
        ("fsync:signal=SIGKILL:when=1", True),
        ("fsync:error=EIO:when=2", False),
    ],
)
def test_S3_a_failing_disk_leaves_the_old_file(tmp_path: Path, fault: str, is_whole: bool) -> None:
    (tmp_path / "file").write_text("old")
    names = fault.partition(":")[0]
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={names}"]
    done = subprocess.run(
        [*command, "-e", f"inject={fault}", sys.executable, "-c", HELPER],
        input=write_request(b"new"),
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "services")},
        check=False,
    )
    found = (tmp_path / "file").read_text()
    if "KILL" in fault:
        assert found == "old"
        return
    reply = helper_frames.unpack(done.stdout)
    assert reply["reason"] in (b"io", b"no_space")
    # After the rename the new file is in place: told as a failure, and as a change.
    assert (found, "path" in reply) == (("old", False) if is_whole else ("new", True))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


READER = """
import os
from threadlog.adapters.sandbox.helper_files import Content, ProblemError, Target
found = {b"mine": 0, b"secret": 0, "naive": 0}
rounds = 0
while rounds < 20_000 or (not (found["naive"] and found[b"mine"]) and rounds < 500_000):
    rounds += 1
    try:
        target = Target(b"folder/file", b"/nowhere", make=False)
        found[Content(target, os.O_RDONLY, 100).bytes] += 1
        os.close(target.folder)
    except (ProblemError, OSError):
        pass
    try:
        found["naive"] += open("folder/file").read() == "secret"
    except OSError:
        pass
print(found[b"mine"], found[b"secret"], found["naive"])
"""


@pytest.mark.parametrize("swapped", ["folder", "folder/file"])
def test_X8_a_path_that_is_swapped_leads_nowhere(tmp_path: Path, swapped: str) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    for folder, text in ((outside, "secret"), (workspace, "mine")):
        (folder / "folder").mkdir(parents=True)
        (folder / "folder/file").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-c", READER],
        stdout=subprocess.PIPE,
        cwd=workspace,
        env={"PYTHONPATH": str(ROOT / "services")},
        text=True,
    )
    path, aside = workspace / swapped, workspace / "aside"
    while process.poll() is None:
        for _ in range(5):
            path.lstat()
        path.rename(aside)
        path.symlink_to(outside / swapped)
        for _ in range(5):
            path.lstat()
        path.unlink()
        aside.rename(path)
    mine, leaked, naive = map(int, process.communicate()[0].split())
    assert leaked == 0
    assert mine > 0
    assert naive > 0, "the race was never hit, so it proves nothing"


def test_helper_modules_run_under_an_old_python() -> None:
    """They are parsed as Python 3.8: the Python below /usr is not ours to choose."""
    for path in sorted(Path(helper_files.__file__).parent.glob("helper*.py")):
        ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run without rights already")
def test_F54_all_of_it_works_without_root(short_dir: Path) -> None:
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import asyncio; asyncio.timeout"], check=False).returncode:
        pytest.skip("no Python >= 3.11 that every user can run")
    code, top = short_dir / "code", short_dir / "top"
    top.mkdir()
    os.chown(top, FOREIGN_UID, FOREIGN_UID)
    (code / "tests").mkdir(parents=True)
    shutil.copytree(Path(threadlog.__file__).parent, code / "threadlog")
    shutil.copytree(ROOT / "tests" / "helpers", code / "tests" / "helpers")
    shutil.copy(pyseccomp.__file__, code)
    uid = f"--reuid={FOREIGN_UID}"
    dropped = ["setpriv", uid, f"--regid={FOREIGN_UID}", "--clear-groups", "--no-new-privs"]
    done = subprocess.run(
        [*dropped, python, "-B", "-m", "tests.helpers.unprivileged_child", str(top)],
        cwd=code,
        env={"PYTHONPATH": str(code), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["shell"] == ["ok", None, f"{FOREIGN_UID}\n"]
    assert found["write"][0] == "ok"
    assert "|one" in found["read"][2]
    assert found["outside"][:2] == ["error", "outside_workspace"]
    assert found["deadline"][:2] == ["timeout", "deadline"]
    assert "fork" in found["processes"][2]
    assert found["attached"] == ["ok", None, "y\n"]
    assert "--copy" in found["foreign"]
    assert found["alive"] == 0
    assert {level for level, *_ in found["findings"]} == {"ok"}, found["findings"]
    assert (top / "workspaces").stat().st_uid == FOREIGN_UID
