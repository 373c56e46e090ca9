"""Metering: counts usage facts into windows, each fact once, however often it is told.

In:  usage facts (`<prefix>.usage`), which the projection appends
Out: nothing in the log; its own table of windows, and metrics

A fact is acknowledged to the group only when the broker has every window that holds it. So what a
crash, a rebalance or a rebuild tells again was counted before, and is passed over. An error, a
window that the broker does not take, or standing still before facts ends it: whoever started the
process starts it again, and it goes on from its table.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Protocol

import faust
from aiokafka.errors import (  # type: ignore[import-untyped]  # it ships no types
    ConsumerStoppedError,
    IllegalStateError,
)
from faust.exceptions import ConsumerNotStarted
from faust.types import TP, EventT

from threadlog.clock import Clock
from threadlog.errors import LogUnavailableError, RecordError, ThreadlogError
from threadlog.limits import METERING_ACK_MS, METERING_STALL_MS
from threadlog.metering.app import MeteringConfig, WindowsTable, make_app
from threadlog.metering.ledger import Ledger
from threadlog.metering.stall import Stall
from threadlog.metering.windows import Slot, Window
from threadlog.ports.usage_log import UsageRecord, decode_usage

_log = logging.getLogger("threadlog.metering")
_SETTLE_S = 0.1
_SWEEP_S = 60.0


class Bounds(Protocol):
    """Where the partitions of usage facts end, asked by a client that is not Faust's."""

    async def ends(self) -> Mapping[int, int]:
        """The offset behind the last record of each partition.

        Raises:  TransientError
        """
        ...


class Metering:
    """One worker. What its group has committed serves others; its table says where it goes on."""

    def __init__(
        self,
        config: MeteringConfig,
        bounds: Bounds,
        clock: Clock,
        *,
        stall_ms: int = METERING_STALL_MS,
    ) -> None:
        self._config = config
        self._bounds = bounds
        self._clock = clock
        self._ledger = Ledger(config.topic_id, config.usage_id, config.writer)
        self._unsettled: list[EventT[bytes]] = []
        self._gaps: set[int] = set()
        self._stall = Stall(stall_ms)
        self._sampled: dict[int, int] = {}
        self._app = make_app(config)
        self._table = WindowsTable(self._app, config.home)
        self._app.tables.add(self._table)
        self._table.on_recover(self._recovered)
        topic = self._app.topic(
            config.usage_topic, key_type=bytes, value_type=bytes, allow_empty=True
        )
        self._app.agent(topic)(self._count)
        self._failed: asyncio.Future[None] | None = None
        self.has_recovered = False
        self.strange = 0

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions of usage facts that this worker has."""
        try:
            assigned = self._app.consumer.assignment() if self._app.started else set()
        except ConsumerNotStarted:
            # The app says that it has started a moment before its consumer has.
            assigned = set()
        return frozenset(p for t, p in assigned if t == self._config.usage_topic)

    def windows(self) -> dict[Slot, Window]:
        """The windows of the tenants that are counted here."""
        mine, home = self.partitions, self._config.home
        return {s: w for s, w in self._ledger.windows.items() if home(s.tenant) in mine}

    async def run(self, stop: asyncio.Event) -> None:
        """It counted until `stop` was set, and left its group.

        Raises:  ThreadlogError: what ended it.
        """
        self._failed = asyncio.get_running_loop().create_future()
        works = (self._settle(), self._sweep(), self._crashed(), _told(stop))
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await self._app.start()
            ends: set[asyncio.Future[None]] = {*tasks, self._failed}
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._leave()

    async def sample(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Where the partitions of this worker end, and up to where they are counted.

        Effects: what has stood still since the last sample is fetched again; it ends when nothing
                 moved for too long.
        Raises:  TransientError
        """
        ends = await self._bounds.ends()
        done = {p: self._ledger.next_of(p) for p in self.partitions}
        behind = {p for p, at in done.items() if at < ends[p]}
        self._gaps |= {p for p in behind if self._sampled.get(p) == done[p]}
        self._sampled = done
        is_waiting = bool(behind) or not self.has_recovered
        stood_ms = self._stall.sample(self._clock.mono_ms(), done, is_waiting=is_waiting)
        if stood_ms is not None:
            records = sum(ends[p] - done[p] for p in behind)
            self._fail(
                LogUnavailableError(
                    f"metering stood still for {stood_ms // 1_000} s with {records} records of "
                    f"{self._config.usage_topic} before it: it ends, to be started again; if that "
                    "does not help, docs/operating.md says how to count anew"
                )
            )
        return {p: ends[p] for p in done}, done

    async def _count(self, stream: faust.StreamT[bytes]) -> None:
        """Each record is counted at once; nothing is awaited between, so none is half counted.

        Around a new share of the partitions Faust may pass over some and give them later.
        """
        assert isinstance(stream, faust.Stream)
        async for event in stream.noack().events():
            message = event.message
            try:
                record = self._record(message.key, message.value)
                now_ms = self._clock.now_ms()
                if self._ledger.take(message.partition, message.offset, record, now_ms):
                    self._unsettled.append(event)
                else:
                    self._gaps.add(message.partition)
            except Exception as error:  # noqa: BLE001  # a worker's edge
                _log.exception("metering: failed")
                self._fail(LogUnavailableError(f"metering failed: {type(error).__name__}"))
                return

    def _record(self, key: bytes | None, value: bytes | None) -> UsageRecord | None:
        try:
            return decode_usage(key, value)
        except RecordError as error:
            self.strange += 1
            _log.warning("metering: passed over a record: %s", error)
            return None

    async def _recovered(self) -> None:
        try:
            self._ledger.recover(dict(self._table.items()))
        except ThreadlogError as error:
            self._fail(error)
            return
        self.has_recovered = True

    async def _settle(self) -> None:
        """Windows go to the broker, and when it has them, what they hold counts as finished."""
        while True:
            await asyncio.sleep(_SETTLE_S)
            if self._unsettled:
                await self._settle_now()
            await self._fetch_again()

    async def _settle_now(self) -> None:
        events, self._unsettled = self._unsettled, []
        for key, document in self._ledger.changes(self._clock.now_ms()):
            self._write(key, document)
        await self._acknowledged()
        for event in events:
            event.ack()

    async def _fetch_again(self) -> None:
        """Records that Faust has passed over come: it does that around a new share."""
        gaps, self._gaps = self._gaps & self.partitions, set()
        for partition in gaps:
            place = TP(self._config.usage_topic, partition)
            # It may have just lost the partition.
            with contextlib.suppress(AssertionError, ConsumerStoppedError, IllegalStateError):
                await self._app.consumer.seek(place, self._ledger.next_of(partition))

    async def _sweep(self) -> None:
        """Windows that are too old go."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            mine = self.partitions
            for slot, key in list(self._ledger.expired(self._clock.now_ms())):
                if self._table.holds(slot, mine):
                    self._write(key, None)

    def _write(self, key: str, document: object | None) -> None:
        if document is not None:
            self._table[key] = document
        elif key in self._table:
            del self._table[key]

    async def _acknowledged(self) -> None:
        """The broker has all that the table was told.

        Raises:  LogUnavailableError: it has not, or nobody knows.
        """
        sent, self._table.sent = self._table.sent, []
        try:
            async with asyncio.timeout(METERING_ACK_MS / 1_000):
                await asyncio.gather(*sent)
        except Exception as error:
            raise LogUnavailableError(
                f"the broker did not take windows of metering ({type(error).__name__})"
            ) from error

    async def _crashed(self) -> None:
        """Faust has ended by itself."""
        while not (self._app.crashed or self._app.should_stop):
            await asyncio.sleep(_SETTLE_S)
        reason = self._app.crash_reason
        raise LogUnavailableError(f"metering's stream ended ({type(reason).__name__})")

    def _fail(self, error: ThreadlogError) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _leave(self) -> None:
        """Out of the group. What was not settled is told again to whoever comes next."""
        try:
            async with asyncio.timeout(METERING_ACK_MS / 1_000):
                await self._app.stop()
        except TimeoutError:
            _log.warning("metering: its stream did not end in time")


async def _told(stop: asyncio.Event) -> None:
    await stop.wait()
