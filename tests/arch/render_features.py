"""docs/features.md is the table of docs/features.toml joined with the tests that prove its rows.

Run as `python tests/arch/render_features.py --write` or `--check`.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.arch.tree import ROOT, modules

SOURCE = ROOT / "docs/features.toml"
TARGET = ROOT / "docs/features.md"
TITLE_CHARS_MAX = 100
TEST_NAME = re.compile(r"test(?:_F\d{2,3})+(?=_)")
PROOFS_SHOWN_MAX = 3

HEADER = """# Features

Written by `make docs` from `docs/features.toml` and the names of the tests; do not edit.

A row is proven when the tests that carry its id pass: on the embedded log, and where a row is about
several processes on Kafka and Redis as well. Both run the same core over ports that one contract
suite tests. A row that waits names the wave in which it is due, and the tests, if any, that prove a
first part of it.

**{proven} of {total} rows proven.**

| row | what must be true | proven by |
|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One feature: what must be true, when, and which part of it is meant so far."""

    row_id: str
    title: str
    wave: int
    is_due: bool
    note: str | None


def rows() -> tuple[Row, ...]:
    """The rows in the order of the file."""
    return tuple(
        Row(
            row_id=row_id,
            title=entry["title"],
            wave=entry["wave"],
            is_due=entry.get("due", False),
            note=entry.get("note"),
        )
        for row_id, entry in tomllib.loads(SOURCE.read_text()).items()
    )


def proofs() -> dict[str, list[str]]:
    """Row id -> the tests named after it, as `file::Class::name`."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules("tests"):
        owners: list[tuple[str | None, list[ast.stmt]]] = [(None, tree.body)]
        owners += [(node.name, node.body) for node in tree.body if isinstance(node, ast.ClassDef)]
        for owner, body in owners:
            for node in body:
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if named := TEST_NAME.match(node.name):
                    for row_id in re.findall(r"F\d{2,3}", named[0]):
                        found[row_id].append("::".join(filter(None, (path, owner, node.name))))
    return {row_id: sorted(tests) for row_id, tests in found.items()}


def render() -> str:
    """The text of docs/features.md as it must be now."""
    proven = proofs()
    lines = []
    for row in rows():
        title = f"{row.title} ({row.note})" if row.note else row.title
        tests = proven.get(row.row_id, [])
        shown = [f"`{test.removeprefix('tests/')}`" for test in tests[:PROOFS_SHOWN_MAX]]
        if len(tests) > PROOFS_SHOWN_MAX:
            shown.append(f"and {len(tests) - PROOFS_SHOWN_MAX} more")
        if not row.is_due:
            shown.insert(0, f"waits, wave {row.wave}")
        lines.append(f"| {row.row_id} | {title} | {', '.join(shown) or 'nothing yet'} |")
    count = sum(row.is_due and row.row_id in proven for row in rows())
    return HEADER.format(proven=count, total=len(lines)) + "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Writes the document, or says whether it is stale."""
    match arguments:
        case ["--write"]:
            TARGET.write_text(render())
            return 0
        case ["--check"]:
            is_current = TARGET.exists() and TARGET.read_text() == render()
            if not is_current:
                print("docs/features.md is stale: make docs", file=sys.stderr)
            return not is_current
        case _:
            print("usage: render_features.py --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
