"""The commands on the machine and on all threads: options and examples."""

from pathlib import Path
from typing import Annotated

import typer

from threadlog.cli.options import Entry, JsonFlag, Script, Url, ended, go


def _usage(
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="GROUPS",
            help="tenant, thread, turn, model, day or hour; several with commas.",
        ),
    ] = "model",
    thread: Annotated[
        str | None, typer.Option("--thread", "-t", metavar="THREAD", help="Only of this thread.")
    ] = None,
    url: Url = None,
    as_json: JsonFlag = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare it with what metering has counted."),
    ] = False,
) -> None:
    """Sum up what was used.

    Steps, tokens by kind, the cost where prices are known, and how long calls ran. Days and hours
    are UTC. --verify, on a cluster: exit code 0 when metering has counted the same for every
    tenant, 3 when it is only behind, 9 when it differs.
    """
    from threadlog.cli.remote import settings_at
    from threadlog.cli.terminal import Screen
    from threadlog.cli.usage import parse_groups, usage
    from threadlog.errors import UsageError

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other")
    if verify:
        from threadlog.cli.verifying import verify_usage

        if as_csv or thread is not None:
            raise UsageError("--verify compares whole tenants: it takes no --thread and no --csv")
        screen = Screen()
        ended(go(verify_usage(settings_at(url, screen), screen, is_json=as_json)))
        return
    groups, screen = parse_groups(by), Screen()
    settings = settings_at(url, screen)
    go(usage(settings, screen, groups, thread=thread, is_json=as_json, is_csv=as_csv))


def _doctor(
    url: Url = None,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the providers of models, too; it costs nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find what is wrong, and say how to mend it.

    Of a machine, of a cluster, or of a gateway with --url. It changes nothing.
    Exit code 1 when a check fails; a warning is 0.
    """
    from threadlog.cli.doctor import doctor
    from threadlog.cli.terminal import Screen

    ended(go(doctor(Screen(), url=url, is_live=live, is_json=as_json)))


def _version(as_json: JsonFlag = False) -> None:
    """Print the version."""
    from threadlog.version import VERSION

    if not as_json:
        typer.echo(f"threadlog {VERSION}")
        return
    from threadlog.cli.documents import VersionDocument

    typer.echo(VersionDocument.current().json_line())


def _schema(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Without it: the names.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the schema of an event, of the topics, of the routes or of what --json prints.

    JSON Schema, AsyncAPI or OpenAPI, as this version has it.
    """
    from threadlog.cli.schema import show_schema
    from threadlog.cli.terminal import Screen

    show_schema(Screen(), name, is_json=as_json)


def _up(script: Script = None) -> None:
    """Run all services in this process.

    Other commands use them, until Ctrl-C. Without it a run has them in its own process.
    Exit code 0 when it was told to end.
    """
    from threadlog.cli.serving import up
    from threadlog.cli.terminal import Screen, errors_told, show_logs
    from threadlog.settings import load_settings

    settings = load_settings()
    show_logs(settings.logging)
    screen = Screen(is_json=settings.logging.format == "json")
    with errors_told(screen):
        go(up(settings, screen, script))


def _scripted_model(
    script: Annotated[
        Path,
        typer.Argument(
            metavar="SCRIPT", exists=True, dir_okay=False, help="A JSON list of replies."
        ),
    ],
    host: Annotated[str, typer.Option(metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="0: a free one.")
    ] = 0,
    quirk: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUIRK",
            help="Answer as some servers do: no-usage, one-chunk, json, html, 401, 404, "
            "no-stream-options. May be given several times.",
        ),
    ] = None,
) -> None:
    """Serve a script as an OpenAI-compatible server.

    Its address is the line on stdout. It runs until Ctrl-C, and then ends with exit code 0.
    """
    from threadlog.cli.serving import scripted_model
    from threadlog.cli.terminal import Screen, show_logs

    show_logs()
    quirks = tuple(quirk or ())
    go(scripted_model(Screen(), script, host=host, port=port, quirks=quirks))


def _demo() -> None:
    """Let a scripted model repair a small project.

    The tool and its sandbox are the real ones; no key is needed. It works on a copy, on a log of
    its own, and prints the thread as a tree of causes. Exit code 0 only when the tests of the
    project pass in the end.
    """
    from threadlog.cli.demo import demo
    from threadlog.cli.terminal import Screen, show_logs
    from threadlog.settings import load_settings

    show_logs()
    ended(go(demo(load_settings(), Screen())))


COMMANDS = (
    Entry(
        "usage",
        _usage,
        (
            "threadlog usage",
            "threadlog usage --by day,model --csv",
            "threadlog usage -t last",
            "threadlog usage --verify",
        ),
    ),
    Entry(
        "doctor",
        _doctor,
        (
            "threadlog doctor",
            "threadlog doctor --live --json",
            "threadlog doctor --url https://threadlog.example.com",
        ),
    ),
    Entry("up", _up, ("threadlog up", "threadlog up --script replies.json")),
    Entry(
        "scripted-model",
        _scripted_model,
        (
            "threadlog scripted-model examples/demo-script.json --port 8000",
            "OPENAI_BASE_URL=http://127.0.0.1:8000/v1 threadlog run PROMPT --copy",
        ),
    ),
    Entry("demo", _demo, ("threadlog demo",)),
    Entry(
        "schema",
        _schema,
        ("threadlog schema", "threadlog schema turn.started.1", "threadlog schema asyncapi"),
    ),
    Entry("version", _version, ("threadlog version", "threadlog version --json")),
)
