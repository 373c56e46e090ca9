"""One accepted event of every type, out of two small stories."""

from tests.helpers.thread_events import (
    MODEL,
    attempt_failed,
    cancel,
    configured,
    created,
    file_changed,
    interrupted,
    message,
    requested,
    responded,
    step_finished,
    step_released,
    step_started,
    tool_finished,
    tool_released,
    tool_started,
    turn_finished,
    turn_started,
)
from tests.helpers.threads import CLAIMED, Move, Story
from threadlog.events.content import Usage
from threadlog.events.envelope import Event

EVERY_TYPE: tuple[Move, ...] = (
    *(created('Ünïcode ✓ \u2028 "quoted"'), configured(model=MODEL, system_prompt="p")),
    *(message(text="a\nb\u0000c"), turn_started(), step_started(), step_released()),
    *(step_started(), attempt_failed(), step_started()),
    responded(calls=2, usage=Usage(input=120, output=30, cost_micros=41, price_version="1")),
    *(requested(0), tool_started(0), tool_released(0), tool_started(0), file_changed(0)),
    *(tool_finished(0), requested(1), tool_started(1), cancel(1)),
)


def one_of_each() -> dict[str, Event]:
    """The events by type."""
    story = Story().go(*EVERY_TYPE)
    rest = Story().go(*CLAIMED, cancel(), interrupted(), step_finished(), turn_finished())
    return {event.type: event for event in (*rest.accepted, *story.accepted)}


ONE_OF_EACH = one_of_each()
