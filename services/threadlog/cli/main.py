"""The program, and the one place where errors become messages and exit codes.

Only what a command needs is imported, when it runs: help and reads start fast. No traceback is
shown for what the world does: a closed pipe, Ctrl-C, a full disk, a wrong flag.
"""

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from threadlog.cli import cluster_commands, keys_commands, machine_commands, thread_commands
from threadlog.cli.failures import ExitCode, exit_code
from threadlog.cli.options import ExampleGroup, KeysGroup, ThreadGroup, TopicsGroup, with_examples
from threadlog.cli.run_command import run
from threadlog.errors import ThreadlogError, UsageError
from threadlog.version import VERSION

NAME = "threadlog"


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"{NAME} {VERSION}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """AI agents as event-sourced threads: the log is the only truth."""
    _need_command(context)


def _thread(context: typer.Context) -> None:
    """Read threads: what was done, and what caused what."""
    _need_command(context)


def _topics(context: typer.Context) -> None:
    """Prepare the topics of a cluster."""
    _need_command(context)


def _keys(context: typer.Context) -> None:
    """Make and revoke the API keys of programs."""
    _need_command(context)


def _need_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(ExitCode.USAGE)


def make_app() -> typer.Typer:
    """All commands, in the order of help."""
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(
        cls=ExampleGroup,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=settings,
    )
    app.callback(invoke_without_command=True)(_root)
    app.command("run", cls=with_examples(*run.examples))(run.command)
    threads = typer.Typer(cls=ThreadGroup, rich_markup_mode=None, context_settings=settings)
    threads.callback(invoke_without_command=True)(_thread)
    for entry in thread_commands.COMMANDS:
        threads.command(entry.name, cls=with_examples(*entry.examples))(entry.command)
    app.add_typer(threads, name="thread")
    topics = typer.Typer(cls=TopicsGroup, rich_markup_mode=None, context_settings=settings)
    topics.callback(invoke_without_command=True)(_topics)
    for entry in cluster_commands.TOPICS:
        topics.command(entry.name, cls=with_examples(*entry.examples))(entry.command)
    app.add_typer(topics, name="topics")
    keys = typer.Typer(cls=KeysGroup, rich_markup_mode=None, context_settings=settings)
    keys.callback(invoke_without_command=True)(_keys)
    for entry in keys_commands.KEYS:
        keys.command(entry.name, cls=with_examples(*entry.examples))(entry.command)
    app.add_typer(keys, name="keys")
    for entry in (*machine_commands.COMMANDS, *cluster_commands.COMMANDS):
        app.command(entry.name, cls=with_examples(*entry.examples))(entry.command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """The command ran; its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Started with it closed, as some launchers do: what is said there is not wanted.
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # open for life
    for stream in (sys.stdout, sys.stderr):
        # A character that this terminal cannot show must not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
        return ExitCode.PIPE_CLOSED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:
        _say(f"{error.filename or 'output'}: {error.strerror or error}")
        _silence()
        return ExitCode.FAILED
    return code


def _run(given: list[str]) -> int:
    try:
        command = typer.main.get_command(make_app())
        with command.make_context(NAME, list(given)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        return _fail(_usage_error(error), given)
    except ThreadlogError as error:
        return _fail(error, given)
    return ExitCode.OK


def _usage_error(error: typer.TyperException) -> UsageError:
    """What is wrong with the command line, and where to read how it is right."""
    context = getattr(error, "ctx", None)
    path = NAME if context is None else context.command_path
    return UsageError(f"{error.format_message().rstrip('.')}; see: {path} --help")


def _fail(error: ThreadlogError, given: list[str]) -> int:
    """The error is told; its exit code."""
    _say(str(error))
    if "--json" in given:
        from threadlog.cli.documents import ProblemDocument

        sys.stdout.write(ProblemDocument.of(error).json_line() + "\n")
    return exit_code(error)


def _say(message: str) -> None:
    from threadlog.cli.plain import one_line

    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{NAME}: {one_line(message)}\n")
        sys.stderr.flush()


def _silence() -> None:
    from threadlog.cli.terminal import silence

    silence(sys.stdout)
