"""docs/cli.md is the help of every command; schemas/cli/ is what `--json` prints.

Run as `python tests/arch/render_cli_docs.py --write` or `--check`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("", "services")]

from tests.arch.tree import ROOT
from threadlog.cli.failures import ExitCode
from threadlog.cli.main import NAME, make_app
from threadlog.cli.schemas import DOCUMENTS, schema_of

PAGE = ROOT / "docs/cli.md"
SCHEMAS = ROOT / "schemas/cli"
COLUMNS = 90

CODES: dict[ExitCode, str] = {
    ExitCode.OK: "as asked; `up`, `serve` and `scripted-model`: told to end",
    ExitCode.FAILED: "failed, refused, or the turn ended other than `completed`",
    ExitCode.USAGE: "a wrong command, flag, file or setting",
    ExitCode.TRANSIENT: "may work later: try the same again",
    ExitCode.NOT_ALLOWED: "not authenticated, or not allowed",
    ExitCode.NOT_FOUND: "no such thread or event, or there is none yet",
    ExitCode.CONFLICT: "the state moved on, or the request is void",
    ExitCode.BUDGET: "out of steps, budget or quota",
    ExitCode.DIFFERS: "`topics plan`: something differs from the settings",
    ExitCode.INTERRUPTED: "interrupted: Ctrl-C",
    ExitCode.PIPE_CLOSED: "whoever read the output has gone, as in `| head`",
    ExitCode.TERMINATED: "terminated: SIGTERM",
}

INTRODUCTION = """# Command line

Written by `make docs` from the help of the commands; do not edit.

stdout carries data only; progress, warnings and messages go to stderr. With `--json` a command
prints one document, `thread tail` one object a line, and a command that fails prints one problem
object. Their JSON Schemas are in `schemas/cli/`; members are added, never changed.

THREAD is an id, at least 6 of its first characters, or `last`, the one with the latest event. What
a model, a tool or a file says is shown without terminal escapes. `NO_COLOR`, `FORCE_COLOR`,
`TERM=dumb` and `COLUMNS` are honoured.

## Exit codes

| code | means |
|---|---|
"""

MORE = """
8 (waiting for an approval) is kept for commands to come.
"""


def pages() -> Iterator[tuple[str, str]]:
    """(command path, help) of every command, in the order of help."""
    yield from _pages(typer.main.get_command(make_app()), None, NAME)


def render() -> str:
    """The text of docs/cli.md as it must be now."""
    codes = "".join(f"| {code.value} | {text} |\n" for code, text in CODES.items())
    commands = "".join(f"\n## {path}\n\n```\n{text}\n```\n" for path, text in pages())
    return INTRODUCTION + codes + MORE + commands


def schemas() -> dict[Path, str]:
    """File to its text as it must be now."""
    return {
        SCHEMAS / f"{name}.schema.json": json.dumps(schema_of(name), indent=2) + "\n"
        for name in DOCUMENTS
    }


def _pages(command: Any, parent: Any, name: str) -> Iterator[tuple[str, str]]:
    context = typer.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=COLUMNS,
        help_option_names=["-h", "--help"],
    )
    yield context.command_path, command.get_help(context)
    for inner in getattr(command, "commands", {}) and command.list_commands(context):
        yield from _pages(command.commands[inner], context, inner)


def main(arguments: list[str]) -> int:
    """Writes the files, or says which are stale."""
    wanted = {PAGE: render(), **schemas()}
    match arguments:
        case ["--write"]:
            SCHEMAS.mkdir(parents=True, exist_ok=True)
            for path, text in wanted.items():
                path.write_text(text)
            return 0
        case ["--check"]:
            stale = [p for p, text in wanted.items() if not p.exists() or p.read_text() != text]
            for path in stale:
                print(f"{path.relative_to(ROOT)} is stale: make docs", file=sys.stderr)
            return bool(stale)
        case _:
            print("usage: render_cli_docs.py --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
