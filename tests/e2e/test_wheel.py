"""The wheel is whole: installed outside the tree, it runs and carries its data files."""

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.arch.tree import PACKAGE, ROOT, files

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, built without a network."""
    out = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(out),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = out.glob("threadlog-*.whl")
    return built


@pytest.fixture
def outside(wheel: Path, tmp_path: Path) -> Run:
    """Runs a Python program that sees the installed wheel and not this tree."""
    target = tmp_path / "installed with spaces"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True)
    path = f"{target}:{sysconfig.get_path('purelib')}:{sysconfig.get_path('platlib')}"

    def run(*arguments: str) -> str:
        # -S: without `site` no .pth file can lead back to the tree.
        command = [sys.executable, "-S", "-W", "error", *arguments]
        environment = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    return run


def test_wheel_carries_every_file_of_the_package(wheel: Path) -> None:
    ours = {
        f"threadlog/{p.relative_to(PACKAGE).as_posix()}" for p in files() if PACKAGE in p.parents
    }
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == ours


def test_wheel_says_version_and_licence(wheel: Path) -> None:
    archive = ZipFile(wheel)
    [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
    text = archive.read(metadata).decode()
    assert "License-Expression: Apache-2.0" in text
    assert f"Version: {wheel.name.split('-')[1]}" in text


def test_wheel_runs_outside_the_tree(wheel: Path, outside: Run, tmp_path: Path) -> None:
    where = outside("-c", "import threadlog; print(threadlog.__file__)").strip()
    assert Path(where).is_relative_to(tmp_path)
    assert wheel.name.split("-")[1] in outside("-m", "threadlog", "version")
