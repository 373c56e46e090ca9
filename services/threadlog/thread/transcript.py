"""The transcript: accepted events projected to provider-neutral messages.

A message of the inbox stands where a turn or step admitted it; tool results stand behind the
response that asked for them, in the model's own order, whatever order they came in. Every call has
its result: a response is part of the messages once the last of its calls is settled.
"""

from collections.abc import Iterable

from threadlog.events.content import MessagePart, Text
from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.events.step import ModelInterrupted, ModelResponded, StepStarted
from threadlog.events.tool import Outcome, ToolFinished
from threadlog.events.turn import TurnStarted
from threadlog.ids import CallId, EventId, call_id
from threadlog.thread.messages import (
    AssistantMessage,
    Message,
    MessageCall,
    ToolMessage,
    UserMessage,
)

_NOTES: dict[Outcome, str] = {
    "ok": "",
    "error": "",
    "timeout": "[timed out and was killed]",
    "cancelled": "[cancelled and was killed]",
    "denied": "[denied: it was not run]",
    "not_started": "[not started: it was not run]",
    "unknown": (
        "[outcome unknown: the worker died while this ran. It may or may not have taken effect; "
        "verify before you retry]"
    ),
}


class Transcript:
    """The messages of a growing stream. Feed accepted events in order; ask at any time."""

    __slots__ = ("_calls", "_messages", "_order", "_results", "_waiting")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._waiting: dict[EventId, tuple[MessagePart, ...]] = {}
        self._order: tuple[MessageCall, ...] = ()
        self._results: dict[CallId, ToolMessage] = {}
        self._calls: dict[CallId, MessageCall] = {}

    def add(self, event: Event) -> None:
        """`event`, the next accepted one, is part of the transcript."""
        match event.body:
            case MessageReceived(content=content):
                self._waiting[event.event_id] = content
            case TurnStarted(admits=admits) | StepStarted(admits=admits):
                self._close_step()
                self._messages += self._take(admits)
            case ModelResponded() as body:
                self._close_step()
                self._order = tuple(
                    MessageCall(call_id(event.event_id, n), call.name, call.arguments)
                    for n, call in enumerate(body.calls)
                )
                self._calls = {call.call_id: call for call in self._order}
                self._messages.append(
                    AssistantMessage(body.content, self._order, body.model.provider)
                )
            case ModelInterrupted(content=content) if content:
                self._close_step()
                self._messages.append(AssistantMessage(content, (), "", interrupted=True))
            case ToolFinished() as body if (call := self._calls.get(body.call_id)) is not None:
                text = outcome_text(body)
                self._results[body.call_id] = ToolMessage(
                    body.call_id, call.name, text, body.outcome != "ok"
                )

    def call(self, call: CallId) -> MessageCall | None:
        """The call as the model wrote it, while its step is the newest one."""
        return self._calls.get(call)

    def messages(
        self, pending: Iterable[Event] = (), admits: tuple[EventId, ...] = ()
    ) -> tuple[Message, ...]:
        """The messages so far, then what `pending` events and the steering `admits` add.

        Shapes:  nothing of `pending` or `admits` is kept.
        """
        copy = Transcript()
        copy._messages = list(self._messages)
        copy._waiting = dict(self._waiting)
        copy._order, copy._calls = self._order, self._calls
        copy._results = dict(self._results)
        for event in pending:
            copy.add(event)
        copy._close_step()
        return (*copy._messages, *copy._take(admits))

    def _take(self, admits: tuple[EventId, ...]) -> list[UserMessage]:
        found = (self._waiting.pop(message_id, None) for message_id in admits)
        return [UserMessage(parts) for parts in found if parts is not None]

    def _close_step(self) -> None:
        """The results of the last response follow it in its order; without all of them it goes."""
        if len(self._results) == len(self._order):
            self._messages += (self._results[call.call_id] for call in self._order)
        else:
            self._messages.pop()
        self._order, self._calls, self._results = (), {}, {}


def outcome_text(body: ToolFinished) -> Text:
    """What the model is told of an outcome. A reference stays one: it is rendered when loaded."""
    output, note = body.output, _NOTES[body.outcome]
    if body.outcome == "error":
        note = _error_note(body)
    elif body.reason and note:
        note = f"{note[:-1]} ({body.reason})]"
    if not isinstance(output, str):
        return output
    if not note:
        return output or "[no output]"
    return f"{output}\n{note}" if output else note


def _error_note(body: ToolFinished) -> str:
    if body.signal is not None:
        return f"[killed by signal {body.signal}]"
    if body.exit_code:
        return f"[exit code {body.exit_code}]"
    return f"[failed: {body.reason}]" if body.reason else "[failed]"


def answer_text(parts: Iterable[object]) -> str:
    """The plain text among the parts of a response, inline parts only."""
    texts = (getattr(p, "text", "") for p in parts if getattr(p, "kind", "") == "text")
    return "".join(t for t in texts if isinstance(t, str))
