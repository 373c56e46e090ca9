"""`threadlog thread ...`: options and examples."""

from typing import Annotated, Literal

import typer

from threadlog.cli.options import Entry, From, JsonFlag, Limit, LinesFlag, Thread, go

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
    as_json: JsonFlag = False,
) -> None:
    """List threads, the most recent one first."""
    from threadlog.cli.reading import ls
    from threadlog.cli.terminal import Screen
    from threadlog.settings import load_settings

    go(ls(load_settings(), Screen(), limit=limit, before=before, is_json=as_json))


def _show(
    thread: Thread, first: From = None, limit: Limit = None, as_json: JsonFlag = False
) -> None:
    """Show what was said and done.

    What is known of the thread, then its messages, responses, calls and their outcomes.
    Without --from it is about the newest 500 events.
    """
    from threadlog.cli.reading import show
    from threadlog.cli.terminal import Screen
    from threadlog.cli.window import Window
    from threadlog.settings import load_settings

    window = Window(first, limit, _SHOWN)
    go(show(load_settings(), Screen(), thread, window, is_json=as_json))


def _tail(
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
    as_json: LinesFlag = False,
) -> None:
    """Print events, one a line.

    A line is: seq, time, type, cause, what it says.
    Without --from it begins with the newest 50. With --json each line is a CloudEvent.
    """
    from threadlog.cli.tailing import tail
    from threadlog.cli.terminal import Screen
    from threadlog.cli.window import Window
    from threadlog.settings import load_settings

    window = Window(first, limit, _TAILED)
    settings, screen = load_settings(), Screen()
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
    as_json: JsonFlag = False,
) -> None:
    """Draw the events as a tree of causes.

    An event stands under what it belongs to: a step under its turn, a call under the response
    that asked for it. Where its direct cause is another event, <- SEQ names that one.
    Without --from it is about the newest 500 events.
    """
    from threadlog.cli.reading import tree
    from threadlog.cli.terminal import Screen
    from threadlog.cli.window import Window
    from threadlog.settings import load_settings

    window = Window(first, limit, _SHOWN)
    go(tree(load_settings(), Screen(), thread, window, of=of, is_json=as_json))


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
