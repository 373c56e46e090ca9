"""What one event says, in one short line of safe text. Pure."""

from collections.abc import Iterable
from functools import singledispatch

from threadlog.cli.plain import cut, one_line
from threadlog.events.content import BlobRef, Text, Usage
from threadlog.events.envelope import Event, Opaque
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepFinished,
    StepReleased,
    StepStarted,
)
from threadlog.events.thread import ThreadConfigured, ThreadCreated
from threadlog.events.tool import (
    FileChanged,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.events.turn import TurnFinished, TurnStarted

_COLUMNS = 100


def event_text(event: Event, columns: int = _COLUMNS) -> str:
    """What the event says, without its type."""
    text = one_line(_says(event.body))
    if isinstance(event.body, MessageReceived | CancelRequested):
        text = f"{one_line(event.actor)}: {text}"
    return cut(text, columns)


def parts_text(parts: Iterable[object]) -> str:
    """The texts among the parts of a message or response, others by their kind."""
    found = []
    for part in parts:
        kind, text = getattr(part, "kind", ""), getattr(part, "text", None)
        found.append(content(text) if kind == "text" and text is not None else f"[{kind}]")
    return "".join(found)


def content(text: Text) -> str:
    """A content member; one that lies in the blob store by its size."""
    return f"[{text.bytes:,} bytes]" if isinstance(text, BlobRef) else text


def tokens(usage: Usage | None) -> str:
    """The billed tokens, `120 in, 30 out`; nothing when none were reported."""
    if usage is None:
        return ""
    return f"{usage.input + usage.cache_read + usage.cache_write:,} in, {usage.output:,} out"


def outcome_text(body: ToolFinished) -> str:
    """How a call ended: `ok, 23 ms`, `error, exit code 1`."""
    words: list[str] = [body.outcome.replace("_", " ")]
    if body.exit_code:
        words.append(f"exit code {body.exit_code}")
    if body.signal is not None:
        words.append(f"signal {body.signal}")
    if body.reason and body.reason not in ("exit", body.outcome):
        words.append(body.reason)
    if body.duration_ms is not None:
        words.append(f"{body.duration_ms:,} ms")
    return ", ".join(words)


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _joined(*words: str) -> str:
    return ", ".join(word for word in words if word)


@singledispatch
def _says(_: object) -> str:
    return ""


@_says.register
def _(_: Opaque) -> str:
    return "of a type or version that is unknown here, kept as it is"


@_says.register
def _(body: ThreadCreated) -> str:
    return body.title or ""


@_says.register
def _(body: ThreadConfigured) -> str:
    words = []
    if body.model is not None:
        words.append(f"model {body.model.provider}/{body.model.name}")
    if body.workspace is not None:
        words.append(f"workspace {body.workspace.path or body.workspace.kind}")
    if body.system_prompt is not None:
        words.append("a system prompt")
    if body.limits is not None:
        set_to = body.limits.model_dump(exclude_none=True)
        words += [f"{name} {value}" for name, value in set_to.items()]
    return ", ".join(words)


@_says.register
def _(body: MessageReceived) -> str:
    return parts_text(body.content)


@_says.register
def _(body: CancelRequested) -> str:
    return f"stop the {'turn' if body.call_id is None else 'call ' + body.call_id[:8]}"


@_says.register
def _(body: TurnStarted) -> str:
    return f"turn {body.number}"


@_says.register
def _(body: TurnFinished) -> str:
    cause = f" ({body.cause})" if body.cause else ""
    return f"{body.verdict}{cause} after {counted(body.steps, 'step')}"


@_says.register
def _(body: StepStarted) -> str:
    attempt = f"attempt {body.attempt}" if body.attempt > 1 else ""
    return _joined(f"step {body.number}", attempt, f"{body.model.provider}/{body.model.name}")


@_says.register
def _(body: StepFinished) -> str:
    return f"step {body.number}"


@_says.register
def _(body: StepReleased) -> str:
    return f"step {body.number}: {body.reason.replace('_', ' ')}"


@_says.register
def _(body: ModelResponded) -> str:
    text = cut(one_line(parts_text(p for p in body.content if p.kind == "text")), _COLUMNS * 2 // 3)
    calls = counted(len(body.calls), "call") if body.calls else ""
    cut_off = "cut at the token limit" if body.stop == "length" else ""
    return _joined(f'"{text}"' if text else "", calls, cut_off, tokens(body.usage))


@_says.register
def _(body: ModelAttemptFailed) -> str:
    then = f"next attempt in {body.delay_ms / 1_000:.1f} s" if body.retryable else "for good"
    return f"{body.error_class.replace('_', ' ')}, {then}: {body.message}"


@_says.register
def _(body: ModelInterrupted) -> str:
    text = parts_text(p for p in body.content if p.kind == "text")
    return f"{body.cause}: {text}" if text else body.cause


@_says.register
def _(body: ToolRequested) -> str:
    command = "" if body.command is None else content(body.command)
    return f"refused, {body.reason}: {command}" if body.gate == "refused" else command


@_says.register
def _(body: ToolStarted) -> str:
    return f"attempt {body.attempt}" if body.attempt > 1 else ""


@_says.register
def _(body: ToolReleased) -> str:
    return body.reason.replace("_", " ")


@_says.register
def _(body: FileChanged) -> str:
    if body.after is None:
        return f"deleted {body.path}"
    verb = "made" if body.before is None else "changed"
    return f"{verb} {body.path}, {body.after.bytes:,} bytes"


@_says.register
def _(body: ToolFinished) -> str:
    first = content(body.output).strip().partition("\n")[0]
    return f"{outcome_text(body)}: {first}" if first else outcome_text(body)
