"""`run`: one message, the turn that takes it, its answer."""

import asyncio
import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from threadlog.bootstrap.embedded import RunOptions, make_tools
from threadlog.bootstrap.link import Link, connected
from threadlog.bootstrap.models import model_choice
from threadlog.cli.documents import ProblemDocument, RunDocument
from threadlog.cli.event_text import counted, tokens
from threadlog.cli.failures import ExitCode, verdict_code
from threadlog.cli.interrupts import Interrupts
from threadlog.cli.names import find_thread, short
from threadlog.cli.plain import one_line, plain
from threadlog.cli.progress import Progress
from threadlog.cli.terminal import Screen
from threadlog.cli.watching import Watch
from threadlog.client.reading import TurnResult
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import UsageError
from threadlog.events.content import ModelRef, TextPart
from threadlog.events.thread import Limits, Workspace
from threadlog.ids import LOCAL_TENANT, ThreadId, WorkspaceId, draw, new_thread_id
from threadlog.limits import MESSAGE_BYTES_MAX
from threadlog.ports.tools import WorkspaceRef
from threadlog.settings import Settings

_PATH_CHARS_MAX = 4_096


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What `run` was asked for. `thread` None: a new one; members that are None: the defaults."""

    prompt: str
    thread: str | None = None
    workspace: Path | None = None
    is_copied: bool = False
    model: str | None = None
    script: Path | None = None
    system: str | None = None
    steps_max: int | None = None
    timeout_s: float | None = None
    is_json: bool = False
    is_hinting: bool = True
    """Whether the last line says how to look at the thread."""


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
            folder = await _folder(settings, request)
            configured = await _settings(settings, request, folder)
            options = RunOptions(actor(), request.script)
            async with connected(settings, options, _notice(progress)) as link:
                interrupts.turn_begins()
                message = await _send(link, request, configured, folder)
                screen.note(_opening(message, configured, folder))
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


async def _folder(settings: Settings, request: RunRequest) -> Path | None:
    """The folder to work in, checked where the calls run in this process; None: as it is.

    Raises:  RefusedError: no command may work there.
    """
    if request.is_copied and request.thread is not None:
        raise UsageError("--copy makes a workspace for a new thread: leave out --thread")
    if request.thread is not None and request.workspace is None:
        return None
    folder = (request.workspace or Path()).resolve()
    if not request.is_copied and not settings.is_cluster:
        ref = WorkspaceRef(WorkspaceId(draw()), LOCAL_TENANT, ThreadId(draw()), folder)
        await make_tools(settings).prepare(ref)
    return folder


async def _settings(
    settings: Settings, request: RunRequest, folder: Path | None
) -> ThreadSettings | None:
    """The settings that the thread gets; None: it keeps what it has."""
    model: ModelRef | None = None
    if request.script is not None and request.model is None:
        model = ModelRef(provider="scripted", name=request.script.stem or "scripted")
    elif request.thread is None or request.model is not None:
        model = await model_choice(settings, request.model, request.script)
    workspace = None
    if folder is not None and request.is_copied:
        workspace = Workspace(kind="managed")
    elif folder is not None:
        workspace = Workspace(kind="attached", path=str(folder))
    chosen = ThreadSettings(
        model=model,
        system_prompt=request.system,
        limits=None if request.steps_max is None else Limits(steps_max=request.steps_max),
        workspace=workspace,
    )
    return None if chosen == ThreadSettings() else chosen


async def _send(
    link: Link, request: RunRequest, configured: ThreadSettings | None, folder: Path | None
) -> Accepted:
    """The message is in the inbox of its thread."""
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


def _opening(message: Accepted, configured: ThreadSettings | None, folder: Path | None) -> str:
    words = [f"thread {short(message.thread_id)}"]
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
