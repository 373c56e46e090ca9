"""`deploy/Dockerfile` read, and its builder stage carried out without a container engine.

Guarantees: what runs are the file's own RUN lines, on the files that its COPY lines take from what
`.dockerignore` lets through. What does not: packages of Debian, and the second stage.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
VENV = "/opt/threadlog"
STATE = "/var/lib/threadlog"
_CACHES = shutil.ignore_patterns("__pycache__", "*.py[cod]")
_ASSIGNED = re.compile(r'([\w.]+)=("[^"]*"|\S*)')


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction: `RUN`, and all that follows it, joined and without comments."""

    word: str
    rest: str


def stage(name: str) -> list[Line]:
    """The instructions of the stage of that name, its FROM first."""
    text = "\n".join(
        line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#")
    )
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [Line(*line.split(None, 1)) for line in joined.splitlines() if line.strip()]
    starts = [n for n, line in enumerate(lines) if line.word == "FROM"]
    begin = next(n for n in starts if lines[n].rest.endswith(f" AS {name}"))
    return lines[begin : next((n for n in starts if n > begin), len(lines))]


def assigned(lines: list[Line], word: str) -> dict[str, str]:
    """What ENV or LABEL set, as it is written."""
    rests = " ".join(line.rest for line in lines if line.word == word)
    return {name: value.strip('"') for name, value in _ASSIGNED.findall(rests)}


def context(into: Path) -> None:
    """`into` holds what a build is given: the names that `.dockerignore` allows, and no cache."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in (line[1:].rstrip("/") for line in lines if line.startswith("!")):
        _copy(ROOT / name, into / name)


def build(home: Path) -> Path:
    """The builder stage ran below `home`; its virtual environment is returned."""
    given, source, venv = home / "context", home / "src", home / "venv"
    context(given)
    source.mkdir()
    for line in stage("builder"):
        match line.word:
            case "COPY":
                *names, target = line.rest.split()
                for name in names:
                    is_folder = target.endswith("/")
                    _copy(given / name, source / target / name if is_folder else source / target)
            case "RUN" if "apt-get" not in line.rest:
                command = line.rest.replace(VENV, str(venv)).replace("/wheels", f"{home}/wheels")
                _run(command, source)
            case _:
                pass
    return venv


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_CACHES)
    else:
        shutil.copy2(source, target)


def _run(command: str, folder: Path) -> None:
    """As a builder would: `sh -c`, and nothing of this process but its way to packages."""
    kept = ("PATH", "HOME", "LANG", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
    variables = {n: v for n, v in os.environ.items() if n in kept or n.startswith("PIP_")}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}"
