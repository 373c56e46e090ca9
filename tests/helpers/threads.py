"""Scenarios of one thread: a log in memory, its fold, and steps that are data.

    Story().run(*CLAIMED, responded(calls=1), requested(0), bent(tool_started(0), attempt=2))

A step is a maker of `thread_events` (`bent`: with changes), or the name of an event that `keep` or
`named` made earlier: so a copy that comes late, or twice, is a step, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    configured,
    created,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_started,
    turn_finished,
    turn_started,
)
from threadlog.events.envelope import Event
from threadlog.ids import ThreadId
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.state import Call, Step, ThreadState, Turn


@dataclass(frozen=True, slots=True)
class Keep:
    """A step: make the event and keep it under a name; `append` it at once, too, or only later."""

    name: str
    maker: Maker
    append: bool


Move = Maker | Keep | str
"""A maker: append what it makes. A text: append the event kept under that name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a story and the fold's word on it."""

    event: Event
    judgement: Judgement


class Story:
    """A log of one thread in memory, folded as it grows."""

    def __init__(self, thread: ThreadId | None = None) -> None:
        self.state = ThreadState(LOCAL, thread or thread_id())
        self.entries: list[Entry] = []
        self.kept: dict[str, Event] = {}

    def append(self, event: Event) -> Judgement:
        judgement = judge(self.state, event)
        self.state = judgement.state
        self.entries.append(Entry(event, judgement))
        return judgement

    def run(self, *steps: Move) -> Judgement:
        """Appends what the steps make; the judgement of the last one."""
        self._take(steps)
        return self.entries[-1].judgement

    def go(self, *steps: Move) -> "Story":
        """As `run`, where every event must be accepted."""
        before = len(self.entries)
        self._take(steps)
        for entry in self.entries[before:]:
            assert entry.judgement.void is None, (entry.judgement.void, entry.event)
        return self

    def _take(self, steps: Sequence[Move]) -> None:
        for step in steps:
            if isinstance(step, str):
                self.append(self.kept[step])
            elif isinstance(step, Keep):
                event = self.kept[step.name] = step.maker(self.state)
                if step.append:
                    self.append(event)
            else:
                self.append(step(self.state))

    @property
    def turn(self) -> Turn:
        """The open turn."""
        assert self.state.turn is not None
        return self.state.turn

    @property
    def step(self) -> Step:
        """The current step of the open turn."""
        return self.turn.step

    def call(self, n: int = 0) -> Call:
        """Call `n` of that step."""
        return self.step.calls[n]

    @property
    def accepted(self) -> list[Event]:
        """The accepted events, in order of seq."""
        return [entry.event for entry in self.entries if entry.judgement.void is None]

    @property
    def voids(self) -> list[str]:
        """The reasons of the void ones, in log order."""
        return [entry.judgement.void for entry in self.entries if entry.judgement.void is not None]


def void_of(*steps: Move) -> str | None:
    """Why the last step's event is void, or None; all before it must be accepted."""
    return Story().go(*steps[:-1]).run(steps[-1]).void


def keep(name: str, maker: Maker) -> Keep:
    """Make the event now, append it when its name comes."""
    return Keep(name, maker, append=False)


def named(name: str, maker: Maker) -> Keep:
    """Make and append the event; its name appends it again."""
    return Keep(name, maker, append=True)


OPEN: tuple[Move, ...] = (created(), configured(model=MODEL), message(), turn_started())
CLAIMED: tuple[Move, ...] = (*OPEN, step_started())
CALLS: tuple[Move, ...] = (*CLAIMED, responded(calls=2), requested(0), requested(1))
RUNNING: tuple[Move, ...] = (*CALLS, tool_started(0))
SETTLED: tuple[Move, ...] = (*CLAIMED, responded())
DONE: tuple[Move, ...] = (*SETTLED, step_finished(), turn_finished())
