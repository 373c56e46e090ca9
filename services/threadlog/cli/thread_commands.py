"""`threadlog thread ...`: options and examples."""

from typing import Annotated, Literal

import typer

from threadlog.cli.options import Entry, From, JsonFlag, Limit, LinesFlag, Thread, Url, go

_SHOWN = 500
_TAILED = 50


def _ls(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=500, metavar="N", help="At most N threads.")
    ] = 50,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="THREAD", help="Threads less recent than this one."),
    ] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """List threads, the most recent one first."""
    from threadlog.cli.reading import ls
    from threadlog.cli.remote import settings_at
    from threadlog.cli.terminal import Screen

    screen = Screen()
    go(ls(settings_at(url, screen), screen, limit=limit, before=before, is_json=as_json))


def _show(
    thread: Thread,
    first: From = None,
    limit: Limit = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what was said and done.

    What is known of the thread, then its messages, responses, calls and their outcomes.
    Without --from it is about the newest 500 events.
    """
    from threadlog.cli.reading import show
    from threadlog.cli.remote import settings_at
    from threadlog.cli.terminal import Screen
    from threadlog.cli.window import Window

    window = Window(first, limit, _SHOWN)
    screen = Screen()
    go(show(settings_at(url, screen), screen, thread, window, is_json=as_json))


def _tail(  # noqa: PLR0917  # typer calls it by name
    thread: Thread,
    first: From = None,
    limit: Limit = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those that come, until Ctrl-C.")
    ] = False,
    until: Annotated[
        Literal["turn"] | None,
        typer.Option("--until", help="Follow until the open turn has finished."),
    ] = None,
    url: Url = None,
    as_json: LinesFlag = False,
) -> None:
    """Print events, one a line.

    A line is: seq, time, type, cause, what it says.
    Without --from it begins with the newest 50. With --json each line is a CloudEvent.
    """
    from threadlog.cli.remote import settings_at
    from threadlog.cli.tailing import tail
    from threadlog.cli.terminal import Screen
    from threadlog.cli.window import Window

    window = Window(first, limit, _TAILED)
    screen = Screen()
    settings = settings_at(url, screen)
    ends = until is not None
    go(tail(settings, screen, thread, window, is_json=as_json, follow=follow, until_turn=ends))


def _tree(
    thread: Thread,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="EVENT", help="Only what led to this event (seq or id), and from it."
        ),
    ] = None,
    first: From = None,
    limit: Limit = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw the events as a tree of causes.

    An event stands under what it belongs to: a step under its turn, a call under the response
    that asked for it. Where its direct cause is another event, <- SEQ names that one.
    Without --from it is about the newest 500 events.
    """
    from threadlog.cli.reading import tree
    from threadlog.cli.remote import settings_at
    from threadlog.cli.terminal import Screen
    from threadlog.cli.window import Window

    window = Window(first, limit, _SHOWN)
    screen = Screen()
    go(tree(settings_at(url, screen), screen, thread, window, of=of, is_json=as_json))


COMMANDS = (
    Entry(
        "ls",
        _ls,
        ("threadlog thread ls", "threadlog thread ls --json | jq -r '.threads[].thread_id'"),
    ),
    Entry(
        "show",
        _show,
        ("threadlog thread show last", "threadlog thread show 1a2b3c4d --from 120"),
    ),
    Entry(
        "tail",
        _tail,
        (
            "threadlog thread tail last -f",
            "threadlog thread tail last --until turn",
            "threadlog thread tail 1a2b3c4d --json --from 0 > thread.jsonl",
        ),
    ),
    Entry(
        "tree",
        _tree,
        ("threadlog thread tree last", "threadlog thread tree last --of 20"),
    ),
)
