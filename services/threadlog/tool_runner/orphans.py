"""Started calls that have no outcome past their deadline, whoever started them."""

from collections.abc import Iterable

from threadlog.ids import EventId
from threadlog.limits import KILL_WAIT_MS, WORKER_DRAIN_MS
from threadlog.thread.state import ThreadState

GRACE_MS = KILL_WAIT_MS + WORKER_DRAIN_MS
"""How long the outcome of a call may take behind its timeout: to be killed, and to be settled."""


class Orphans:
    """Remembers since when this process sees which call running.

    Units:   milliseconds on this process's monotonic clock. A call that another runner saw begin
             is as old as this one has known it: it is found at most one deadline later.
    """

    def __init__(self) -> None:
        self._seen_ms: dict[EventId, int] = {}

    def count(self, now_ms: int, states: Iterable[ThreadState]) -> int:
        """So many calls of these threads are past their deadline."""
        seen_ms: dict[EventId, int] = {}
        orphaned = 0
        for state in states:
            calls = () if state.turn is None else state.turn.step.calls
            for call in calls:
                if call.claim is None or call.outcome is not None:
                    continue
                claim = call.claim.event_id
                since_ms = seen_ms[claim] = self._seen_ms.get(claim, now_ms)
                orphaned += now_ms - since_ms > state.config.call_timeout_ms + GRACE_MS
        self._seen_ms = seen_ms
        return orphaned
