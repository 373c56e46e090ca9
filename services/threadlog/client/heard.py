"""What was handed on of the open response, so that its pieces joined are its text. Pure."""

from threadlog.ids import TurnId
from threadlog.ports.notify import LiveDelta, SoFar

_Attempt = tuple[TurnId, int, int]


class Heard:
    """The pieces of one attempt at a time, across connections.

    Pieces may be missing; the text so far, which a stream sends when one joins, closes the hole.
    """

    def __init__(self) -> None:
        self._attempt: _Attempt | None = None
        self._next = 0
        self._texts: dict[str, str] = {}
        self._is_whole = True

    def delta(self, delta: LiveDelta) -> LiveDelta | None:
        """The piece to be handed on; None: it was before. Output of calls passes as it is."""
        if delta.call_id is not None:
            return delta
        self._turn_to((delta.turn_id, delta.step, delta.attempt))
        if delta.n < self._next:
            return None
        self._is_whole = self._is_whole and delta.n == self._next
        self._next = delta.n + 1
        self._texts[delta.kind] = self._texts.get(delta.kind, "") + delta.text
        return delta

    def so_far(self, said: SoFar) -> list[LiveDelta]:
        """Pieces that make what was handed on equal to the text so far.

        Shapes:  number 0 stands for the whole text, and takes the place of whatever was before.
        """
        self._turn_to((said.turn_id, said.step, said.attempt))
        if self._is_whole and said.n <= self._next:
            return []
        pieces = [
            piece
            for kind, whole in (("thinking", said.thinking), ("text", said.text))
            if (piece := self._missing(said, kind, whole)) is not None
        ]
        self._next, self._is_whole = max(said.n, self._next), True
        return pieces

    def _missing(self, said: SoFar, kind: str, whole: str) -> LiveDelta | None:
        shown = self._texts.get(kind, "")
        if shown == whole:
            return None
        self._texts[kind] = whole
        goes_on = bool(shown) and whole.startswith(shown)
        text, n = (whole[len(shown) :], max(said.n - 1, 1)) if goes_on else (whole, 0)
        return LiveDelta(said.turn_id, said.step, said.attempt, n, kind, text)

    def _turn_to(self, attempt: _Attempt) -> None:
        if attempt != self._attempt:
            self._attempt, self._next, self._texts, self._is_whole = attempt, 0, {}, True
