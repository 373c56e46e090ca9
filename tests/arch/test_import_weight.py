"""Help, version and reads start fast, because they load no model SDK and no web framework.

The set of loaded modules is tested, not the time: a time would depend on the machine.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRACING = {"opentelemetry", "structlog", "google"}
HEAVY = TRACING | {
    "anthropic",
    "fastapi",
    "hypothesis",
    "openai",
    "httpx2",
    "starlette",
    "uvicorn",
}

# Runs the command line as `python -m threadlog` does, then names every top package it loaded.
PROBE = """
import runpy, sys
names, sys.argv = sys.argv[1], ["threadlog", *sys.argv[2:]]
try:
    runpy.run_module("threadlog", run_name="__main__", alter_sys=True)
finally:
    with open(names, "w") as out:
        print(*{name.partition(".")[0] for name in sys.modules}, sep="\\n", file=out)
"""


def loaded_by(program: str, tmp_path: Path, *arguments: str) -> set[str]:
    """Top packages that a fresh Python has loaded after running `program`."""
    names = tmp_path / "names"
    environment = os.environ | {
        "HOME": str(tmp_path),
        "THREADLOG_DATA_DIR": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program, str(names), *arguments],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return set(names.read_text().split())


def test_the_probe_sees_what_is_loaded(tmp_path: Path) -> None:
    program = "import sys, httpx2; open(sys.argv[1], 'w').write(' '.join(sys.modules))"
    assert "httpx2" in loaded_by(program, tmp_path)


def test_the_package_itself_loads_nothing(tmp_path: Path) -> None:
    program = """
import sys
before = set(sys.modules)
import threadlog
open(sys.argv[1], "w").write(" ".join(set(sys.modules) - before))
"""
    assert loaded_by(program, tmp_path) == {"threadlog"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("version",),
        ("run", "--help"),
        ("thread", "ls"),
        ("thread", "show", "last"),
        ("thread", "tree", "last"),
    ],
    ids=" ".join,
)
def test_light_commands_load_no_sdk_and_no_framework(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    loaded = loaded_by(PROBE, tmp_path, *arguments)
    assert "threadlog" in loaded
    assert not loaded & HEAVY


SERVICES = {
    "embedded": ("threadlog.bootstrap.embedded",),
    "cluster": ("threadlog.bootstrap.serving", "threadlog.bootstrap.gateway_service"),
}
SENDING = ("opentelemetry.exporter", "opentelemetry.sdk.trace", "structlog", "requests")


@pytest.mark.parametrize(
    ("where", "is_on"), [("embedded", False), ("cluster", False), ("embedded", True)]
)
def test_F103_nothing_of_traces_is_loaded_unless_they_are_on(
    tmp_path: Path, where: str, is_on: bool
) -> None:
    program = f"""
import sys
import {", ".join(SERVICES[where])}
from threadlog.bootstrap.traced import traced
from threadlog.clock import SystemClock
from threadlog.settings import Settings
from threadlog.settings_parts import TracesSettings
traces = TracesSettings(endpoint={"http://127.0.0.1:9" if is_on else None!r})
with traced(Settings(traces=traces), "planner", "1", SystemClock()):
    open(sys.argv[1], "w").write(" ".join(sys.modules))
"""
    loaded = loaded_by(program, tmp_path)
    assert (set(SENDING) - {"structlog"} <= loaded) == is_on
    if not is_on:
        assert not {name for name in loaded if name.startswith(SENDING)}
    if not is_on and where == "embedded":
        # The client of Redis loads its metrics by itself, where they are installed.
        assert "opentelemetry" not in loaded
