"""What `run` tells the person who waits, on stderr: what happens, as it happens."""

from threadlog.cli.event_text import content, event_text, outcome_text, parts_text
from threadlog.cli.plain import cut, one_line, visible
from threadlog.cli.terminal import Screen, Style
from threadlog.events.content import TextPart
from threadlog.events.envelope import Event
from threadlog.events.input import CancelRequested
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepReleased,
    StepStarted,
)
from threadlog.events.tool import (
    FileChanged,
    ToolFinished,
    ToolReleased,
    ToolRequested,
    ToolStarted,
)
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import CallId
from threadlog.ports.notify import LiveDelta

_COMMAND_COLUMNS = 160


class Progress:
    """One turn, told line by line; text streams in where a person watches a terminal."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._look = screen.err
        self._commands: dict[CallId, str] = {}
        self._streamed: list[str] = []
        self._is_mid_line = False
        self.doing = "waiting for the turn to start"
        """What goes on now, for the line that says that it still does."""

    def streamed(self) -> str:
        """The text of the last response as it was shown, exactly."""
        return "".join(self._streamed)

    def delta(self, delta: LiveDelta) -> None:
        """A piece of a response has come."""
        if delta.kind != "text" or delta.call_id is not None or not self._screen.follows():
            return
        if delta.n == 0:
            # It takes the place of what came before of this response.
            self.end_line()
            self._streamed.clear()
        self._streamed.append(delta.text)
        self._screen.piece(visible(delta.text))
        self._is_mid_line = not delta.text.endswith("\n")

    def event(self, event: Event) -> None:
        """An event of the turn was accepted."""
        match event.body:
            case StepStarted():
                self.doing = f"{event_text(event)}: waiting for the model"
                self._streamed.clear()
            case ModelResponded() as body:
                self._response(body)
            case ToolRequested(command=command):
                text = one_line("" if command is None else content(command))
                self._commands[CallId(event.event_id)] = cut(text, _COMMAND_COLUMNS)
            case ToolStarted(call_id=call):
                self.doing = f"running {self._commands.get(call, '')}"
            case ToolFinished() as body:
                self._outcome(body)
            case _:
                self._rest(event)

    def line(self, text: str, *styles: Style) -> None:
        """A whole line, cut to the terminal, below whatever was streamed."""
        self.end_line()
        self._screen.note(self._look.paint(cut(text, self._look.columns), *styles))

    def end_line(self) -> None:
        """The next thing shown begins a line."""
        if self._is_mid_line:
            self._screen.piece("\n")
            self._is_mid_line = False

    def _response(self, body: ModelResponded) -> None:
        text = parts_text(part for part in body.content if isinstance(part, TextPart))
        self.end_line()
        if body.calls and text.strip() and text != self.streamed():
            self.line(one_line(text))

    def _outcome(self, body: ToolFinished) -> None:
        command = self._commands.pop(body.call_id, f"(call {body.call_id[:8]})")
        look, said = self._look, outcome_text(body)
        room = None if look.columns is None else max(look.columns - len(said) - 4, 20)
        style: Style = "green" if body.outcome == "ok" else "red"
        self.end_line()
        self._screen.note(f"$ {cut(command, room)}  {look.paint(said, style)}")

    def _rest(self, event: Event) -> None:
        body = event.body
        match body:
            case TurnStarted() | TurnFinished():
                self.doing = event_text(event)
            case FileChanged():
                self.line(f"  {event_text(event)}", "dim")
            case StepReleased() | ToolReleased():
                self.line(f"  given back, unused: {event_text(event)}")
            case ModelAttemptFailed():
                self.doing = "waiting for the next attempt"
                self.line(f"  model request: {event_text(event)}", "yellow")
            case ModelInterrupted() | CancelRequested():
                self.line(f"  {event_text(event)}")
            case _:
                return
