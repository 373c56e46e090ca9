"""The commands that run and prepare a cluster: options and examples."""

from enum import StrEnum
from typing import Annotated

import typer

from threadlog.cli.options import Entry, JsonFlag, ended, go


class ServiceChoice(StrEnum):
    """The services that run as processes of their own."""

    GATEWAY = "gateway"
    PLANNER = "planner"
    TOOL_RUNNER = "tool-runner"
    PROJECTION = "projection"
    METERING = "metering"


def _serve(
    service: Annotated[ServiceChoice, typer.Argument(metavar="SERVICE", show_default=False)],
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            min=0,
            max=65_535,
            metavar="PORT",
            help="Where metrics and health are served; 0: a free one, printed.",
        ),
    ] = None,
) -> None:
    """Run one service of a cluster: gateway, planner, tool-runner, projection or metering.

    Any number of each may run; they share the partitions of the log. It needs
    THREADLOG_KAFKA__BOOTSTRAP, THREADLOG_REDIS__URL and THREADLOG_BLOBS__URL; metering needs the
    first alone. On Ctrl-C or SIGTERM
    its partitions go to others at once, and it ends, with exit code 0, when what it runs has ended.
    """
    from threadlog.cli.serving import serve_one
    from threadlog.cli.terminal import Screen, errors_told, show_logs
    from threadlog.settings import load_settings

    settings = load_settings()
    show_logs(settings.logging)
    screen = Screen(is_json=settings.logging.format == "json")
    with errors_told(screen):
        go(serve_one(settings, screen, service.value, metrics_port))


def _plan(as_json: JsonFlag = False) -> None:
    """Show what `topics apply` would do.

    Exit code 9 when something differs, 0 when nothing does.
    """
    from threadlog.cli.terminal import Screen
    from threadlog.cli.topics import plan
    from threadlog.settings import load_settings

    ended(go(plan(load_settings(), Screen(), is_json=as_json)))


def _apply(as_json: JsonFlag = False) -> None:
    """Make the topics of the cluster, or set what differs.

    Nothing is ever deleted, and a number of partitions is never changed: threads would be torn.
    """
    from threadlog.cli.terminal import Screen
    from threadlog.cli.topics import apply
    from threadlog.settings import load_settings

    ended(go(apply(load_settings(), Screen(), is_json=as_json)))


COMMANDS = (
    Entry(
        "serve", _serve, ("threadlog serve planner", "threadlog serve projection --metrics-port 0")
    ),
)
TOPICS = (
    Entry("plan", _plan, ("threadlog topics plan", "threadlog topics plan --json")),
    Entry("apply", _apply, ("threadlog topics apply",)),
)
