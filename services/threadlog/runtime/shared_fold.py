"""One judgement for all services of a process.

In one process the log hands the same event object to every service. Judging is pure, so where two
services hold the same state object, the second gets the first one's judgement, and with it the same
next state object. A service whose state came from elsewhere judges for itself; nothing depends on
the memory but time.
"""

from collections import OrderedDict

from threadlog.events.envelope import Event
from threadlog.ids import EventId, TenantId, ThreadId
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.state import ThreadState

_REMEMBERED = 4_096


class SharedFold:
    """Remembers the last judgements, by the identity of state and event.

    Shapes:  `remembers` False: nothing; for a process whose log gives each service events of its
             own, where no judgement would ever be met again.
    """

    def __init__(self, *, remembers: bool = True) -> None:
        self._remembers = remembers
        self._judged: OrderedDict[EventId, tuple[ThreadState, Event, Judgement]] = OrderedDict()
        self._empty: OrderedDict[ThreadId, ThreadState] = OrderedDict()

    def judge(self, state: ThreadState, event: Event) -> Judgement:
        """What `thread.fold.judge` says."""
        if not self._remembers:
            return judge(state, event)
        known = self._judged.get(event.event_id)
        if known is not None and known[0] is state and known[1] is event:
            return known[2]
        judgement = judge(state, event)
        self._judged[event.event_id] = (state, event, judgement)
        if len(self._judged) > _REMEMBERED:
            self._judged.popitem(last=False)
        return judgement

    def empty(self, tenant: TenantId, thread: ThreadId) -> ThreadState:
        """The state of an empty stream, the same object while it is remembered."""
        if not self._remembers:
            return ThreadState(tenant, thread)
        state = self._empty.get(thread)
        if state is None or state.tenant_id != tenant:
            state = ThreadState(tenant, thread)
            self._empty[thread] = state
            if len(self._empty) > _REMEMBERED:
                self._empty.popitem(last=False)
        return state
