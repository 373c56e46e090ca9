"""X1, X2, X11, F54: what a command cannot reach, what it can do anyhow, and failing closed."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyseccomp
import pytest

from tests.fault.probes import PROBES
from tests.helpers.bench_tools import Bench
from threadlog.adapters.sandbox import seccomp
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools
from threadlog.errors import RefusedError

CANARY = "canary-in-the-environment-of-another-process"
# What an unsandboxed command gets through even without root, so that the probe proves something.
OPEN_WITHOUT_A_SANDBOX = [
    *("unshare_user", "clone_user", "foreign_pids", "host_directories", "var", "tcp", "udp"),
    *("abstract_socket", "netlink", "ptrace", "process_vm", "secrets"),
]


@contextmanager
def host() -> Iterator[list[str]]:
    """Things of the host that a command could reach; yields the arguments of the probes."""
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract = f"threadlog-probe-{os.getpid()}"
        listener.bind(f"\0{abstract}")
        listener.listen()
        neighbour = subprocess.Popen(["/bin/sleep", "60"], env={"SECRET": CANARY})
        stack.callback(neighbour.wait)
        stack.callback(neighbour.kill)
        echo = threading.Thread(target=answer, args=(udp,))
        echo.start()
        port = udp.getsockname()[1]
        stack.callback(echo.join)
        stack.callback(udp.sendto, b"", ("127.0.0.1", port))
        yield [str(tcp.getsockname()[1]), str(port), abstract, CANARY]


def answer(udp: socket.socket) -> None:
    """Send back what comes; an empty datagram ends it."""
    while True:
        data, sender = udp.recvfrom(16)
        if not data:
            return
        udp.sendto(data, sender)


def tried(kind: type[SandboxTools] | type[BareTools], top: Path, names: list[str]) -> str:
    """What the probes print in a workspace."""

    async def run() -> str:
        bench = Bench(kind, top)
        await bench.tools.prepare(bench.workspace)
        bench.put("probes.py", Path(__file__).with_name("probes.py").read_bytes())
        with host() as arguments:
            words = ["python3", "-I", "probes.py", *arguments, *names]
            result = await bench.run(" ".join(words), timeout_ms=25_000)
        assert result.outcome == "ok", result
        return result.output.decode()

    return asyncio.run(run())


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Name -> verdict and evidence, all from one run in the sandbox."""
    top = tmp_path_factory.mktemp("probes")
    for folder in (top, *top.parents[:2]):
        folder.chmod(0o711)
    lines = [line.split("\t") for line in tried(SandboxTools, top, []).splitlines() if "\t" in line]
    return {name: rest for name, *rest in lines}


def test_there_are_57_probes() -> None:
    assert len(PROBES) == 57


@pytest.mark.parametrize("name", PROBES)
def test_X1_X11_F54_the_probe_is_denied(name: str, verdicts: dict[str, list[str]]) -> None:
    assert verdicts[name][0] == "denied", verdicts[name]


def test_the_probes_do_get_through_without_a_sandbox(short_dir: Path) -> None:
    lines = tried(BareTools, short_dir, OPEN_WITHOUT_A_SANDBOX).splitlines()
    assert {line.partition("\t")[0] for line in lines if "OPEN" in line} == {
        *OPEN_WITHOUT_A_SANDBOX
    }


USABLE = {
    "pipes": ("sh", "seq 100 | sort -rn | head -1", "100"),
    "python_multiprocessing": (
        "python3",
        'python3 -c "from multiprocessing import Pool; print(Pool(4).map(abs, [-1, -2]))"',
        "[1, 2]",
    ),
    "node": ("node", "node -e 'console.log(6 * 7)'", "42"),
    "java": ("java", "java -version 2>&1 | grep -c Runtime", "1"),
    "git": (
        "git",
        "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && "
        "git log --oneline | wc -l",
        "1",
    ),
    "gcc": (
        "gcc",
        "echo 'int main(){return 0;}' > a.c && gcc a.c -o /tmp/a && /tmp/a && echo built",
        "built",
    ),
    "local_server": (
        "python3",
        "python3 -c \"import socket as s; a = s.create_server(('127.0.0.1', 0)); "
        "b = s.create_connection(a.getsockname()); b.send(b'x'); print(a.accept()[0].recv(1))\"",
        "b'x'",
    ),
    "temporary_files": ("sh", "f=$(mktemp) && echo ok > $f && cat $f && test -w /dev/shm", "ok"),
}


@pytest.mark.parametrize("name", USABLE)
async def test_X1_F54_ordinary_work_goes_on(name: str, short_dir: Path) -> None:
    program, line, expected = USABLE[name]
    bench = Bench(SandboxTools, short_dir)
    await bench.tools.prepare(bench.workspace)
    if (await bench.run(f"command -v {program}")).outcome != "ok":
        pytest.skip(f"no {program} below /usr on this machine")
    result = await bench.run(line, timeout_ms=20_000)
    assert (result.outcome, result.output.decode().strip()) == ("ok", expected), result


def stand_ins(folder: Path, **scripts: str) -> str:
    """A search path with the named scripts before the real prlimit and setpriv, and no bwrap."""
    for name in ("prlimit", "setpriv"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


async def test_F50_each_line_shell_or_built_in_is_one_run_of_the_sandbox(short_dir: Path) -> None:
    """A stand-in notes each run of bubblewrap, then becomes it."""
    path, runs = short_dir / "bin", short_dir / "runs"
    path.mkdir()
    runs.touch()
    runs.chmod(0o666)
    note = f'echo run >> {runs}; exec {shutil.which("bwrap")} "$@"'
    bench = Bench(SandboxTools, short_dir)
    bench.tools = SandboxTools(
        bench.root, bench.state, search_path=f"{stand_ins(path, bwrap=note)}:{os.environ['PATH']}"
    )
    await bench.tools.prepare(bench.workspace)
    await bench.run("write warm.txt x")  # compiles the helper, in the sandbox too
    outside = str(Path("/proc/self/ns/pid").stat().st_ino)
    for line, output in {
        "write a.txt 'one two'": b"",
        "read a.txt": b"one two",
        "cat a.txt && cat a.txt | wc -l; readlink /proc/self/ns/pid": b"one two",
    }.items():
        runs.write_text("")
        result = await bench.run(line)
        assert runs.read_text() == "run\n", line
        assert output in result.output
        assert outside.encode() not in result.output
    assert (bench.folder / "a.txt").exists()


@pytest.mark.parametrize(
    ("scripts", "said"),
    [
        ({}, "bwrap"),
        ({"bwrap": "echo No permissions to create new namespace >&2; exit 1"}, "No permissions"),
        ({"bwrap": "kill -9 $$"}, "could not be started"),
    ],
)
async def test_F50_X2_without_a_sandbox_nothing_runs(
    short_dir: Path, scripts: dict[str, str], said: str
) -> None:
    path = short_dir / "bin"
    path.mkdir()
    bench = Bench(SandboxTools, short_dir)
    bench.tools = SandboxTools(bench.root, bench.state, search_path=stand_ins(path, **scripts))
    await bench.tools.prepare(bench.workspace)
    for line in ("touch ran", "write ran x"):
        with pytest.raises(RefusedError, match=said):
            await bench.run(line)
    assert not (bench.folder / "ran").exists()
    fails = [finding for finding in await bench.tools.check() if finding.level == "fail"]
    assert fails
    assert all("THREADLOG_SANDBOX=off" in finding.fix for finding in fails)


async def test_F50_X2_without_a_seccomp_filter_nothing_runs(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(SandboxTools, short_dir)
    await bench.tools.prepare(bench.workspace)
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    seccomp.program.cache_clear()
    try:
        with pytest.raises(RefusedError, match="libseccomp"):
            await bench.run("touch ran")
        assert {f.check for f in await bench.tools.check() if f.level == "fail"} == {"seccomp"}
    finally:
        seccomp.program.cache_clear()
    assert not (bench.folder / "ran").exists()


async def test_X2_without_a_python_the_self_test_says_the_fix(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadlog.adapters.sandbox.recipe.PYTHON", "/usr/bin/no-python")
    bench = Bench(SandboxTools, short_dir)
    await bench.tools.prepare(bench.workspace)
    [finding] = [finding for finding in await bench.tools.check() if finding.level == "fail"]
    assert (finding.check, "python3" in finding.fix) == ("python", True)
    with pytest.raises(RefusedError):
        await bench.run("read a.txt")
    assert (await bench.run("true")).outcome == "ok"


async def test_the_self_test_finds_a_hole(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    with (short_dir / "rules").open("w+b") as file:
        rules.export_bpf(file)
    monkeypatch.setattr(seccomp, "program", (short_dir / "rules").read_bytes)
    bench = Bench(SandboxTools, short_dir)
    found = {f.check for f in await bench.tools.check() if f.level == "fail"}
    assert any("netlink" in check for check in found), found
