"""How long turns and their hops take, by the times in the events of a thread.

A time is counted by the planner that wrote the event at its end, once that came back accepted: so
no reading again, and no other planner, counts it again. Where it began is taken from the events,
also from those of a planner that died since. What a planner wrote right before it died, and did
not read back, is not counted.

Times of two machines are compared where the two events have two writers: a message and its turn
(gateway and planner), an outcome and the next step (tool-runner and planner). A difference below
zero counts as zero.
"""

from dataclasses import dataclass, field
from datetime import datetime

from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.events.step import ModelInterrupted, ModelResponded, StepStarted
from threadlog.events.tool import ToolFinished
from threadlog.events.turn import TurnFinished, TurnStarted
from threadlog.ids import EventId
from threadlog.limits import QUEUE_MAX
from threadlog.planner.meter import PlannerMeter


@dataclass(slots=True)
class TurnTimes:
    """What one lane remembers.

    Shapes:  times as events have them; `messages` that no turn has taken yet; `started`: the open
             turn's start; `call_ended`: the last outcome since the last step; None: none.
    """

    messages: dict[EventId, str] = field(default_factory=dict)
    started: str | None = None
    call_ended: str | None = None
    has_spoken: bool = False

    def learn(self, event: Event, meter: PlannerMeter | None) -> None:
        """An accepted event; what ends with it is counted. `meter` None: it was counted before."""
        if meter is not None:
            self._count(event, meter)
        match event.body:
            case MessageReceived():
                self.messages[event.event_id] = event.occurred_at
                if len(self.messages) > QUEUE_MAX:
                    del self.messages[next(iter(self.messages))]
            case TurnStarted(admits=admits):
                self.started, self.call_ended, self.has_spoken = event.occurred_at, None, False
                self._take(admits)
            case StepStarted(admits=admits):
                self.call_ended = None
                self._take(admits)
            case ModelResponded() | ModelInterrupted():
                self.has_spoken = True
            case ToolFinished():
                self.call_ended = event.occurred_at
            case TurnFinished():
                self.started = self.call_ended = None
            case _:
                pass

    def _count(self, event: Event, meter: PlannerMeter) -> None:
        now = event.occurred_at
        match event.body:
            case TurnStarted(admits=admits):
                seconds = seconds_between(self.messages.get(admits[0]), now)
                if seconds is not None:
                    meter.hop("accept_to_turn", seconds)
            case StepStarted():
                seconds = seconds_between(self.call_ended, now)
                if seconds is not None:
                    meter.hop("call_to_step", seconds)
            case TurnFinished(verdict=verdict):
                seconds = seconds_between(self.started, now)
                if seconds is not None:
                    meter.turn(verdict, seconds)
            case ToolFinished(outcome=outcome):
                meter.not_started(outcome)
            case _:
                pass

    def speaks(self, now: str, meter: PlannerMeter) -> None:
        """A piece of output came, at this time; the first one of the turn is counted."""
        if not self.has_spoken and self.started is not None:
            self.has_spoken = True
            seconds = seconds_between(self.started, now)
            if seconds is not None:
                meter.first_output(seconds)

    def _take(self, admits: tuple[EventId, ...]) -> None:
        for message in admits:
            self.messages.pop(message, None)


def seconds_between(began: str | None, ended: str) -> float | None:
    """So long; never below zero. None: one of them is no time, whatever a stranger wrote there."""
    if began is None:
        return None
    try:
        passed = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    except (ValueError, TypeError):
        return None
    return max(0.0, passed.total_seconds())
