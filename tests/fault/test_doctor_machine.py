"""Faults planted on one machine, and what `doctor` says of each."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.command_line import ROOT, CommandLine, wait_for
from tests.helpers.doctor import finds, levels, plain
from tests.helpers.foreign_server import Received, fixed, foreign_server, speaking_server
from tests.helpers.servers import need, reserved_port
from threadlog.adapters.sandbox.tools import SandboxTools
from threadlog.adapters.sqlite.schema import USER_VERSION
from threadlog.api.keys import DEFAULT_SCOPES
from threadlog.bootstrap.doctor import checks, report
from threadlog.bootstrap.doctor.checks import diagnose
from threadlog.bootstrap.doctor.environment import salvage_settings
from threadlog.bootstrap.doctor.report import Check, Told, examine
from threadlog.bootstrap.keys import open_keys
from threadlog.cli.doctor import waiting
from threadlog.cli.terminal import Screen
from threadlog.clock import SystemClock
from threadlog.errors import RefusedError
from threadlog.ids import LOCAL_TENANT
from threadlog.ports.tools import Finding
from threadlog.version import VERSION

CANARY = "canary-1c9e"
# Runs where it may mount: each file system is as small, or as read-only, as a test wants it.
SMALL = """
import asyncio, json, subprocess, sys
from pathlib import Path
from threadlog.bootstrap.doctor.blobs import writable
from threadlog.bootstrap.doctor.facts import Facts
from threadlog.bootstrap.doctor.machine import disk
from threadlog.clock import SystemClock
from threadlog.settings import BlobsSettings, Settings

async def main():
    found = {}
    for name, options in (
        ("full", "size=1m"), ("low", "size=100m"), ("inodes", "size=600m,nr_inodes=50"),
        ("readonly", "ro,size=1g"),
    ):
        folder = Path(sys.argv[1]) / name
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
        [found[name]] = await disk("data folder", folder / "data", "THREADLOG_DATA_DIR")
        assert not list(folder.iterdir())
    settings = Settings(blobs=BlobsSettings(url=f"file://{folder}"))
    [found["blobs"]] = await writable(Facts(settings, SystemClock()))
    print(json.dumps({name: [f.level, f.check, f.evidence, f.fix] for name, f in found.items()}))

asyncio.run(main())
"""


async def found_here(*, is_live: bool = False) -> tuple[Told, ...]:
    """What doctor finds with the settings of the environment."""
    settings, wrong = salvage_settings()
    return await diagnose(settings, wrong, SystemClock(), is_live=is_live)


@pytest.fixture
def home(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a sandbox, on which nothing was done yet."""
    monkeypatch.setenv("THREADLOG_DATA_DIR", str(short_dir / "data"))
    monkeypatch.setenv("THREADLOG_SANDBOX", "off")
    return short_dir


def names(home: Path) -> Mapping[str, str]:
    return {str(home): "/srv/threadlog"}


async def test_F106_settings_that_are_unknown_or_do_not_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told, and what is right is still used."""
    monkeypatch.setenv("THREADLOG_KAFKA__BOOTSTRP", CANARY)
    monkeypatch.setenv("THREADLOG_METRICS__PORT", CANARY)
    told = await found_here()
    finds(told, "setting-unknown", names(home))
    finds(told, "setting-invalid", names(home))
    assert str(home) in str(told)
    assert CANARY not in str(told)
    assert os.environ["THREADLOG_METRICS__PORT"] == CANARY
    monkeypatch.setenv("THREADLOG_KAFKA__SASL_USERNAME", "somebody")
    finds(await found_here(), "settings-at-odds", names(home))


async def test_F106_half_a_cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved_port() as port:
        monkeypatch.setenv("THREADLOG_KAFKA__BOOTSTRAP", f"127.0.0.1:{port}")
        told = await found_here()
    finds(told, "cluster-half", names(home))
    assert levels(told)["redis", "server"] == "fail"


def test_F106_a_disk_that_is_full_or_read_only(short_dir: Path) -> None:
    argv = ("unshare", "-rm", sys.executable, "-c", SMALL, str(short_dir))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "services")}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and "unshare" in done.stderr:
        need("mounts", "this machine forbids user namespaces")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    told = {
        name: Told("blobs" if name == "blobs" else "disk", Finding(*said))
        for name, said in found.items()
    }

    def shown(name: str) -> Mapping[str, str]:
        return {str(short_dir / name): "/srv/threadlog"}

    finds([told["full"]], "disk-full", shown("full"))
    finds([told["low"]], "disk-low", shown("low"))
    finds([told["inodes"]], "disk-inodes", shown("inodes"))
    finds([told["readonly"]], "disk-read-only", shown("readonly"))
    finds([told["blobs"]], "blobs-unwritable", shown("readonly"))


async def test_F106_a_log_that_is_damaged_newer_or_no_log(home: Path) -> None:
    path = home / "data" / "threadlog.db"
    line = CommandLine(home)
    script = line.script("replies", {"text": "hello"})
    ran = line.run("run", "hi", "--copy", "--script", script, THREADLOG_SANDBOX="off")
    assert ran.code == 0, ran
    assert levels(await found_here())["log", "file"] == "ok"
    whole = path.read_bytes()
    # The root page of an index, so that the file opens and reads of rows work.
    with sqlite3.connect(path) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
        [page] = connection.execute(query).fetchone()
        [size] = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    damaged = bytearray(whole)
    damaged[(page - 1) * size + 3 : (page - 1) * size + 5] = b"\x7f\xff"
    path.write_bytes(damaged)
    [damage] = [
        e.finding for e in await found_here() if (e.group, e.finding.check) == ("log", "file")
    ]
    assert damage.level == "fail", damage
    finds(
        [Told("log", damage)],
        "log-damaged",
        {**names(home), damage.evidence.partition(": ")[2]: "WHAT SQLITE SAYS"},
    )
    path.write_bytes(whole)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    knows = {f"this one knows {USER_VERSION}": "this one knows 1"}
    finds(await found_here(), "log-newer", {**names(home), **knows})
    path.write_bytes(b"not a log" * 1_000)
    finds(await found_here(), "log-foreign", names(home))


async def test_F106_a_runtime_that_does_not_answer(home: Path) -> None:
    line = CommandLine(home)
    script = line.script("replies", {"text": "hello"})
    off = {"THREADLOG_SANDBOX": "off", "THREADLOG_GATEWAY__PORT": "0"}
    with line.started("up", "--script", script, **off) as process:
        wait_for(process.stderr, "HTTP on ")
        told = await found_here()
        assert levels(told)["log", "runtime"] == "ok"
        assert f"process {process.pid}" in str(told)
        process.send_signal(signal.SIGSTOP)
        try:
            finds(await found_here(), "runtime-frozen", names(home))
        finally:
            process.send_signal(signal.SIGCONT)
    told = await found_here()
    assert "none runs" in str(told), "the note of one that was killed names nobody"


@pytest.mark.parametrize(
    ("bwrap", "name"),
    [
        (None, "bwrap-missing"),
        ("echo No permissions to create new namespace >&2; exit 1", "namespaces-forbidden"),
    ],
)
async def test_F106_a_sandbox_that_cannot_be(
    home: Path, monkeypatch: pytest.MonkeyPatch, bwrap: str | None, name: str
) -> None:
    path = home / "bin"
    path.mkdir()
    for program in ("prlimit", "setpriv"):
        (path / program).symlink_to(f"/usr/bin/{program}")
    if bwrap is not None:
        (path / "bwrap").write_text(f"#!/bin/sh\n{bwrap}\n")
        (path / "bwrap").chmod(0o755)

    def tools(settings: object) -> SandboxTools:
        (home / "state").mkdir(exist_ok=True)
        return SandboxTools(home / "spaces", home / "state", search_path=str(path))

    monkeypatch.setattr(checks, "make_tools", tools)
    told = await found_here()
    finds(told, name, names(home))
    if bwrap is not None:
        return
    # On a machine of a cluster nobody may want to run commands.
    with reserved_port() as port:
        monkeypatch.setenv("THREADLOG_KAFKA__BOOTSTRAP", f"127.0.0.1:{port}")
        sandbox = [e.finding.level for e in await found_here() if e.group == "sandbox"]
    assert "warn" in sandbox
    assert "fail" not in sandbox


async def test_F106_no_python_below_usr(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADLOG_SANDBOX", "bubblewrap")
    monkeypatch.setattr("threadlog.adapters.sandbox.recipe.PYTHON", "/usr/bin/no-python")
    finds(await found_here(), "python-missing", {"no-python": "python3"})


async def test_F106_models_without_a_key_or_with_a_bad_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(await found_here(), "model-missing", names(home))
    monkeypatch.setenv("THREADLOG_MODEL", "anthropic/large")
    finds(await found_here(), "model-default", names(home))
    monkeypatch.delenv("THREADLOG_MODEL")
    monkeypatch.setenv("THREADLOG_SCRIPTED__SCRIPT", str(home / "none.json"))
    finds(await found_here(), "script-missing", names(home))
    refused = json.dumps({"error": {"message": f"bad key {CANARY}", "code": "invalid_api_key"}})
    async with foreign_server(fixed(401, refused.encode())) as server:
        for variable in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{variable}_API_KEY", CANARY)
            monkeypatch.setenv(f"{variable}_BASE_URL", server.url)
        assert "live" not in str(await found_here()), "it was not asked for"
        assert server.received == []
        told = await found_here(is_live=True)
        finds(told, "model-key-refused", names(home))
        finds(told, "model-key-refused-anthropic", names(home))
        assert CANARY not in str(told)
        assert {
            request.target.rpartition("/")[2].partition("?")[0] for request in server.received
        } == {"models"}
    finds(await found_here(is_live=True), "model-away", names(home))


async def test_F106_keys_that_cannot_be_read_or_are_over(home: Path) -> None:
    settings, _ = salvage_settings()
    keys = open_keys(settings)
    record, _ = keys.create(LOCAL_TENANT, "app", DEFAULT_SCOPES, None)
    assert levels(await found_here())["keys", "keys file"] == "ok"
    keys.revoke(record.id)
    finds(await found_here(), "keys-none", names(home))
    settings.keys_file().chmod(0o644)
    finds(await found_here(), "keys-open", names(home))
    settings.keys_file().chmod(0o600)
    settings.keys_file().write_text("{")
    finds(await found_here(), "keys-damaged", names(home))


@dataclass(frozen=True, slots=True)
class Odd:
    """Answers as a gateway would that is older, or whose views stand still."""

    version: str = VERSION
    behind_ms: int = 0

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        fresh = {"as_of_seq": None, "behind_ms": self.behind_ms}
        body: dict[str, object] = {**fresh, "threads": [], "next": None, "scanned": 0}
        if request.target == "/v1/info":
            lists: dict[str, object] = {
                "capabilities": [],
                "scopes": [],
                "limits": {},
                "models": {},
            }
            body = {"version": self.version, "event_schema": "1", "tenant_id": "local", **lists}
        await fixed(200, json.dumps(body).encode(), {"content-type": "application/json"})(writer)


async def test_F106_a_gateway_that_is_away_or_odd(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a real one says of a good key and a bad one stands with `--url`."""
    with reserved_port() as port:
        monkeypatch.setenv("THREADLOG_URL", f"http://127.0.0.1:{port}")
        finds(await found_here(), "gateway-no-key", names(home))
        monkeypatch.setenv("THREADLOG_KEY", CANARY)
        told = await found_here()
        finds(told, "gateway-away", names(home))
        assert {each.group for each in told} == {"config", "gateway"}
    monkeypatch.setenv("THREADLOG_URL", "http://threadlog.invalid")
    finds(await found_here(), "gateway-open", names(home))
    for odd, name in (
        (Odd(version="0.0.1"), "gateway-version"),
        (Odd(behind_ms=75_000), "gateway-behind"),
    ):
        async with speaking_server(odd) as server:
            monkeypatch.setenv("THREADLOG_URL", server.url.removesuffix("/v1"))
            finds(await found_here(), name, {**names(home), VERSION: "0.1.0"})
    async with foreign_server(fixed(404, b"not here")) as server:
        monkeypatch.setenv("THREADLOG_URL", server.url.removesuffix("/v1"))
        finds(await found_here(), "gateway-none", names(home))


async def test_F106_no_secret_is_printed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with reserved_port() as port:
        for name, value in {
            "THREADLOG_KAFKA__BOOTSTRAP": f"127.0.0.1:{port}",
            "THREADLOG_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "THREADLOG_KAFKA__SASL_MECHANISM": "PLAIN",
            "THREADLOG_KAFKA__SASL_USERNAME": "somebody",
            "THREADLOG_KAFKA__SASL_PASSWORD": f"{CANARY}-1",
            "THREADLOG_REDIS__URL": f"redis://:{CANARY}-2@127.0.0.1:{port}/0",
            "THREADLOG_KEY": f"{CANARY}-3",
            "OPENAI_API_KEY": f"{CANARY}-4",
            "OPENAI_BASE_URL": f"http://someone:{CANARY}-5@127.0.0.1:{port}/v1",
            "ANTHROPIC_API_KEY": f"{CANARY}-6",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        }.items():
            monkeypatch.setenv(name, value)
        told = await found_here(is_live=True)
    assert levels(told)["models", "openai"] == "ok"
    assert CANARY not in str(told)


async def test_F106_a_secret_in_an_error_is_taken_out() -> None:
    async def leaks() -> list[Finding]:
        raise RefusedError(f"redis://:{CANARY}@host does not take {CANARY}")

    [told] = await examine([Check("redis", "server", leaks)], {CANARY})
    assert told.finding.evidence == "redis://***@host does not take ***"


async def test_F106_one_check_that_hangs_or_breaks_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "DOCTOR_CHECK_MS", 300)
    monkeypatch.setattr(report, "DOCTOR_SLOW_MS", 50)
    slow: list[str] = []

    async def hangs() -> list[Finding]:
        await asyncio.Event().wait()
        return []

    async def breaks() -> list[Finding]:
        raise ZeroDivisionError

    there, back = asyncio.Event(), asyncio.Event()

    async def calls() -> list[Finding]:
        there.set()
        await back.wait()
        return [Finding("ok", "third", "fine")]

    async def answers() -> list[Finding]:
        """Only if both run at once does either of them end."""
        await there.wait()
        back.set()
        return [Finding("ok", "fourth", "fine")]

    runs = [("first", hangs), ("second", breaks), ("third", calls), ("fourth", answers)]
    told = await examine([Check("log", name, run) for name, run in runs], on_slow=slow.append)
    found = [(each.finding.check, each.finding.level) for each in told]
    assert found == [("first", "fail"), ("second", "fail"), ("third", "ok"), ("fourth", "ok")]
    assert "ZeroDivisionError" in told[1].finding.evidence
    assert slow == ["log: first"]


@pytest.mark.parametrize(
    ("is_terminal", "said"), [(True, "waiting for log: broker\n"), (False, "")]
)
def test_F106_a_person_is_told_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_terminal: bool,
    said: str,
) -> None:
    screen = Screen()
    monkeypatch.setattr(screen, "follows", lambda: is_terminal)
    waiting(screen, "log: broker")
    assert capsys.readouterr().err == said


def test_F106_it_leaves_nothing_behind(short_dir: Path) -> None:
    line = CommandLine(short_dir)
    before = sorted(short_dir.rglob("*"))
    first = line.run("doctor", "--json", HOME=str(short_dir), TMPDIR="/tmp")
    assert sorted(short_dir.rglob("*")) == before
    levels_found = {str(found["level"]) for found in findings_of(first.json())}
    assert first.code == ("fail" in levels_found), "a warning is no failure"
    script = line.script("replies", {"text": "hello"})
    off = {"THREADLOG_SANDBOX": "off"}
    assert line.run("run", "hi", "--copy", "--script", script, **off).code == 0
    before = sorted(short_dir.rglob("*"))
    line.run("doctor", "--json", TMPDIR="/tmp", **off)
    assert sorted(short_dir.rglob("*")) == before


def test_F106_what_a_person_sees_has_groups_and_fixes(short_dir: Path) -> None:
    ended = CommandLine(short_dir).run("doctor", THREADLOG_SANDBOX="off")
    assert ended.code == 0
    lines = ended.out.splitlines()
    headings = [line for line in lines if not line.startswith(" ")]
    assert headings[:-1] == ["config", "disk", "log", "sandbox", "models", "keys", "terminal"]
    assert "warn" in headings[-1]
    assert "docs/doctor.md" in headings[-1]
    assert any(line.strip().startswith("fix: ") for line in lines)
    assert ended.err == ""


def findings_of(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    found = document["findings"]
    assert isinstance(found, list)
    return found


def test_what_is_shown_is_normal() -> None:
    assert (
        plain("/a/b: 12 MiB free, 3 more files", {"/a": "/x"}) == "/x/b: N MiB free, N more files"
    )
