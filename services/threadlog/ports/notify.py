"""The notify port: what is live only. Losing it loses deltas and speed, never a fact."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from threadlog.ids import CallId, Seq, TenantId, ThreadId, TurnId


@dataclass(frozen=True, slots=True)
class LiveDelta:
    """A piece of a response or of a call's output while it runs; `n` counts from 0 within it."""

    turn_id: TurnId
    step: int
    attempt: int
    n: int
    kind: str
    text: str
    call_id: CallId | None = None


@dataclass(frozen=True, slots=True)
class Advanced:
    """The views of the thread moved: its head and its open turn are these now.

    `is_idle`: no turn is open and none will open without a new input.
    """

    head: Seq
    open_turn: TurnId | None
    is_idle: bool


Frame = LiveDelta | Advanced


@dataclass(frozen=True, slots=True)
class SoFar:
    """The pieces 0 to `n` - 1 of one attempt's response, joined by kind."""

    turn_id: TurnId
    step: int
    attempt: int
    n: int
    text: str
    thinking: str


class Notify(Protocol):
    """A channel per thread, lossy by design."""

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        """Whoever listens now may see `frame`; never blocks, never fails."""
        ...

    async def so_far(self, tenant: TenantId, thread: ThreadId) -> SoFar | None:
        """What was published of the thread's newest response; None: nothing is known of any.

        Shapes:  the response may have ended since: whoever asks compares it with the events. Pieces
                 behind a lost one are left out.
        Effects: never fails.
        """
        ...

    def listen(self, tenant: TenantId, thread: ThreadId) -> AsyncIterator[Frame]:
        """Frames from now on; a slow listener loses the oldest, never the newest.

        Effects: listening begins with this call, not with the first frame asked for. Closing the
                 iterator ends it.
        """
        ...
