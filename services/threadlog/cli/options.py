"""Options and arguments that several commands share, and help that opens with examples."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

T = TypeVar("T")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
LinesFlag = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
Thread = Annotated[
    str, typer.Argument(metavar="THREAD", help="An id, 6 or more of its first characters, or last.")
]
From = Annotated[
    int | None, typer.Option("--from", min=0, metavar="SEQ", help="Begin at this event.")
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", "-n", min=1, metavar="N", help="At most N events."),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Through the gateway there, with the key of THREADLOG_KEY_FILE. Default: "
        "THREADLOG_URL, else the log of this machine.",
    ),
]
Script = Annotated[
    Path | None,
    typer.Option(
        "--script",
        exists=True,
        dir_okay=False,
        metavar="FILE",
        help="Use the scripted model with this script.",
    ),
]


class _WithExamples:
    """Help that opens with examples. `EXAMPLES`: command lines, each with what it does."""

    EXAMPLES: tuple[str, ...] = ()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the examples, then what every command's help has."""
        if self.EXAMPLES:
            with formatter.section("Examples"):
                for line in self.EXAMPLES:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
            formatter.write("\n")
        super().format_help(ctx, formatter)  # type: ignore[misc]  # of the command it is mixed into


class ExampleGroup(_WithExamples, TyperGroup):
    """The commands of the whole program."""

    EXAMPLES = (
        "make demo                                     # no key needed",
        'threadlog run "why do the tests fail?"        # in this folder',
        'threadlog run "repair it" --thread last',
        "threadlog thread tree last                    # what caused what",
    )

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, `thread` behind `run`."""
        first = ("run", "thread")
        return [*first, *(name for name in super().list_commands(ctx) if name not in first)]


class ThreadGroup(_WithExamples, TyperGroup):
    """The commands on threads."""

    EXAMPLES = (
        "threadlog thread ls",
        "threadlog thread show last",
        "threadlog thread tail last -f",
        "threadlog thread tree last",
    )


class TopicsGroup(_WithExamples, TyperGroup):
    """The commands on the topics of a cluster."""

    EXAMPLES = ("threadlog topics plan", "threadlog topics apply")


class KeysGroup(_WithExamples, TyperGroup):
    """The commands on API keys."""

    EXAMPLES = ("threadlog keys create --tenant acme --name ci", "threadlog keys ls")


def with_examples(*lines: str) -> type[TyperCommand]:
    """The class of a command whose help opens with these lines."""
    return type("ExampleCommand", (_WithExamples, TyperCommand), {"EXAMPLES": lines})


def ended(code: int) -> None:
    """The command has ended with `code`. Raises Exit: a returned one would be taken for 0."""
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, the function that holds its options, and the examples of its help."""

    name: str
    command: Callable[..., None]
    examples: tuple[str, ...]


def go(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Ctrl-C raises KeyboardInterrupt, unless `work` minds signals itself."""
    import asyncio

    return asyncio.run(work)
