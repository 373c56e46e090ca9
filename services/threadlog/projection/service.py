"""The projection: folds every record in log order and moves all views of a batch in one step.

In:  every event
Out: nothing in the log; views, snapshots, usage facts, dead letters
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from dataclasses import dataclass, field

from threadlog.errors import CorruptError, TransientError
from threadlog.events.envelope import Event
from threadlog.events.input import CancelRequested, MessageReceived
from threadlog.events.thread import ThreadConfigured, ThreadCreated
from threadlog.events.turn import TurnFinished
from threadlog.faults import reach
from threadlog.ids import NO_POSITION, NO_SEQ, Position, Seq, ThreadId
from threadlog.limits import LANES_MAX, SNAPSHOT_EVERY_EVENTS
from threadlog.ports.log import KEY_DISAGREES, Log, Record
from threadlog.ports.notify import Advanced, Notify
from threadlog.ports.snapshots import Snapshot
from threadlog.ports.usage import UsageFact
from threadlog.ports.views import (
    DeadLetter,
    Judged,
    PartitionViews,
    ThreadRow,
    ViewBatch,
)
from threadlog.projection.rows import thread_row, title_of, usage_fact
from threadlog.runtime.load import Loader
from threadlog.runtime.meter import Meter, NoMeter
from threadlog.runtime.patience import patiently
from threadlog.runtime.shared_fold import SharedFold
from threadlog.thread.snapshot import encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState

_log = logging.getLogger("threadlog.projection")
GATHER_MS = 10
_GATHER_MAX = 512
_COMPARE_S = 1.0
_CUT = (
    "it was cut or replaced, or the views were edited; bring it back, or drop the views, as "
    "docs/operating.md says, so that they are made again"
)
_TOLD_LETTERS = frozenset(10**n for n in range(9))
"""Which bad records are worth a line: the first, the tenth, the hundredth."""
STOPPED = "stopped"
"""Why no reader sees a record behind one that failed: reason of a void, never the fold's own."""
_URGENT = (ThreadCreated, ThreadConfigured, MessageReceived, CancelRequested, TurnFinished)


@dataclass(slots=True)
class Projected:
    """One thread in the projection. `snapshot_seq`: the seq of its newest stored snapshot."""

    state: ThreadState
    position: Position
    title: str = ""
    created_at: str = ""
    updated_at: str = ""
    snapshot_seq: Seq = NO_SEQ


@dataclass(slots=True)
class Batch:
    """The rows that records make, up to `position`; None: no record yet."""

    judged: list[Judged] = field(default_factory=list)
    touched: dict[str, Projected] = field(default_factory=dict)
    usage: list[UsageFact] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    is_urgent: bool = False
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class ProjectionPorts:
    """What the projection of one partition needs of the world."""

    log: Log
    partition: PartitionViews
    loader: Loader
    notify: Notify
    folding: SharedFold
    meter: Meter = field(default_factory=NoMeter)
    lanes_max: int = LANES_MAX


class Projection:
    """Keeps the views. `watermark` is the position up to which everything was applied."""

    name = "projection"

    def __init__(self, ports: ProjectionPorts, gather_ms: int = GATHER_MS) -> None:
        """`gather_ms`: how long rows that nobody waits for may stay behind the log."""
        self._log = ports.log
        self._partition = ports.partition
        self._loader = ports.loader
        self._notify = ports.notify
        self._folding = ports.folding
        self._meter = ports.meter
        self._lanes_max = ports.lanes_max
        self._threads: OrderedDict[str, Projected] = OrderedDict()
        self._broken: set[str] = set()
        self._gather_s = gather_ms / 1_000
        self._batch = Batch()
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None]
        self._applying: set[asyncio.Task[None]] = set()
        self._known = Position(0)
        self.watermark = Position(0)
        self.has_begun = False
        self._letters = 0
        self._is_behind_until = Position(0)

    @property
    def broken(self) -> set[ThreadId]:
        """Threads whose views stand still after an error of ours."""
        return {ThreadId(key.rpartition("/")[2]) for key in self._broken}

    async def run(self, reached: Position = NO_POSITION) -> None:
        """Follows the log from the stored watermark for ever.

        Shapes:  `reached`: how far the views are known to have been.
        Effects: views move. When the stored watermark is not the one that was expected, everything
                 in memory is dropped and the log is read again from the stored one.
        """
        while True:
            self._threads.clear()
            self._broken.clear()
            self._batch = Batch()
            self._lost = asyncio.get_running_loop().create_future()
            # The furthest ever: they may be lost again before they are back there.
            reached = max(reached, self.watermark)
            self.watermark = self._known = await self._begin(reached)
            self.has_begun = True
            following = asyncio.create_task(self._follow())
            comparing = asyncio.create_task(self._compare())
            try:
                ends = {following, comparing, self._lost}
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for ended in done:
                    ended.result()
            finally:
                self._drop_timer()
                tasks = [following, comparing, *self._applying]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _begin(self, reached: Position) -> Position:
        """Where the views are; if that is behind where they were, readers wait until it is not."""
        end = await patiently(self._log.end)
        if reached > end and reached > (end := await patiently(self._log.end)):
            raise CorruptError(f"the log ends at {end}, but it went to {reached}: {_CUT}")
        watermark = await patiently(lambda: self._partition.begin(end, reached=reached))
        if watermark > end and watermark > (end := await patiently(self._log.end)):
            raise CorruptError(f"the views are at {watermark}, but the log ends at {end}: {_CUT}")
        self._is_behind_until = end
        return watermark

    async def _compare(self) -> None:
        """Views that went back or were emptied are found without traffic, too.

        Not under the lock: whoever holds it may wait for what was lost. Our own rows only ever move
        the stored watermark forward, so one that is behind what we knew before has been lost; one
        that is ahead is found when rows are next moved.
        """
        while True:
            await asyncio.sleep(_COMPARE_S)
            with contextlib.suppress(TransientError):
                # Not only asked: readers must be told.
                known = self.watermark
                stored = await self._partition.begin(known, reached=known)
                if stored < known:
                    self._lose(stored)
                    return

    def _lose(self, stored: Position) -> None:
        _log.warning("views are at %d, not at %d: reading again", stored, self.watermark)
        if not self._lost.done():
            self._lost.set_result(None)

    async def _follow(self) -> None:
        """Records are folded as they come; their rows move when somebody may wait for them.

        Inputs, whose sender waits for the judgement, and ends of turns move at once, other events
        with the next of these, or after `gather_ms`.
        """
        async for records in self._log.subscribe(self.watermark):
            async with self._lock:
                batch = self._batch
                for record in records:
                    await self._guarded(batch, record)
                batch.position = records[-1].position
                if batch.is_urgent or not self._gather_s or len(batch.judged) >= _GATHER_MAX:
                    await self._apply()
                elif self._timer is None:
                    loop = asyncio.get_running_loop()
                    self._timer = loop.call_later(self._gather_s, self._apply_soon)

    def _apply_soon(self) -> None:
        self._timer = None
        task = asyncio.create_task(self._apply_gathered())
        self._applying.add(task)
        task.add_done_callback(self._applying.discard)

    async def _apply_gathered(self) -> None:
        """What was gathered moves; an error ends the projection, as it would in `_follow`."""
        try:
            async with self._lock:
                if self._batch.position is not None and not self._lost.done():
                    await self._apply()
        except Exception as error:  # noqa: BLE001  # handed on to `run`
            if not self._lost.done():
                self._lost.set_exception(error)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _apply(self) -> None:
        """The views move by what was gathered; if they are not where they should be, it is lost."""
        self._drop_timer()
        batch, self._batch = self._batch, Batch()
        assert batch.position is not None
        rows = [self._row(thread) for thread in batch.touched.values()]
        expected, watermark = self.watermark, batch.position
        views = ViewBatch(
            expected=expected,
            watermark=watermark,
            judged=batch.judged,
            threads=rows,
            snapshots=list(self._snapshots(batch)),
            usage=batch.usage,
            dead_letters=batch.dead_letters,
        )
        reach("projection.apply.before")
        stored = await patiently(lambda: self._partition.apply(views, urgent=batch.is_urgent))
        reach("projection.apply.after")
        if stored != watermark:
            self._lose(stored)
            return
        self.watermark = watermark
        if batch.judged and watermark > self._is_behind_until:
            self._meter.in_view(batch.judged[0].event.occurred_at)
        for row in rows:
            frame = Advanced(row.head, row.open_turn, row.status == "idle")
            self._notify.publish(row.tenant_id, row.thread_id, frame)

    async def _guarded(self, batch: Batch, record: Record) -> None:
        """A record at which our own code fails stops its thread's views, never the others'."""
        if record.key in self._broken:
            self._set_aside(batch, record, "its thread was stopped", "stopped")
            return
        try:
            await self._project(batch, record)
        except Exception as error:  # noqa: BLE001  # a worker's edge
            _log.exception("projection: %s stopped at %d", record.key, record.position)
            self._broken.add(record.key)
            self._threads.pop(record.key, None)
            reason = f"the projection failed here: {type(error).__name__}"
            self._set_aside(batch, record, reason, "failed")

    def _set_aside(self, batch: Batch, record: Record, reason: str, kind: str) -> None:
        """No reader sees the record, but whoever loads its thread still folds it: no hole."""
        self._letter(batch, record, reason, kind)
        event = record.event
        if event is not None and event.key == record.key:
            batch.judged.append(Judged(record.position, event, None, STOPPED))

    def _letter(self, batch: Batch, record: Record, reason: str, kind: str) -> None:
        """A pointer, counted once: views that are made again count nothing again."""
        batch.dead_letters.append(DeadLetter(record.position, reason))
        self._letters += 1
        if self._letters in _TOLD_LETTERS:
            told = (record.position, reason, self._letters)
            _log.warning("projection: bad record at %d: %s (%d in all so far)", *told)
        if record.position > self._is_behind_until:
            self._meter.dead_letter(kind)

    async def _project(self, batch: Batch, record: Record) -> None:
        event = record.event
        if record.is_gap:
            return
        if event is None or event.key != record.key:
            reason = record.problem or KEY_DISAGREES
            self._letter(batch, record, reason, "key" if reason == KEY_DISAGREES else "no_envelope")
            return
        thread = await self._thread(record, event)
        before = thread.state
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        judgement = self._folding.judge(before, event)
        self._meter.judged(event.type, judgement.void, now_s() - began_s)
        # All that may fail comes first: a record that does leaves nothing behind.
        title, fact = thread.title, None
        if judgement.void is None:
            title = title or title_of(event)
            fact = usage_fact(before, event, record)
        thread.state, thread.position = judgement.state, record.position
        batch.judged.append(Judged(record.position, event, judgement.seq, judgement.void))
        batch.is_urgent = batch.is_urgent or isinstance(event.body, _URGENT)
        if judgement.void == "invalid":
            self._letter(batch, record, "body does not fit its schema", "invalid")
        if judgement.void is not None:
            if judgement.void == "halted":
                batch.touched[record.key] = thread
            return
        thread.created_at = thread.created_at or event.occurred_at
        thread.updated_at = event.occurred_at
        thread.title = title
        batch.touched[record.key] = thread
        if fact is not None:
            batch.usage.append(fact)

    async def _thread(self, record: Record, event: Event) -> Projected:
        """The thread as of right before the record."""
        thread = self._threads.get(record.key)
        if thread is not None:
            self._threads.move_to_end(record.key)
            return thread
        if record.opens_stream:
            empty = self._folding.empty(event.tenant_id, event.thread_id)
            thread = Projected(empty, Position(record.position - 1))
        else:
            thread = await self._load(event)
        self._threads[record.key] = thread
        if len(self._threads) > self._lanes_max:
            # Not one whose rows are still on their way: the stored ones are older than it.
            threads = self._threads.items()
            oldest = next((key for key, old in threads if old.position <= self.watermark), None)
            if oldest is not None and oldest != record.key:
                self._known = max(self._known, self._threads.pop(oldest).position)
        return thread

    async def _load(self, event: Event) -> Projected:
        """The thread up to `_known`, behind which it had no record before this one.

        So it never waits for the watermark, which only this projection moves.

        Raises:  CorruptError: records of it were set aside before: readers would see a gap.
        """
        tenant, name, before = event.tenant_id, event.thread_id, Position(self._known + 1)
        # Exactly: views that lost their last batches are made again from before the snapshot.
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        loaded = await patiently(lambda: self._loader.load(tenant, name, before, exact=True))
        self._meter.loaded(loaded.snapshot, loop.time() - began_s, loaded.folded)
        thread = Projected(loaded.state, loaded.position)
        row = await patiently(lambda: self._partition.row(tenant, name))
        if loaded.state.head > (NO_SEQ if row is None else row.head):
            raise CorruptError(f"thread {name} was stopped before: it is, until views are dropped")
        if row is not None:
            thread.title, thread.created_at = row.title, row.created_at
            thread.updated_at = row.updated_at
        if loaded.snapshot == "hit":
            thread.snapshot_seq = Seq(max(loaded.state.head - loaded.folded, NO_SEQ))
        return thread

    def _row(self, thread: Projected) -> ThreadRow:
        return thread_row(
            thread.state, thread.position, thread.title, thread.created_at, thread.updated_at
        )

    def _snapshots(self, batch: Batch) -> list[Snapshot]:
        """Snapshots of threads whose tail has grown long enough."""
        found: list[Snapshot] = []
        for thread in batch.touched.values():
            state = thread.state
            if state.head - thread.snapshot_seq < SNAPSHOT_EVERY_EVENTS:
                continue
            encoded = encode_state(state)
            thread.snapshot_seq = state.head
            found.append(
                Snapshot(
                    tenant_id=state.tenant_id,
                    thread_id=state.thread_id,
                    seq=state.head,
                    position=thread.position,
                    fold_version=FOLD_VERSION,
                    sha256=state_hash(encoded),
                    state=encoded,
                )
            )
        return found
