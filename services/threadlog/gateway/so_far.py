"""The text so far of the response that is open where a client joins: shown once, without a hole.

What is known of a response may be ahead of the events: then it is shown behind the event that
begins it, with the pieces that came meanwhile. What has ended is not shown.
"""

from collections.abc import Iterable
from dataclasses import replace

from threadlog.events.envelope import Event
from threadlog.events.step import ModelAttemptFailed, ModelInterrupted, ModelResponded, StepReleased
from threadlog.gateway import frames
from threadlog.gateway.frames import Attempt
from threadlog.ports.notify import LiveDelta, SoFar

CLOSING = (ModelResponded, ModelAttemptFailed, ModelInterrupted, StepReleased)
"""What ends a response: nothing more is told of it."""


class OpenResponse:
    """What one client is shown of the response that was the newest when it joined."""

    def __init__(self, said: SoFar | None) -> None:
        """Nothing was shown yet. None: nothing is known of any response."""
        self._said = said if said is not None and said.n else None
        self._is_shown = False

    @property
    def is_known(self) -> bool:
        """Whether there may be something to show."""
        return self._said is not None

    def joined(self, newest_first: Iterable[Event], *, is_whole: bool) -> bytes | None:
        """The frame for a client that has these events, the last ones of its thread.

        Shapes:  `is_whole`: those are all of them.
        None: there is nothing to show now. It has ended, or its beginning is yet to come.
        """
        is_closed = False
        for event in newest_first:
            claimed = frames.claimed_by(event)
            if claimed is not None and claimed != self._attempt:
                return None
            if claimed is not None and is_closed:
                self._said = None
                return None
            if claimed is not None:
                return self._shown()
            is_closed = is_closed or isinstance(event.body, CLOSING)
        if not is_whole:
            # Its beginning lies too far back to know anything of it: pieces are shown as they come.
            self._said = None
        return None

    def began(self, attempt: Attempt) -> bytes | None:
        """The frame behind the event that begins this response; None: it needs none."""
        return self._shown() if attempt == self._attempt and not self._is_shown else None

    def has(self, delta: LiveDelta) -> bool:
        """Whether the piece is part of what was shown, or will be."""
        said = self._said
        attempt = delta.turn_id, delta.step, delta.attempt
        if said is None or delta.call_id is not None or attempt != self._attempt:
            return False
        if self._is_shown:
            return delta.n < said.n
        if delta.n == said.n:
            member = "thinking" if delta.kind == "thinking" else "text"
            grown = {member: getattr(said, member) + delta.text, "n": said.n + 1}
            self._said = replace(said, **grown)
        return True

    @property
    def _attempt(self) -> Attempt | None:
        said = self._said
        return None if said is None else (said.turn_id, said.step, said.attempt)

    def _shown(self) -> bytes:
        assert self._said is not None
        self._is_shown = True
        return frames.partial(self._said)
