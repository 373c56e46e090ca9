"""A chain of events planned for one append, each folded at once onto a state only the plan sees."""

from threadlog.events.envelope import Body, Event
from threadlog.events.writer import EventWriter
from threadlog.ids import EventId, Seq, WorkspaceId, turn_id
from threadlog.runtime.shared_fold import SharedFold
from threadlog.thread.state import ThreadState


class Chain:
    """Events in order, and the state after them.

    Shapes:  `head` is the head that was really read: what `decided_at` names. If the log judges one
             of the events otherwise, those that follow from it are void with it, since every event
             names its cause.
    """

    def __init__(self, state: ThreadState, writer: EventWriter, folding: SharedFold) -> None:
        """`folding` remembers what is judged here, for when the events are read back."""
        self._folding = folding
        self.state = state
        self.head: Seq = state.head
        self.events: list[Event] = []
        self.writer = writer

    def add(
        self,
        body: Body,
        event_id: EventId,
        cause: EventId,
        *,
        actor: str | None = None,
        workspace_id: WorkspaceId | None = None,
    ) -> Event:
        """The event of the open turn, or of the next one when none is open, is planned."""
        state = self.state
        turn = state.turn
        event = self.writer.make(
            (state.tenant_id, state.thread_id),
            body,
            event_id,
            caused_by=cause,
            turn_id=turn_id(state.thread_id, state.turns + 1) if turn is None else turn.turn_id,
            actor=actor,
            workspace_id=workspace_id,
        )
        self.include(event)
        return event

    def include(self, event: Event) -> None:
        """The event, made elsewhere, is the next one."""
        self.events.append(event)
        self.state = self._folding.judge(self.state, event).state
