"""One thread as a page of text: a header, then what was said and done, in order. Pure."""

from collections.abc import Iterator, Sequence

from threadlog.cli.event_text import content, counted, event_text, outcome_text, parts_text, tokens
from threadlog.cli.plain import cut, one_line, plain
from threadlog.cli.terminal import Look, Style
from threadlog.events.content import Text
from threadlog.events.envelope import Event, Opaque
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.step import ModelAttemptFailed, ModelInterrupted, ModelResponded, StepStarted
from threadlog.events.thread import ThreadConfigured
from threadlog.events.tool import FileChanged, ToolFinished, ToolRequested
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import CallId, EventId
from threadlog.ports.views import (
    StoredEvent,
    ThreadRow,
)

_OUTPUT_LINES = 12
_COMMAND_COLUMNS = 200


def header(row: ThreadRow, voids: str, look: Look) -> Iterator[str]:
    """What is known of the thread as a whole; `voids` is their number as text."""
    usage = row.usage
    amounts = f"{usage.input + usage.cache_read + usage.cache_write:,} in, {usage.output:,} out"
    verdict = f", last verdict {row.verdict}" if row.verdict else ""
    queued = f", {counted(row.queued, 'message')} waiting" if row.queued else ""
    entries = (
        ("thread", row.thread_id),
        ("title", one_line(row.title)),
        ("status", f"{row.status}{verdict}{queued}"),
        ("events", f"{row.head + 1:,} accepted, {voids} void"),
        ("turns", str(row.turns)),
        ("model", one_line(row.model or "none")),
        ("usage", f"{counted(usage.steps, 'step')}, {amounts}, {cost(usage.cost_micros)}"),
        ("time", f"{row.created_at} to {row.updated_at}"),
    )
    for name, value in entries:
        yield f"{look.paint(f'{name:<7}', 'dim')} {cut(value, _room(look, 8))}"


def cost(micros: int | None) -> str:
    """Millionths of a US dollar as a price; None is an unknown one."""
    return "cost unknown" if micros is None else f"${micros / 1_000_000:,.6f}"


class Page:
    """The transcript, line by line, of events that come in the order of their seq."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._commands: dict[CallId, str] = {}
        self._models: dict[EventId, str] = {}
        self._changes: dict[CallId, list[str]] = {}

    def lines(self, events: Sequence[StoredEvent]) -> Iterator[str]:
        """The lines of all events, then the calls that have not ended."""
        for stored in events:
            yield from self._event(stored.seq, stored.event)
        for command in self._commands.values():
            yield f"      {self._look.paint(f'$ {command}', 'bold')}"
            yield "      not ended yet"

    def _event(self, seq: int | None, event: Event) -> Iterator[str]:
        match event.body:
            case TurnStarted() | TurnFinished():
                yield self._rule(f"{seq} {event_text(event)}")
            case MessageReceived(content=parts):
                yield self._head(seq, one_line(event.actor))
                yield from self._block(parts_text(parts))
            case StepStarted() as body:
                self._models[event.event_id] = event_text(event)
            case ModelResponded() as body:
                yield from self._response(seq, body)
            case ToolRequested(command=command):
                self._commands[CallId(event.event_id)] = _command(command)
            case ToolFinished() as body:
                yield from self._outcome(seq, body)
            case ThreadConfigured() | CancelRequested() | ModelAttemptFailed() | ModelInterrupted():
                yield self._head(seq, f"{event.type}  {event_text(event)}")
            case FileChanged(call_id=call):
                self._changes.setdefault(call, []).append(event_text(event))
            case Opaque():
                yield self._head(seq, f"{event.type}  {event_text(event)}")
            case _:
                return

    def _response(self, seq: int | None, body: ModelResponded) -> Iterator[str]:
        claim = self._models.pop(body.claim, f"{body.model.provider}/{body.model.name}")
        billed = tokens(body.usage)
        yield self._head(seq, f"{claim}{f'  ({billed})' if billed else ''}")
        yield from self._block(parts_text(p for p in body.content if p.kind == "text"))

    def _outcome(self, seq: int | None, body: ToolFinished) -> Iterator[str]:
        command = self._commands.pop(body.call_id, f"(call {body.call_id[:8]})")
        style: Style = "green" if body.outcome == "ok" else "red"
        yield self._head(seq, f"$ {command}", "bold")
        yield f"      {self._look.paint(outcome_text(body), style)}"
        for change in self._changes.pop(body.call_id, ()):
            yield f"      {change}"
        lines = plain(content(body.output)).rstrip("\n").split("\n")
        for line in lines[:_OUTPUT_LINES]:
            if line or len(lines) > 1:
                yield self._look.paint(cut(f"        {line}", self._look.columns), "dim")
        if len(lines) > _OUTPUT_LINES:
            yield f"        … {len(lines) - _OUTPUT_LINES:,} more lines"

    def _rule(self, text: str) -> str:
        line = "──" if self._look.has_unicode else "--"
        return self._look.paint(f"{line} {text} {line}", "bold")

    def _head(self, seq: int | None, text: str, *styles: Style) -> str:
        number = self._look.paint(f"{seq or 0:>5}", "dim")
        return f"{number} {self._look.paint(cut(text, _room(self._look, 6)), *styles)}"

    def _block(self, text: str) -> Iterator[str]:
        """A text of several lines, whole; nothing for none."""
        for line in plain(text).rstrip("\n").split("\n") if text.strip() else ():
            yield f"      {line}"


def _command(command: Text | None) -> str:
    return cut(one_line("" if command is None else content(command)), _COMMAND_COLUMNS)


def _room(look: Look, taken: int) -> int | None:
    return None if look.columns is None else max(look.columns - taken, 20)
