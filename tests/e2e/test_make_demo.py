"""`git clone`, `make demo`: the two commands of the README, on what a commit would hold now."""

import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.arch.tree import ROOT

DEMO_S = 120
STATE = """printf '%s %s\\n' "$PWD" \
    "$(cat requirements.lock pyproject.toml services/threadlog/version.py | cksum)"
"""
"""The stamp of an installation: `state_of` in deploy/install.sh."""


@pytest.fixture
def clone(short_dir: Path) -> Path:
    """A clone with a virtual environment that lends our packages, so that nothing is downloaded."""
    path = short_dir / "a clone"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).exists():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, path / name, follow_symlinks=False)
    venv = path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    [site] = venv.glob("lib/python*/site-packages")
    # The clone's own package; of the lent folder no .pth file is read, which would name ours.
    lent = sysconfig.get_path("purelib")
    (site / "lent.pth").write_text(f"{path / 'services'}\n{lent}\n")
    stamp = subprocess.run(["bash", "-c", STATE], cwd=path, capture_output=True, check=True).stdout
    (venv / ".installed-run").write_bytes(stamp)
    return path


@pytest.mark.timeout(DEMO_S + 30)
def test_F102_make_demo_runs_in_a_clone(
    short_dir: Path, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(short_dir))
    done = subprocess.run(
        ["make", "demo"],
        cwd=clone,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEMO_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "install:" not in done.stderr, "nothing was left to install"
    assert "completed after 5 steps" in done.stdout
    assert "The example's tests pass in the workspace." in done.stdout
    file = clone / ".threadlog" / "demo.db"
    with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as log:
        found = log.execute("select count(*) from events where type = 'turn.finished'").fetchall()
    log.close()
    assert found == [(1,)]
    broken = (clone / "examples/broken-calculator/calculator.py").read_text()
    assert broken == (ROOT / "examples/broken-calculator/calculator.py").read_text()
