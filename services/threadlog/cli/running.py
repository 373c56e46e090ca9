"""`run`: one message, the turn that takes it, its answer."""

import asyncio
import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from threadlog.bootstrap.embedded import RunOptions
from threadlog.bootstrap.link import Link, connected
from threadlog.bootstrap.url_link import UrlLink
from threadlog.cli.documents import ProblemDocument, RunDocument
from threadlog.cli.event_text import counted, tokens
from threadlog.cli.failures import ExitCode, verdict_code
from threadlog.cli.interrupts import Interrupts
from threadlog.cli.names import find_thread, short
from threadlog.cli.plain import one_line, plain
from threadlog.cli.progress import Progress
from threadlog.cli.run_plan import RunPlan, RunRequest, plan_here, plan_there
from threadlog.cli.terminal import Screen
from threadlog.cli.watching import Watch
from threadlog.commands.requests import Accepted, NewMessage, NewThread
from threadlog.errors import UsageError
from threadlog.events.content import TextPart
from threadlog.events.thread import Workspace
from threadlog.ids import LOCAL_TENANT, ThreadId, draw, new_thread_id
from threadlog.limits import MESSAGE_BYTES_MAX
from threadlog.queries.reading import TurnResult
from threadlog.settings import Settings

_PATH_CHARS_MAX = 4_096


def read_prompt(argument: str | None) -> str:
    """The prompt: the argument, or standard input for `-`, or when no person sits at it.

    Raises:  UsageError: there is none, it is no text, or it is too long.
    """
    if argument is None and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError('no prompt: threadlog run "PROMPT", or - to read standard input')
    if argument is None or argument == "-":
        data = b"" if sys.stdin is None else sys.stdin.buffer.read(MESSAGE_BYTES_MAX + 1)
    else:
        data = os.fsencode(argument)
    if len(data) > MESSAGE_BYTES_MAX:
        raise UsageError(f"the prompt is longer than {MESSAGE_BYTES_MAX:,} bytes; put it in a file")
    try:
        prompt = data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt is not UTF-8 text (byte {error.start})") from None
    if not prompt.strip():
        raise UsageError('the prompt is empty: threadlog run "PROMPT"')
    return prompt.rstrip("\n")


def read_system(value: str | None) -> str | None:
    """The system prompt: the content of the file that `value` names, else `value` itself.

    Raises:  UsageError: it looks like a file, and there is none that can be read.
    """
    if value is None or "\n" in value or len(value) > _PATH_CHARS_MAX:
        return value
    path = Path(value).expanduser()
    try:
        if path.is_file():
            return path.read_text()
    except (OSError, ValueError) as error:
        raise UsageError(f"--system: cannot read {value}: {error}") from None
    if " " not in value and ("/" in value or path.suffix):
        raise UsageError(f"--system: there is no file {value}")
    return value


def actor() -> str:
    """Who acts: the user of this process."""
    uid = os.geteuid()
    try:
        return f"user:{pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user:{uid}"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How `run` ended. `thread` None: no message was sent."""

    code: ExitCode
    thread: ThreadId | None = None


async def run(settings: Settings, request: RunRequest, screen: Screen) -> RunEnd:
    """The turn has ended or the person has left; the answer is on stdout.

    Raises:  every error of the commands; nothing was started when it is a UsageError.
    """
    progress = Progress(screen)
    end: RunEnd | None = None
    with Interrupts() as interrupts:
        try:
            is_here = settings.url is None
            plan = await plan_here(settings, request) if is_here else None
            options = RunOptions(actor(), request.script)
            async with connected(settings, options, _notice(progress)) as link:
                if plan is None:
                    assert isinstance(link, UrlLink), "what a URL is connected by"
                    plan = await plan_there(link, settings, request)
                interrupts.turn_begins()
                message = await _send(link, request, plan)
                screen.note(_opening(message, plan, settings.url))
                watch = Watch(link, message, progress, interrupts, request.timeout_s)
                result = await watch.result()
                interrupts.turn_ended()
                end = RunEnd(_told(request, result, watch, screen), message.thread_id)
                if result is None:
                    link.detach()
        except asyncio.CancelledError:
            if interrupts.code is None:
                raise
        return end or RunEnd(interrupts.code or ExitCode.OK)


def _notice(progress: Progress) -> Callable[[str], None]:
    return lambda text: progress.line(f"threadlog: {plain(text)}")


async def _send(link: Link, request: RunRequest, plan: RunPlan) -> Accepted:
    """The message is in the inbox of its thread."""
    configured, folder = plan.configured, plan.folder
    if configured is not None and configured.model is not None:
        await link.check_model(configured.model.provider)
    message = NewMessage((TextPart(text=request.prompt),))
    if request.thread is not None:
        thread = (await find_thread(link.reader, request.thread)).thread_id
        if configured is not None:
            await link.commands.configure(thread, configured, key=draw())
        return await link.commands.send_message(thread, message, key=draw())
    assert configured is not None, "a new thread has a model and a workspace"
    key = draw()
    if request.is_copied:
        # Before the thread exists, under the id that it will have: no thread without its files.
        assert folder is not None
        await link.copy_folder(folder, new_thread_id(LOCAL_TENANT, key))
    return await link.commands.create_thread(NewThread(configured, message=message), key=key)


def _opening(message: Accepted, plan: RunPlan, url: str | None) -> str:
    configured, folder = plan.configured, plan.folder
    words = [f"thread {short(message.thread_id)}"]
    if url is not None:
        words.append(f"at {url}")
    if configured is not None and configured.model is not None:
        words.append(f"model {configured.model.provider}/{configured.model.name}")
    if folder is not None:
        is_copy = configured is not None and configured.workspace == Workspace(kind="managed")
        words.append(f"{'a copy of ' if is_copy else ''}{folder}")
    return one_line(", ".join(words))


def _told(request: RunRequest, result: TurnResult | None, watch: Watch, screen: Screen) -> ExitCode:
    """The answer is on stdout, the rest on stderr; the exit code that says how it went."""
    watch.progress.end_line()
    look_at = f"threadlog thread show {short(watch.message.thread_id)}"
    if result is None:
        detail = f"left before the turn ended; look: {look_at}"
        screen.note(detail)
        if request.is_json:
            screen.data(_left(watch, detail).json_line())
        return watch.interrupts.code or ExitCode.TRANSIENT
    if request.is_json:
        screen.data(RunDocument.of(result).json_line())
    elif result.answer and not (screen.is_same() and watch.progress.streamed() == result.answer):
        screen.data(plain(result.answer))
    screen.flush()
    cause = f" ({result.cause})" if result.cause else ""
    said = f"{result.verdict}{cause}, {counted(result.steps, 'step')}"
    billed = f", {tokens(result.usage)}" if result.usage else ""
    screen.note(one_line(f"{said}{billed}{f'; look: {look_at}' if request.is_hinting else ''}"))
    return verdict_code(result.verdict, by_us=watch.interrupts.cancel.is_set())


def _left(watch: Watch, detail: str) -> ProblemDocument:
    code, title = ("timeout", "Out of time") if watch.is_timed_out else ("interrupted", "Left")
    return ProblemDocument(code=code, title=title, detail=detail, retryable=watch.is_timed_out)
