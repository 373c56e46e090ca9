"""The files of this repository, as git would commit them, and their parsed Python."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "services" / "threadlog"
SKIPPED = {".git", ".venv", "__pycache__", ".threadlog", "build", "dist"}


@cache
def files() -> tuple[Path, ...]:
    """Every file that is tracked, or would be added by `git add .`; without git, all but caches."""
    # The folder may belong to someone else, as a mounted checkout does.
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = [ROOT / name for name in names.split("\0") if name]
    else:
        found = [p for p in ROOT.rglob("*") if not SKIPPED & set(p.relative_to(ROOT).parts)]
    return tuple(sorted(p for p in set(found) if p.is_file()))


def texts() -> Iterator[tuple[str, str]]:
    """(path relative to the root, content) of every file that is UTF-8 text."""
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data:
            yield name_of(path), data.decode()


def modules(top: str) -> Iterator[tuple[str, ast.Module]]:
    """(path relative to the root, syntax tree) of every Python file under `top`."""
    for path in files():
        if path.suffix == ".py" and name_of(path).startswith(f"{top}/"):
            yield name_of(path), parsed(path)


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    """The path as a person of this repository says it."""
    return path.relative_to(ROOT).as_posix()
