"""`threadlog run`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from threadlog.cli.options import Entry, JsonFlag, Script, Url, ended, go


def _run(  # noqa: PLR0917  # typer calls it by name
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="What to do; - reads it from standard input.", show_default=False
        ),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", "-t", metavar="THREAD", help="Continue this one: an id, or last."),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            "-w",
            exists=True,
            file_okay=False,
            metavar="DIR",
            help="The folder to work in. Default: the current one.",
        ),
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Work on a copy of the folder, which stays as it is.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="NAME or PROVIDER/NAME. Default: THREADLOG_MODEL.",
        ),
    ] = None,
    script: Script = None,
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="FILE|TEXT", help="The system prompt, or a file with it."),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option("--max-steps", min=1, metavar="N", help="Model requests in a turn, at most."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Cancel the turn after this."),
    ] = None,
    url: Url = None,
    as_json: JsonFlag = False,
) -> None:
    """Send a message and wait for the answer.

    Progress goes to stderr, the answer alone to stdout.

    The first Ctrl-C cancels the turn, a second one leaves it behind. A turn goes on whoever
    watches: if this process dies, the next command carries it on from the log.

    With --url the thread works in the gateway's machine, in a workspace of its own; in a folder
    of this one only where the gateway is that of `threadlog up` here.

    Exit codes: 0 completed, 1 ended otherwise, 2 wrong use, 3 try again, 4 not allowed,
    5 no such thread, 7 out of steps, budget or quota, 130 interrupted.
    """
    from threadlog.cli.remote import settings_at
    from threadlog.cli.run_plan import RunRequest
    from threadlog.cli.running import read_prompt, read_system, run
    from threadlog.cli.terminal import Screen, show_logs

    show_logs()
    request = RunRequest(
        prompt=read_prompt(prompt),
        thread=thread,
        workspace=workspace,
        is_copied=copy,
        model=model,
        script=script,
        system=read_system(system),
        steps_max=max_steps,
        timeout_s=timeout,
        is_json=as_json,
    )
    screen = Screen()
    ended(go(run(settings_at(url, screen), request, screen)).code)


run = Entry(
    "run",
    _run,
    (
        'threadlog run "why do the tests fail?"',
        "git diff | threadlog run - --system 'review this change'",
        'threadlog run "repair it" --thread last --json',
        'threadlog run "try it out" --workspace ~/project --copy',
        'threadlog run "what is new?" --url https://threadlog.example.com',
    ),
)
