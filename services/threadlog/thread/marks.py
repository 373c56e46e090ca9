"""What the fold marks beside turns and steps: judged inputs, tool events, a halt. Immutable."""

from dataclasses import dataclass

from threadlog.ids import NO_SEQ, EventId, Seq, WorkerId


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is remembered of inputs.

    Shapes:  `window` holds the ids of the last judged inputs, void ones included, oldest first,
             each with the seq that a view must have reached to know it: its own, or the next one
             for a void input. `forgotten_seq` is that seq for the newest id that left the window.
             `guard_seq` is the seq of the last input that a claim or verdict decided before it
             does not survive.
    """

    window: tuple[tuple[EventId, Seq], ...] = ()
    forgotten_seq: Seq = NO_SEQ
    guard_seq: Seq = NO_SEQ


@dataclass(frozen=True, slots=True)
class ToolClock:
    """When tool events were last accepted: of `worker`, the last writer, and of all others."""

    worker: WorkerId | None = None
    seq: Seq = NO_SEQ
    others_seq: Seq = NO_SEQ


@dataclass(frozen=True, slots=True)
class Halted:
    """A critical event of an unknown type or newer version: nothing behind it can be judged."""

    event_id: EventId
    type: str
    version: int
