"""`docker-compose.yml` as compose itself reads it: merged, its variables filled in.

Guarantees: what is returned is what `docker-compose config` says, with the defaults of the file and
no variable of the person at the keyboard. No engine is asked.
"""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.helpers.outside import tool

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
EXAMPLE = ROOT / ".env.example"
PROFILES = ("core", "observability", "tools", "full")
IMAGE = "threadlog:local"
_QUIETLY = ("--file", str(FILE), "--env-file", os.devnull)
_KNOB = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")
_SHOWN = re.compile(r"^#?([A-Z]\w+)=(.*)$", re.MULTILINE)


def config(*profiles: str, **variables: str) -> dict[str, Any]:
    """The resolved file with these profiles and these variables."""
    flags = [word for profile in profiles for word in ("--profile", profile)]
    done = subprocess.run(
        [str(tool("docker-compose")), *_QUIETLY, *flags, "config", "--format", "json"],
        check=False,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # A warning is a variable that is not set, or a key that is not known.
    assert not done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def services(*profiles: str) -> dict[str, dict[str, Any]]:
    """The services of these profiles, of all without any."""
    found = config(*(profiles or PROFILES))["services"]
    assert isinstance(found, dict)
    return found


def knobs() -> dict[str, str]:
    """Each variable that the file asks for, with its default, empty where it has none."""
    return dict(_KNOB.findall(FILE.read_text()))


def shown() -> dict[str, str]:
    """Each variable of `.env.example`, in a comment or not, with its value."""
    return dict(_SHOWN.findall(EXAMPLE.read_text()))
