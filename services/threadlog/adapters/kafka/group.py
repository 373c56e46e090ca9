"""A worker's share of the partitions: membership in the group of its service, and nothing else.

The consumer here never delivers a record: what it is assigned is paused at once. The client's
callbacks run inside `poll` on the membership's own thread; they catch everything, and hand over to
the listener on the event loop, one call at a time, in order. Only a revoke waits for the listener,
at most `limits.REVOKE_MS`.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import ends_membership, mapped, of_exception
from threadlog.clock import Clock, SystemClock
from threadlog.errors import LogUnavailableError, TransientError
from threadlog.ids import NO_POSITION, Partition, Position
from threadlog.limits import REVOKE_MS
from threadlog.ports.group import GroupListener

_log = logging.getLogger("threadlog.kafka")
_POLL_S = 0.05
_ASK_AGAIN_S = 0.02
_ASK_S = 1.0
"""How long the broker may take to say what was committed; it is asked again."""
_COMMIT_MS = 1_000
"""How long a revoke waits until its commit is seen to have arrived."""
_LEAVE_S = 15.0
"""How long leaving may take in all; then the member's time runs out by itself."""


class KafkaGroup:
    """Implements `ports.group.Group`."""

    def __init__(self, config: KafkaConfig, *, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self.rebalances = 0
        """How often partitions were assigned, revoked or lost, for a metric."""
        self._lock = threading.Lock()
        self._wanted: dict[Partition, Position] = {}
        """What is to be committed; guarded by the lock."""
        self._held: set[Partition] = set()
        self._untold: set[Partition] = set()
        """Held, but the listener does not know yet: their commits are still being asked for."""
        self._asked: dict[Partition, Position] = {}
        """The last commit of each held partition: an older one that fails is not repeated."""
        self._is_leaving = threading.Event()
        self._pause = threading.Event()
        """Never set: a wait that is no sleep of the process."""
        self._thread: threading.Thread | None = None

    # -- on the loop

    async def join(self, listener: GroupListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._turns = asyncio.Lock()
        self._failed: asyncio.Future[Exception] = self._loop.create_future()
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="kafka-group", daemon=True)
        self._thread.start()
        waiting: list[asyncio.Future[Any]] = [self._joined, self._failed]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Nobody would call `leave` for a member that never came to be.
            await self.leave()
            raise
        if self._failed.done():
            raise self._failed.result()

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        with self._lock:
            self._wanted.update(positions)

    async def leave(self) -> None:
        self._is_leaving.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _LEAVE_S)

    async def failed(self) -> Exception:
        return await asyncio.shield(self._failed)

    async def _alone(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async with self._turns:
            return await call()

    # -- on the membership's thread

    def _run(self) -> None:
        try:
            settings = self._config.member(self._config.group, strategy="cooperative-sticky")
            told = self._config.statistics.settings("group")
            settings_told = {**settings, **told, "on_commit": self._on_commit}
            consumer = Consumer(settings_told, logger=CLIENT_LOG)
            try:
                consumer.subscribe(
                    [self._config.events_topic],
                    on_assign=self._on_assign,
                    on_revoke=self._on_revoke,
                    on_lost=self._on_lost,
                )
                while not self._is_leaving.is_set():
                    self._turn(consumer)
                self._let_go(consumer, sorted(self._held))
            finally:
                # The callbacks find nothing left to hand over.
                self._is_leaving.set()
                self._held.clear()
                consumer.close()
            self._fail(LogUnavailableError("this member has left the group"))
        except Exception as error:  # noqa: BLE001  # a client's thread: told by `failed`
            self._fail(of_exception(error, "group"))

    def _turn(self, consumer: Consumer) -> None:
        """One poll; it serves the callbacks, and any record that slips through is dropped."""
        message = consumer.poll(_POLL_S)
        error = None if message is None else message.error()
        if error is not None:
            _log.info("group: %s (%s)", error.str(), error.name())
            if ends_membership(error):
                raise KafkaException(error)
        self._tell_assigned(consumer)
        with self._lock:
            wanted, self._wanted = self._wanted, {}
        # The broker would take a commit for a partition that is another's by now.
        self._commit(consumer, {p: wanted[p] for p in self._held if p in wanted})

    def _tell_assigned(self, consumer: Consumer) -> None:
        """The listener hears of new partitions once it is known what was committed for them."""
        if not self._untold:
            return
        try:
            places = consumer.committed(self._places(sorted(self._untold)), timeout=_ASK_S)
        except KafkaException as error:
            _log.info("group: committed positions: %s", error)
            return
        if any(place.error is not None for place in places):
            return
        self._untold.clear()
        # Below zero the client writes that there is none.
        positions = {
            Partition(place.partition): Position(place.offset)
            if place.offset >= NO_POSITION
            else None
            for place in places
        }
        self._hand_over(lambda: self._listener.on_assigned(positions))

    def _take_wanted(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """What is to be committed for these."""
        with self._lock:
            return {p: self._wanted.pop(p) for p in partitions if p in self._wanted}

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """The client's callback: what failed in passing is tried again, unless more is wanted."""
        for place in places:
            cause = place.error or error
            if cause is None:
                continue
            _log.info("group: commit of partition %s: %s", place.partition, cause.str())
            partition, position = Partition(place.partition), Position(place.offset)
            is_latest = self._asked.get(partition) == position
            if is_latest and isinstance(mapped(cause, "commit"), TransientError):
                with self._lock:
                    self._wanted.setdefault(partition, position)

    def _commit(self, consumer: Consumer, positions: Mapping[Partition, Position]) -> None:
        if not positions:
            return
        self._asked.update(positions)
        places = [
            TopicPartition(self._config.events_topic, partition, position)
            for partition, position in positions.items()
        ]
        try:
            consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            _log.info("group: commit: %s", error)  # the next one says more anyway

    def _let_go(self, consumer: Consumer, partitions: Sequence[Partition]) -> None:
        """The listener's last positions are committed, as far as time allows."""
        told = [partition for partition in partitions if partition not in self._untold]
        positions = self._take_wanted(told)
        try:
            if told:
                answer = self._hand_over(lambda: self._listener.on_revoked(told))
                positions.update(answer.result(REVOKE_MS / 1_000))
        except Exception:  # noqa: BLE001  # a client's callback: the partitions go all the same
            _log.warning("group: partitions %s go without a last word", told, exc_info=True)
        self._commit(consumer, positions)
        self._confirm(consumer, positions)

    def _confirm(self, consumer: Consumer, positions: Mapping[Partition, Position]) -> None:
        """Waits until the broker says that it has these commits.

        The client's own synchronous commit has no time limit, and it can not be called from
        another thread during a callback.
        """
        deadline_ms = self._clock.mono_ms() + _COMMIT_MS
        while positions and (left_ms := deadline_ms - self._clock.mono_ms()) > 0:
            try:
                places = consumer.committed(self._places(positions), timeout=left_ms / 1_000)
            except KafkaException as error:
                _log.info("group: commit at a revoke: %s", error)
                return
            if all(place.offset >= positions[Partition(place.partition)] for place in places):
                return
            self._pause.wait(_ASK_AGAIN_S)

    # -- callbacks, inside `poll` or `close`

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            self.rebalances += 1
            # Any start would do: nothing is read here. This one asks nobody.
            for place in places:
                place.offset = NO_POSITION
            consumer.incremental_assign(places)
            consumer.pause(places)
            new = {Partition(place.partition) for place in places}
            self._held |= new
            self._untold |= new
            self._loop.call_soon_threadsafe(self._has_joined)
        except Exception as error:  # noqa: BLE001  # a client's callback
            self._fail(of_exception(error, "assignment"))

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            self.rebalances += 1
            gone = [Partition(place.partition) for place in places]
            self._let_go(consumer, [partition for partition in gone if partition in self._held])
            self._forget(consumer, places)
        except Exception as error:  # noqa: BLE001  # a client's callback
            self._fail(of_exception(error, "revocation"))

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            self.rebalances += 1
            gone = {Partition(place.partition) for place in places} & self._held
            told = sorted(gone - self._untold)
            self._take_wanted(gone)
            if told:
                self._hand_over(lambda: self._listener.on_lost(told))
            self._forget(consumer, places)
        except Exception as error:  # noqa: BLE001  # a client's callback
            self._fail(of_exception(error, "loss"))

    def _forget(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        gone = {Partition(place.partition) for place in places}
        self._held -= gone
        self._untold -= gone
        for partition in gone:
            self._asked.pop(partition, None)
        consumer.incremental_unassign(places)

    # -- from the thread to the loop

    def _hand_over(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> "Future[Any]":
        """`call` runs on the loop when all earlier ones have ended."""
        answer = asyncio.run_coroutine_threadsafe(self._alone(call), self._loop)
        answer.add_done_callback(_report)
        return answer

    def _has_joined(self) -> None:
        if not self._joined.done():
            self._joined.set_result(None)

    def _fail(self, error: Exception) -> None:
        def tell() -> None:
            if not self._failed.done():
                self._failed.set_result(error)

        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            _log.debug("group: the loop is gone")

    def _places(
        self, partitions: Sequence[Partition] | Mapping[Partition, Any]
    ) -> list[TopicPartition]:
        return [TopicPartition(self._config.events_topic, partition) for partition in partitions]


def _report(answer: "Future[Any]") -> None:
    """A listener does not raise; if it does, somebody must hear of it."""
    if not answer.cancelled() and (error := answer.exception()) is not None:
        _log.error("group: the listener failed", exc_info=error)
