"""The consume loop of a service: records into lanes, in log order, each judged once.

A record never stops the loop: one without an envelope goes to `on_bad`, one whose thread cannot be
loaded or folded marks its lane as broken and is reported; the neighbours go on.

A thread without a lane had no record since `_known`: the start of the reading, or the newest
record of a lane that has left memory since. So a lane is loaded up to there, and never waits for
views that are only a little behind the log.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, Position, TenantId, ThreadId
from threadlog.limits import BACKLOG_RECORDS_MAX, LANES_MAX
from threadlog.ports.log import Log, Record
from threadlog.runtime.lanes import Lane, Lanes
from threadlog.runtime.ledger import Ledger
from threadlog.runtime.load import Loaded, Loader
from threadlog.runtime.meter import Meter
from threadlog.runtime.patience import patiently
from threadlog.runtime.shared_fold import SharedFold
from threadlog.telemetry import scope
from threadlog.thread.fold import Judgement

L = TypeVar("L")
_log = logging.getLogger("threadlog.worker")


class Service(Protocol[L]):
    """What a service does with its lanes. All methods are quick and never await."""

    name: str

    def new_lane(self) -> L:
        """The service's part of a new lane."""
        ...

    def on_loaded(self, lane: Lane[L], loaded: Loaded) -> None:
        """The lane has its state; records behind `lane.position` follow."""
        ...

    def on_judged(
        self, lane: Lane[L], event: Event, position: Position, judgement: Judgement
    ) -> None:
        """`lane.state` is the state after `event`."""
        ...

    def on_bad(self, record: Record) -> None:
        """The record has no usable envelope."""
        ...

    def on_batch(self, position: Position, lanes: Sequence[Lane[L]]) -> None:
        """All records up to `position` were handed out; `lanes` were touched by them."""
        ...

    def on_broken(self, lane: Lane[L]) -> None:
        """The lane is decided no more: what is held for it is given back."""
        ...

    def is_idle(self, lane: Lane[L]) -> bool:
        """Whether the lane may leave memory."""
        ...


class Worker(Generic[L]):
    """Runs one service on one log."""

    def __init__(
        self,
        log: Log,
        loader: Loader,
        service: Service[L],
        *,
        folding: SharedFold,
        meter: Meter,
        lanes_max: int = LANES_MAX,
    ) -> None:
        self._log = log
        self._loader = loader
        self._service = service
        self._folding = folding
        self._meter = meter
        self._now_s = asyncio.get_running_loop().time
        self._lanes: Lanes[L] = Lanes(service.new_lane, lanes_max)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loads: dict[asyncio.Task[None], Position] = {}
        self._known = Position(0)
        self.position = Position(0)
        self.ledger = Ledger(self.position)
        self._backlogged = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.has_ended = False
        self.broken: set[ThreadId] = set()

    @property
    def lanes(self) -> Lanes[L]:
        """The lanes in memory."""
        return self._lanes

    async def run(self, after: Position, open_threads: Sequence[tuple[TenantId, ThreadId]]) -> None:
        """Follows the log behind `after` for ever; `open_threads` are loaded first.

        Effects: the service's own. Ends only by cancellation or an error of the log; then nothing
                 that it spawned runs any more, and `has_ended`.
        """
        self.position = self._known = after
        self.begin_epoch()
        for tenant, thread in open_threads:
            opened = self._lanes.open(self._folding.empty(tenant, thread))
            self._start_load(opened, Position(after + 1))
        try:
            async for batch in self._log.subscribe(after):
                touched = {id(lane): lane for r in batch if (lane := self._deliver(r)) is not None}
                self.position = batch[-1].position
                self._service.on_batch(self.position, list(touched.values()))
                # Behind it: what the batch causes is open by now.
                self.ledger.see(self.position)
                self._known = max(self._known, self._lanes.evict(self._service.is_idle))
                await self._has_room.wait()
        finally:
            self.has_ended = True
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin_epoch(
        self, still_open: Sequence[Position] = (), committed: Position | None = None
    ) -> Ledger:
        """The partition is owned anew: what an earlier epoch left open moves nothing any more.

        Shapes:  `still_open`: records whose consequences are on their way, open in the new one too.
                 `committed`: what another owner has committed since; a commit never goes back.
        """
        ledger = Ledger(max(self.ledger.commit_point, committed or NO_POSITION))
        for at in (*self._loads.values(), *still_open):
            ledger.open(at)
        ledger.see(self.position)
        self.ledger = ledger
        return ledger

    def spawn(self, lane: Lane[L], work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """`work` runs beside the loop; if it raises, the lane is broken, and that is reported."""
        task = asyncio.create_task(self._guarded(lane, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that was cancelled before it began has never awaited its work.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _guarded(self, lane: Lane[L], work: Coroutine[Any, Any, None]) -> None:
        # For as long as the task lives, which ends with its context.
        scope.bind(_scope(lane))
        try:
            await work
        except Exception:  # noqa: BLE001  # a worker's edge
            self.break_lane(lane)

    def break_lane(self, lane: Lane[L]) -> None:
        """Nothing is decided in the lane any more; the error in hand is reported."""
        lane.broken = True
        if lane.backlog is not None:
            self._count_backlog(-len(lane.backlog))
            lane.backlog = None
        self.broken.add(lane.thread_id)
        token = scope.bind(_scope(lane))
        _log.exception("%s: thread %s stopped", self._service.name, lane.thread_id)
        scope.unbind(token)
        self._service.on_broken(lane)

    def _deliver(self, record: Record) -> Lane[L] | None:
        """The lane that the record touched, if it is loaded."""
        event = record.event
        if record.is_gap:
            return None
        if event is None or event.key != record.key:
            self._service.on_bad(record)
            return None
        lane = self._lanes.get(record.key)
        if lane is None:
            empty = self._folding.empty(event.tenant_id, event.thread_id)
            lane = self._lanes.open(empty)
            if not record.opens_stream:
                self._start_load(lane, Position(self._known + 1))
        if lane.backlog is not None:
            lane.backlog.append(record)
            self._count_backlog(1)
            return None
        self._judge(lane, event, record.position)
        return lane

    def _judge(self, lane: Lane[L], event: Event, position: Position) -> None:
        if position <= lane.position or lane.broken:
            return
        try:
            began_s = self._now_s()
            judgement = self._folding.judge(lane.state, event)
            lane.state, lane.position = judgement.state, position
            self._meter.judged(event.type, judgement.void, self._now_s() - began_s)
            self._service.on_judged(lane, event, position, judgement)
        except Exception:  # noqa: BLE001  # a worker's edge
            self.break_lane(lane)

    def _start_load(self, lane: Lane[L], before: Position) -> None:
        lane.backlog = []
        # Nothing of the thread lies between: what is handed out while it loads stays open.
        at = Position(self.position + 1)
        self.ledger.open(at)
        task = self.spawn(lane, self._load(lane, before))
        self._loads[task] = at
        task.add_done_callback(lambda task: self.ledger.close(self._loads.pop(task)))

    def _count_backlog(self, records: int) -> None:
        """So many more wait for a load; with too many of them nothing more is read for a while."""
        self._backlogged += records
        if self._backlogged > BACKLOG_RECORDS_MAX:
            self._has_room.clear()
        elif self._backlogged <= BACKLOG_RECORDS_MAX // 4:
            self._has_room.set()

    async def _load(self, lane: Lane[L], before: Position) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        loaded = await patiently(lambda: self._loader.load(lane.tenant_id, lane.thread_id, before))
        self._meter.loaded(loaded.snapshot, loop.time() - began_s, loaded.folded)
        lane.state, lane.position = loaded.state, loaded.position
        self._service.on_loaded(lane, loaded)
        backlog, lane.backlog = lane.backlog or [], None
        self._count_backlog(-len(backlog))
        for record in backlog:
            if record.event is not None:
                self._judge(lane, record.event, record.position)
        self._service.on_batch(self.position, [lane])


def _scope(lane: Lane[Any]) -> scope.Scope:
    """What is done for the lane is about this."""
    turn = lane.state.turn
    turn_id = None if turn is None else turn.turn_id
    return scope.Scope(lane.tenant_id, lane.thread_id, lane.state.head, turn_id)
