"""What is installed is pinned by hash, equal with and without the tools, and names no address."""

import re
import sysconfig
import tomllib
from pathlib import Path

from tests.arch.tree import ROOT

PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>\S+)", re.MULTILINE)


def pins(lock: str) -> dict[str, str]:
    return {m["name"]: m["version"] for m in PIN.finditer((ROOT / lock).read_text())}


def declared() -> tuple[set[str], set[str]]:
    """Names of run-time and of all requirements in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]

    def names(lines: list[str]) -> set[str]:
        return {re.split(r"[><=~!\[; ]", line)[0] for line in lines}

    extras = project["project"]["optional-dependencies"].values()
    run = names(project["project"]["dependencies"]) | names(groups["build"])
    run |= {name for extra in extras for name in names(extra)}
    return run, run | names(groups["dev"])


def test_locks_hold_everything_that_is_declared() -> None:
    run, everything = declared()
    assert run <= pins("requirements.lock").keys()
    assert everything <= pins("requirements-dev.lock").keys()


def test_both_locks_agree() -> None:
    run, everything = pins("requirements.lock"), pins("requirements-dev.lock")
    assert run.items() <= everything.items()


def test_every_pin_has_a_hash_and_no_address() -> None:
    for lock in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / lock).read_text()
        assert not re.search(r"://|^-|@ ", text, re.MULTILINE)
        for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in block, block.splitlines()[0]


def test_no_package_runs_code_at_interpreter_start() -> None:
    """A .pth file runs before any of our code; each one that is there is known."""
    known = {"_threadlog.pth", "a1_coverage.pth", "distutils-precedence.pth"}
    found = {path.name for path in Path(sysconfig.get_path("purelib")).glob("*.pth")}
    assert found <= known
