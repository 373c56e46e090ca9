"""The walk of docs/operating.md, pasted: from nothing to a watched cluster, on its own loopback.

What installs (`make setup cluster`, `make tools`) is left to the lanes of CI that do just that; the
rest is run as it stands, in a network of its own, so that the ports are those of the page.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.arch.tree import ROOT
from tests.helpers.outside import tool
from tests.helpers.servers import need

PAGE = ROOT / "docs/operating.md"
DEADLINE_S = 150


def blocks() -> list[str]:
    """Those of the walk, which is the first chapter."""
    chapter = PAGE.read_text().split("\n## ")[1]
    return re.findall(r"^```sh\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)


def clone(folder: Path) -> None:
    """What the walk needs of a clone, in which nothing was started."""
    for name in ("deploy", "examples", "services"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".venv", ".kafka", ".tools"):
        (folder / name).symlink_to(ROOT / name)


def network_of_its_own() -> list[str]:
    """The command that runs another one where nobody else has ports."""
    rootless = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    found = ["unshare", *rootless, "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    probe = subprocess.run([*found, "true"], capture_output=True, check=False)
    need("network namespaces", None if probe.returncode == 0 else "unshare is not allowed here")
    return found


@pytest.mark.timeout(DEADLINE_S + 30)
def test_F105_the_walk_of_an_operator_can_be_pasted(
    short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    tool("prometheus")
    assert kafka_bootstrap, "the jars are here"
    assert redis_url, "redis-server is here"
    clone(short_dir)
    first, *rest = blocks()
    begin = ".venv/bin/python -m deploy.cluster up > /dev/null\n" + "\n".join(
        first.splitlines()[2:]
    )
    end = rest[-1].replace("make cluster-down", ".venv/bin/python -m deploy.cluster down")
    assert end != rest[-1]
    lines = ["ip link set lo up", "set -m", begin, *rest[:-1], end, "echo all is over"]
    environment = {name: os.environ[name] for name in ("PATH",)}
    environment |= {"HOME": str(short_dir), "LANG": "C.UTF-8"}
    environment |= {"THREADLOG_DATA_DIR": str(short_dir / "data")}
    done = subprocess.run(
        [*network_of_its_own(), "bash", "-c", "\n".join(lines)],
        cwd=short_dir,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    logs = "\n".join(f"{p.name}: {p.read_text()}" for p in short_dir.glob(".cluster/logs/*"))
    said = f"{done.stdout}\n{done.stderr}\n{logs}"
    assert "is not ready" not in done.stderr, said
    assert "Done: hello.py runs, and prints a greeting." in done.stdout, said
    for service in ("gateway", "planner", "tool_runner"):
        assert re.search(rf'service="{service}"}} => [1-9]', done.stdout), said
    assert re.search(r'group="threadlog\.metering"} => 0 @', done.stdout), said
    assert re.search(r'kind="input", tenant="acme"} => 1490 @', done.stdout), said
    assert "ThreadlogAppendFailing" not in done.stdout, said
    assert "alertname" not in done.stdout, said
    assert done.stdout.rstrip().endswith("all is over"), said
