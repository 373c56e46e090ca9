"""What every lane may rely on: a clean environment, no way out to a network, lane timings.

It knows nothing of Threadlog itself; fixtures about logs, models or threads live with their lane.
"""

import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers import servers

TESTS = Path(__file__).parent
FOREIGN_PREFIXES = ("THREADLOG_", "OPENAI_", "ANTHROPIC_", "XDG_")
_lane_seconds: Counter[str] = Counter()
_lane_tests: Counter[str] = Counter()

settings.register_profile("threadlog", deadline=None, database=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("threadlog"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "threadlog")


@pytest.hookimpl
def pytest_configure(config: pytest.Config) -> None:
    """The fixtures of a broker and a Redis are there for every lane; nothing starts by itself."""
    config.pluginmanager.register(servers, "servers")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person at the keyboard reaches a test, nor a program that it starts."""
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True, scope="session")
def no_way_out() -> Iterator[None]:
    """A connection to anything but this machine fails in this process."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        is_inet = self.family in (socket.AF_INET, socket.AF_INET6)
        if is_inet and address[0] not in ("127.0.0.1", "::1", "localhost"):
            pytest.fail(f"a test reached for {address[0]}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder with a short path, for Unix sockets, that other users of the sandbox may enter."""
    path = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.hookimpl
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Time is counted to the lane, the first folder under tests/."""
    lane = Path(report.nodeid.partition("::")[0]).parts[1]
    _lane_seconds[lane] += report.duration  # type: ignore[assignment]  # Counter holds seconds here
    _lane_tests[lane] += report.when == "call"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line a lane, above the closing line."""
    terminalreporter.section("lanes")
    for lane, seconds in sorted(_lane_seconds.items()):
        terminalreporter.write_line(f"{lane:<10} {_lane_tests[lane]:>5} tests {seconds:>8.1f} s")
