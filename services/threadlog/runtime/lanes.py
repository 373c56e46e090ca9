"""Lanes: the threads that one service holds in memory, each strictly in log order.

A lane is loaded when the first record of its thread comes; records that come meanwhile wait in the
lane. Idle lanes leave, least recently used first, beyond `limits.LANES_MAX`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from threadlog.ids import NO_POSITION, Position, TenantId, ThreadId
from threadlog.ports.log import Record
from threadlog.thread.state import ThreadState

L = TypeVar("L")


@dataclass(slots=True, eq=False)
class Lane(Generic[L]):
    """One thread in one service.

    Shapes:  `backlog` None: loaded; else the records that wait for the load. `position`: every
             record of the thread up to it was folded. `own` is the service's part. `broken`: the
             fold or the service raised here, so nothing is decided any more.
    """

    tenant_id: TenantId
    thread_id: ThreadId
    own: L
    state: ThreadState
    position: Position = NO_POSITION
    backlog: list[Record] | None = field(default=None)
    broken: bool = False

    @property
    def stream(self) -> tuple[TenantId, ThreadId]:
        """Tenant and thread."""
        return self.tenant_id, self.thread_id


class Lanes(Generic[L]):
    """The lanes of one service, by record key."""

    def __init__(self, new: Callable[[], L], lanes_max: int) -> None:
        self._new = new
        self._lanes: OrderedDict[str, Lane[L]] = OrderedDict()
        self._lanes_max = lanes_max

    def get(self, key: str) -> Lane[L] | None:
        """The lane, now the most recently used one."""
        lane = self._lanes.get(key)
        if lane is not None:
            self._lanes.move_to_end(key)
        return lane

    def open(self, empty: ThreadState) -> Lane[L]:
        """A new lane with `empty`, the state of an empty stream."""
        tenant, thread = empty.tenant_id, empty.thread_id
        lane = Lane(tenant, thread, self._new(), empty)
        self._lanes[f"{tenant}/{thread}"] = lane
        return lane

    def evict(self, is_idle: Callable[[Lane[L]], bool]) -> Position:
        """At most `lanes_max` lanes are left, as far as idle ones can go.

        Shapes:  the highest position of a lane that went; `NO_POSITION` when none did.
        """
        excess = len(self._lanes) - self._lanes_max
        if excess <= 0:
            return NO_POSITION
        idle = (key for key, lane in self._lanes.items() if lane.backlog is None and is_idle(lane))
        gone = [self._lanes.pop(key) for key in [k for k, _ in zip(idle, range(excess))]]  # noqa: B905  # the shorter one counts
        return max((lane.position for lane in gone), default=NO_POSITION)

    def __len__(self) -> int:
        return len(self._lanes)

    def __iter__(self) -> Iterator[Lane[L]]:
        return iter(list(self._lanes.values()))
