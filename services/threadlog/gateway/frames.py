"""Frames of the live stream as bytes. Source: SURFACES 4.

A durable event has an id and no name, so that unknown types reach every client; all others have a
name and no id, which would clear the cursor.
"""

from dataclasses import dataclass
from typing import Literal

import orjson

from threadlog.api.events import event_object
from threadlog.api.problems import ProblemBody
from threadlog.events.envelope import Event
from threadlog.events.step import StepStarted
from threadlog.events.turn import TurnFinished
from threadlog.ids import Seq, TurnId
from threadlog.ports.notify import LiveDelta, SoFar
from threadlog.ports.views import StoredEvent

HEARTBEAT = b":\n\n"
EndReason = Literal["turn_finished", "waiting", "erased"]
ReconnectReason = Literal["shutdown", "slow_reader", "max_life", "reauthorise"]


Attempt = tuple[TurnId, int, int]
"""Turn, step and attempt: which response a piece belongs to."""


@dataclass(frozen=True, slots=True)
class EventFrame:
    """One event. `ends_turn`: it is the end of a turn. `claims`: the response that it begins."""

    seq: Seq
    data: bytes
    ends_turn: bool
    claims: Attempt | None


@dataclass(frozen=True, slots=True)
class DeltaFrame:
    """A piece of a response or of a call's output; it may be left out."""

    delta: LiveDelta
    data: bytes


@dataclass(frozen=True, slots=True)
class FreshFrame:
    """How fresh the views are, which have everything up to `as_of_seq`."""

    as_of_seq: int
    data: bytes


Frame = EventFrame | DeltaFrame | FreshFrame


def event_frame(stored: StoredEvent) -> EventFrame:
    """The frame of an accepted event."""
    event: Event = stored.event
    assert stored.seq is not None
    data = b"id: %d\ndata: %s\n\n" % (stored.seq, event_object(event, stored.seq))
    ends_turn = isinstance(event.body, TurnFinished)
    return EventFrame(stored.seq, data, ends_turn, claimed_by(event))


def claimed_by(event: Event) -> Attempt | None:
    """The response that the event begins; None: it begins none."""
    if not isinstance(event.body, StepStarted) or event.turn_id is None:
        return None
    return event.turn_id, event.body.number, event.body.attempt


def delta_frame(delta: LiveDelta) -> DeltaFrame:
    """The frame of a piece."""
    members: dict[str, object] = {
        "turn_id": delta.turn_id,
        "step": delta.step,
        "attempt": delta.attempt,
        "block": delta.kind,
        "n": delta.n,
        "text": delta.text,
    }
    if delta.call_id is not None:
        members["call_id"] = delta.call_id
    return DeltaFrame(delta, _named("delta", members))


def partial(said: SoFar) -> bytes:
    """The text so far of the open response: pieces 0 to `n` - 1."""
    return _named(
        "partial",
        {
            "turn_id": said.turn_id,
            "step": said.step,
            "attempt": said.attempt,
            "n": said.n,
            "text": said.text,
            "thinking": said.thinking,
        },
    )


def fresh(as_of_seq: int, behind_ms: int) -> FreshFrame:
    """How fresh the views are."""
    data = _named("fresh", {"as_of_seq": as_of_seq, "behind_ms": behind_ms})
    return FreshFrame(as_of_seq, data)


def end(reason: EndReason) -> bytes:
    """Nothing follows that was asked for."""
    return _named("end", {"reason": reason})


def reconnect(reason: ReconnectReason) -> bytes:
    """Come back with the last id; nothing is lost."""
    return _named("reconnect", {"reason": reason})


def problem(body: ProblemBody) -> bytes:
    """It cannot go on, for this reason."""
    return _named("problem", body.model_dump(exclude_none=True))


def retry(milliseconds: int) -> bytes:
    """How long a browser waits before it connects again."""
    return b"retry: %d\n\n" % milliseconds


def _named(name: str, members: dict[str, object]) -> bytes:
    """A frame with a name, in one line of data."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(members))
