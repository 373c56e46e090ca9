"""`demo`: a scripted model repairs a small project with the real tool, and you see why it did what.

It asserts its own success: the tests of the example, run by the model at the end, must pass.
"""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import threadlog
from threadlog.bootstrap.embedded import make_tools
from threadlog.cli.failures import ExitCode
from threadlog.cli.reading import open_reader
from threadlog.cli.run_plan import RunRequest
from threadlog.cli.running import run
from threadlog.cli.terminal import Screen
from threadlog.cli.tree import arrange, draw
from threadlog.errors import RefusedError
from threadlog.events.tool import ToolFinished, ToolRequested
from threadlog.ports.views import StoredEvent
from threadlog.settings import KafkaSettings, LogSettings, RedisSettings, Settings

_PROMPT = "A test of this project fails. Find out why, and repair it."
_TESTS = "python3 -m unittest"
_QUERY = "select sequence, type, caused_by from events"


def clone() -> Path:
    """The clone of the repository that this package lies in.

    Raises:  RefusedError: it lies elsewhere, such as in an installed wheel.
    """
    root = Path(threadlog.__file__).resolve().parents[2]
    if not (root / "examples" / "demo-script.json").is_file():
        raise RefusedError("the demo works in a clone of the repository: run `make demo` there")
    return root


async def demo(settings: Settings, screen: Screen) -> ExitCode:
    """The example is repaired in a workspace of its own, and the story is on stdout.

    Raises:  RefusedError: no command can be run here; says why, and what to do.
    """
    root = clone()
    # 1. Commands can be run here, in a sandbox.
    await _check_sandbox(settings)
    # 2. The turn, in a new thread on a log of its own.
    file = root / ".threadlog" / "demo.db"
    # As `docs/http.md` has it, workspaces of other users may lie below: root lets them through.
    file.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
    embedded = {"log": LogSettings(file=file), "kafka": KafkaSettings(), "redis": RedisSettings()}
    own = settings.model_copy(update=embedded)
    example = root / "examples" / "broken-calculator"
    screen.note(screen.err.paint(f'threadlog run "{_PROMPT}"', "bold"))
    request = RunRequest(
        prompt=_PROMPT,
        workspace=example,
        is_copied=True,
        script=root / "examples" / "demo-script.json",
        is_hinting=False,
    )
    end = await run(own, request, screen)
    if end.code is not ExitCode.OK or end.thread is None:
        return end.code
    # 3. What is in the log by now.
    async with open_reader(own) as reader:
        events = [stored async for stored in reader.events(end.thread)]
    screen.data("\nHow it came about: each event stands under what it belongs to, and `<- N`")
    screen.data("names its direct cause where that is another one.\n")
    for line in draw(arrange(events), screen.out):
        screen.data(line)
    for line in _ending(root, file):
        screen.data(line)
    # 4. The example's own tests are the judge.
    if not is_repaired(events):
        raise RefusedError("the demo failed: the example's tests do not pass at its end")
    screen.data("The example's tests pass in the workspace.")
    return ExitCode.OK


def is_repaired(events: Sequence[StoredEvent]) -> bool:
    """Whether the last run of the example's tests among these events succeeded."""
    outcomes: dict[str, str] = {}
    for stored in events:
        body = stored.event.body
        if isinstance(body, ToolRequested) and body.command == _TESTS:
            outcomes[stored.event.event_id] = ""
        elif isinstance(body, ToolFinished) and body.call_id in outcomes:
            outcomes[body.call_id] = body.outcome
    return list(outcomes.values())[-1:] == ["ok"]


async def _check_sandbox(settings: Settings) -> None:
    for finding in await make_tools(settings).check():
        if finding.level == "fail":
            fix = finding.fix
            if settings.sandbox != "off" and "THREADLOG_SANDBOX" not in fix:
                fix += ", or set THREADLOG_SANDBOX=off to run commands without a sandbox"
            raise RefusedError(
                f"no command can be run here ({finding.check}): {finding.evidence}. Fix: {fix}"
            )


def _ending(root: Path, file: Path) -> tuple[str, ...]:
    """Where the log is, how to read it, and what to try next."""
    here = Path.cwd() == root
    shown = shlex.quote(str(file.relative_to(root) if here else file))
    program = root / ".venv" / "bin" / "threadlog"
    name = "threadlog"
    if program.exists():
        name = shlex.quote(str(program.relative_to(root) if here else program))
    return (
        "",
        f"The log is {shown}, one SQLite file. Every event, with its cause:",
        f'  sqlite3 {shown} "{_QUERY}"',
        "",
        "Try next, on the same log:",
        f"  export THREADLOG_LOG__FILE={shown}",
        f"  {name} thread tail last --from 0   the same events, without sqlite3",
        f"  {name} thread show last        what was said and done",
        f"  {name} thread tree last --of 20   why event 20 happened, and what it led to",
        f"  {name} usage                   tokens by model",
        "and, with a model of yours, on any folder:",
        "  unset THREADLOG_LOG__FILE; export OPENAI_API_KEY=...   # or OPENAI_BASE_URL",
        f'  {name} run "what does this project do?" --workspace FOLDER --copy',
        "",
    )
