"""The Lua scripts, each in a file beside this module. Redis runs one as one step."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name that Redis gives it."""

    text: str
    sha: str


def _read(name: str) -> Script:
    text = (Path(__file__).parent / f"{name}.lua").read_text()
    # Redis names a script by SHA-1; nothing is protected by it.
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


APPLY = _read("apply")
BEGIN = _read("begin")
FIND = _read("find")
OPEN = _read("open")
RECORDS = _read("records")
