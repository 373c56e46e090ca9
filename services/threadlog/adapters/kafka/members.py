"""Who is alive: a group of its own for each service, joined at start and left last.

Its members share no partitions: being in the list is all. Absence counts only in an answer that
lists the asker itself; a broker that has just started, or is not there, proves nothing.
"""

import asyncio
import contextlib
import logging
import threading
import warnings
from collections import deque
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import ends_membership, of_exception
from threadlog.errors import LogUnavailableError
from threadlog.ids import WorkerId
from threadlog.limits import CLAIM_TTL_MS

_log = logging.getLogger("threadlog.kafka")
_POLL_S = 0.1
_ASK_S = 5
_JOIN_S = 30.0
"""How long the first joining may take."""
_LEAVE_S = 15.0


class KafkaMembers:
    """Implements `ports.members.Members` among the processes of one service."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self.watch_ms = max(config.member_timeout_ms, CLAIM_TTL_MS)
        self._is_leaving = threading.Event()
        self._question = threading.Condition()
        self._waiting: deque[tuple[WorkerId, asyncio.Future[bool]]] = deque()
        self._threads: list[threading.Thread] = []

    # -- on the loop

    async def start(self) -> None:
        """This process is among the living.

        Raises:  LogUnavailableError: the group could not be joined in time.
        """
        self._loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = self._loop.create_future()
        self._failed: asyncio.Future[Exception] = self._loop.create_future()
        for run in (self._stay, self._answer):
            thread = threading.Thread(target=run, name="kafka-members", daemon=True)
            thread.start()
            self._threads.append(thread)
        waiting: list[asyncio.Future[Any]] = [self._joined, self._failed]
        await asyncio.wait(waiting, timeout=_JOIN_S, return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            raise self._failed.result()
        if not self._joined.done():
            raise LogUnavailableError(f"group {self._config.alive_group}: not joined in time")

    async def close(self) -> None:
        """This process is not among the living any more: nothing of it may run."""
        self._is_leaving.set()
        with self._question:
            self._question.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, _LEAVE_S)

    async def failed(self) -> Exception:
        """Why others will soon take this process for dead; waits for it, usually for ever."""
        return await asyncio.shield(self._failed)

    async def is_gone(self, worker: WorkerId) -> bool:
        if self._is_leaving.is_set() or not self._threads:
            return False  # nobody asks: that is doubt
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._question:
            self._waiting.append((worker, answer))
            self._question.notify_all()
        return await answer

    # -- the member's thread

    def _stay(self) -> None:
        try:
            settings = self._config.member(self._config.alive_group, strategy="range")
            told = self._config.statistics.settings("members")
            consumer = Consumer({**settings, **told}, logger=CLIENT_LOG)
            try:
                consumer.subscribe(
                    [self._config.events_topic], on_assign=self._on_assign, on_revoke=_on_revoke
                )
                while not self._is_leaving.is_set():
                    message = consumer.poll(_POLL_S)
                    error = None if message is None else message.error()
                    if error is not None:
                        _log.info("members: %s (%s)", error.str(), error.name())
                        if ends_membership(error):
                            raise KafkaException(error)
            finally:
                consumer.close()
        except Exception as error:  # noqa: BLE001  # a client's thread: told by `failed`
            self._fail(of_exception(error, "members"))

    def _on_assign(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        """The client's callback. Without it the client would begin to read."""
        try:
            consumer.assign([])
            self._loop.call_soon_threadsafe(self._has_joined)
        except Exception as error:  # noqa: BLE001  # a client's callback
            self._fail(of_exception(error, "members"))

    def _has_joined(self) -> None:
        if not self._joined.done():
            self._joined.set_result(None)

    def _fail(self, error: Exception) -> None:
        def tell() -> None:
            if not self._failed.done():
                self._failed.set_result(error)

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell)

    # -- the asker's thread

    def _answer(self) -> None:
        """Asks once for everybody who waits: nobody gets an answer older than the question."""
        try:
            admin = AdminClient(self._config.admin(), logger=CLIENT_LOG)
        except KafkaException as error:
            self._fail(of_exception(error, "members"))
            return
        while True:
            with self._question:
                while not self._waiting and not self._is_leaving.is_set():
                    self._question.wait()
                waiting, self._waiting = self._waiting, deque()
            living = set() if self._is_leaving.is_set() else self._living(admin)
            counts = self._config.worker in living
            answers = [(answer, counts and worker not in living) for worker, answer in waiting]
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_resolve, answers)
            if self._is_leaving.is_set():
                return

    def _living(self, admin: AdminClient) -> set[str]:
        """The client ids in the list of the living; empty when the broker does not say."""
        try:
            with warnings.catch_warnings():
                # Deprecated, but its replacement ends the process when the coordinator's
                # connection drops during the call (confluentinc/librdkafka#4605).
                warnings.simplefilter("ignore", DeprecationWarning)
                # The client declares its members' values as None.
                groups: Any = admin.list_groups(self._config.alive_group, timeout=_ASK_S)
            admin.poll(0)
        except Exception as error:  # noqa: BLE001  # any doubt means alive
            _log.info("members: %s", error)
            return set()
        return {
            member.client_id
            for group in groups
            if group.id == self._config.alive_group and group.error is None
            for member in group.members
        }


def _on_revoke(consumer: Consumer, _: list[TopicPartition]) -> None:
    """The client's callback: there was nothing to give away."""
    with contextlib.suppress(KafkaException, RuntimeError):
        consumer.unassign()


def _resolve(answers: list[tuple[asyncio.Future[bool], bool]]) -> None:
    for answer, is_gone in answers:
        if not answer.done():
            answer.set_result(is_gone)
