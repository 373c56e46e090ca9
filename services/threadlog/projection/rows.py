"""View rows from a state and its events. Pure."""

from threadlog.events.content import Usage
from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.events.step import ModelAttemptFailed, ModelInterrupted, ModelResponded
from threadlog.events.thread import ThreadCreated
from threadlog.events.tool import ToolFinished
from threadlog.ids import Position
from threadlog.ports.log import Record
from threadlog.ports.usage import (
    UsageFact,
    UsageTotals,
)
from threadlog.ports.views import (
    ThreadRow,
    ThreadStatus,
)
from threadlog.thread.state import ThreadState, Totals
from threadlog.thread.transcript import answer_text

_TITLE_CHARS = 80


def totals(sums: Totals) -> UsageTotals:
    """The thread's sums as a view shows them."""
    usage = sums.usage or Usage()
    return UsageTotals(
        steps=sums.steps,
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        reasoning=usage.reasoning,
        cost_micros=usage.cost_micros,
    )


def title_of(event: Event) -> str:
    """The title that this event gives a thread, empty when it gives none."""
    body = event.body
    if isinstance(body, ThreadCreated):
        return body.title or ""
    if isinstance(body, MessageReceived):
        first = answer_text(body.content).strip().split("\n", 1)[0]
        return first if len(first) <= _TITLE_CHARS else first[: _TITLE_CHARS - 1] + "…"
    return ""


def thread_row(
    state: ThreadState, position: Position, title: str, created_at: str, updated_at: str
) -> ThreadRow:
    """The thread as a list shows it."""
    status: ThreadStatus = "idle"
    if state.halted is not None:
        status = "halted"
    elif state.turn is not None:
        status = "open"
    elif state.queue and not state.idle_since_empty_turn:
        status = "queued"
    model = state.config.model
    return ThreadRow(
        tenant_id=state.tenant_id,
        thread_id=state.thread_id,
        title=title,
        status=status,
        head=state.head,
        position=position,
        turns=state.turns,
        open_turn=None if state.turn is None else state.turn.turn_id,
        queued=len(state.queue),
        verdict=state.verdict,
        model=None if model is None else f"{model.provider}/{model.name}",
        usage=totals(state.totals),
        created_at=created_at,
        updated_at=updated_at,
    )


def usage_fact(before: ThreadState, event: Event, record: Record) -> UsageFact | None:
    """What this accepted event says was used; None when it says nothing of it.

    Shapes:  `before` is the state before the event: the claim that it closes is open there.
    """
    turn, body = before.turn, event.body
    if turn is None:
        return None
    model, usage, tool_ms, begins_step = before.config.model, Usage(), None, False
    match body:
        case ModelResponded():
            model, usage = body.model, body.usage or usage
            begins_step = turn.step.usage is None
        case ModelAttemptFailed() | ModelInterrupted() if body.usage is not None:
            usage, begins_step = body.usage, turn.step.usage is None
        case ToolFinished() if body.duration_ms:
            tool_ms = body.duration_ms
        case _:
            return None
    return UsageFact(
        event_id=event.event_id,
        position=record.position,
        tenant_id=event.tenant_id,
        thread_id=event.thread_id,
        turn_id=turn.turn_id,
        step=turn.step.number,
        attempt=turn.step.attempt,
        provider="" if model is None else model.provider,
        model="" if model is None else model.name,
        input=usage.input,
        output=usage.output,
        cache_read=usage.cache_read,
        cache_write=usage.cache_write,
        reasoning=usage.reasoning,
        cost_micros=usage.cost_micros,
        occurred_at=event.occurred_at,
        tool_ms=tool_ms,
        begins_step=begins_step,
        appended_ms=record.appended_ms,
    )
