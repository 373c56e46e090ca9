"""docs/doctor.md, from the table of planted faults that the tests of `doctor` use.

Run as `python tests/arch/render_doctor.py --write` or `--check`.
"""

import sys
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.arch.tree import ROOT
from tests.helpers.doctor import Fault, faults
from threadlog.bootstrap.doctor.report import GROUPS, Group

TARGET = ROOT / "docs/doctor.md"

ABOUT: Final[dict[Group, str]] = {
    "config": "Variables that are wrong are set aside, and the rest is checked with what is left. "
    "[settings.md](settings.md) has them all.",
    "disk": "The data folder, and the folders of log file, workspaces and blobs where they are "
    "elsewhere: who may write there, free space, files that can still be made.",
    "log": "Of a cluster the broker and every topic that `threadlog topics apply` makes; else the "
    "embedded file and the process that runs on it. A log file of more than 1 GiB is not read "
    "through.",
    "groups": "Planner, tool-runner and projection as the broker knows them. A group in which "
    "something waits is looked at twice. Which version a member has is not known there.",
    "redis": "The server. What is in it is the next group.",
    "views": "What the projection has put into Redis: from which log, by which fold, how far.",
    "blobs": "What is written to try the folder has no name and is gone at once. Whether it is the "
    "folder of the other services is seen by the blobs that the newest records name.",
    "sandbox": "The self-test of the tool-runner, in a folder that goes again. On a cluster its "
    "failures are warnings: a machine that runs no commands needs no sandbox, and a tool-runner "
    "refuses to start without one.",
    "models": "What is configured here. With `--live` each provider is asked for its list of "
    "models, which costs nothing.",
    "keys": "The file of API keys that gateways of this machine read.",
    "clock": "No order goes by a clock, but retries, expiries and shown times do.",
    "gateway": "With `--url` or `THREADLOG_URL` the gateway there is asked, and nothing else.",
    "terminal": "What is known of it; never a failure.",
}

HEADER = """# What doctor says

Written by `tests/arch/render_doctor.py` from `docs/doctor.toml`; do not edit. Each row was planted
by a test, and the words are what `threadlog doctor` said; only what differs from machine to machine
is replaced.

`threadlog doctor` looks at a machine, at a cluster where the settings name one, or at a gateway
with `--url`. It changes nothing. All checks run at once, each for 10 s at most; one that breaks or
hangs hides no other, and what needs something that is away says so. The exit code is 1 when a check
fails; a warning is 0. `--json` has the same, with group and link, in the form of
`schemas/cli/doctor.schema.json`. No secret is ever shown.
"""


def render() -> str:
    """The text of docs/doctor.md as it must be now."""
    rows = list(faults().values())
    parts = [HEADER]
    for group in GROUPS:
        parts.append(f"\n## {group}\n\n{ABOUT[group]}\n")
        found = [row for row in rows if row.group == group]
        if found:
            parts.append("\n| fault | level | check | evidence | fix |\n|---|---|---|---|---|\n")
            parts += [_line(row) for row in found]
    return "".join(parts)


def _line(row: Fault) -> str:
    texts = (row.fault, row.level, row.check, row.evidence, row.fix)
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |\n"


def main(arguments: list[str]) -> int:
    """Writes the document, or says whether it is stale."""
    match arguments:
        case ["--write"]:
            TARGET.write_text(render())
            return 0
        case ["--check"]:
            is_current = TARGET.exists() and TARGET.read_text() == render()
            if not is_current:
                print("docs/doctor.md is stale: render_doctor.py --write", file=sys.stderr)
            return not is_current
        case _:
            print("usage: render_doctor.py --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
