"""Loading a thread: the newest snapshot that can be trusted, and the records behind it.

A snapshot of another fold version, or whose hash does not match, is not used: the thread is folded
from its first record, and that is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from threadlog.errors import CorruptError
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, Position, Seq, TenantId, ThreadId
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.log import Record
from threadlog.ports.snapshots import Snapshots
from threadlog.ports.views import Views
from threadlog.thread.fold import judge
from threadlog.thread.snapshot import decode_state
from threadlog.thread.state import ThreadState

_LOOKS_MAX = 3
"""How often events are looked for that the views should have."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state, and the position up to which it has every record of its thread.

    Shapes:  `folded` counts the records that had to be folded; `snapshot` says what came of the
             snapshot: `hit`, `miss` (there is none), `ahead` (too new to be used), `mismatch`.
    """

    state: ThreadState
    position: Position
    folded: int
    snapshot: str


class Loader:
    """Loads states for one service."""

    def __init__(self, views: Views, snapshots: Snapshots) -> None:
        self.views = views
        self._snapshots = snapshots

    async def load(
        self, tenant: TenantId, thread: ThreadId, before: Position, *, exact: bool = False
    ) -> Loaded:
        """The state with every record of the thread at a position lower than `before`.

        Shapes:  it may be ahead of that, never behind: skip records up to `Loaded.position`.
                 `exact`: it is not ahead, whatever snapshot there is.
        """
        state, position = ThreadState(tenant, thread), NO_POSITION
        found = "miss"
        try:
            snapshot = await self._snapshots.newest(tenant, thread)
            if snapshot is not None and exact and snapshot.position >= before:
                found = "ahead"
            elif snapshot is not None:
                state = decode_state(snapshot.state, snapshot.fold_version, snapshot.sha256)
                position, found = snapshot.position, "hit"
        except CorruptError:
            found = "mismatch"
        folded = 0
        if position + 1 < before:
            records = await self.views.records(tenant, thread, after=position, before=before)
            state, folded = fold_records(state, records), len(records)
            position = Position(max(position, before - 1))
        return Loaded(state, position, folded, found)

    async def accepted(self, state: ThreadState, position: Position) -> list[Event]:
        """All accepted events of the thread up to its head, in order of seq.

        Effects: waits for views that are behind, and looks again where they went back meanwhile.
        Raises:  CorruptError: some are not to be had; a prompt without them would be a silent cut.
        """
        events: list[Event] = []
        for _ in range(_LOOKS_MAX):
            await self.views.reached(state.tenant_id, state.thread_id, position)
            events = await self._read(state)
            if len(events) == state.head + 1:
                return events
        missing = state.head + 1 - len(events)
        raise CorruptError(f"{missing} events of thread {state.thread_id} are not in the views")

    async def _read(self, state: ThreadState) -> list[Event]:
        events: list[Event] = []
        first = 0
        while first <= state.head:
            page = await self.views.events(
                state.tenant_id,
                state.thread_id,
                first=Seq(first),
                last=state.head,
                limit=READ_EVENTS_MAX,
            )
            if not page:
                break
            events += (stored.event for stored in page)
            first += len(page)
        return events


def fold_records(state: ThreadState, records: Sequence[Record]) -> ThreadState:
    """The state after these records of its stream; a record without an envelope changes nothing."""
    for record in records:
        if record.event is not None and record.event.key == record.key:
            state = judge(state, record.event).state
    return state
