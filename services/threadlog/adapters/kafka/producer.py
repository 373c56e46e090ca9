"""The one producer of a process: records in, one answer for each append.

An append is acknowledged as a whole or its outcome is unknown; its records stand next to each
other among those of this process. The client's callbacks run on the producer's own thread and do
one thing: when the last record of an append is decided, the waiting task is told.

When that thread ends before its time, `on_fatal` is told once, and no append waits: those under
way have an unknown outcome, later ones fail at once.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import mapped, of_exception
from threadlog.adapters.kafka.headers import Encoded
from threadlog.errors import LogUnavailableError, ThreadlogError

_log = logging.getLogger("threadlog.kafka")
_POLL_S = 0.1
_FLUSH_S = 10.0
"""How long closing waits for what was appended and not yet acknowledged."""

OnFatal = Callable[[ThreadlogError], None]


class _Pending:
    """One append: counts down on the producer's thread, is answered on the loop's."""

    __slots__ = ("_error", "_left", "_loop", "_offsets", "future")

    def __init__(self, loop: asyncio.AbstractEventLoop, records: int) -> None:
        self._loop = loop
        self._left = records
        self._offsets: list[int] = []
        self._error: KafkaError | None = None
        self.future: asyncio.Future[list[int]] = loop.create_future()

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """The client's callback: never raises, never calls the producer."""
        if error is not None:
            self._error = self._error or error
        elif (offset := message.offset()) is not None:
            self._offsets.append(offset)
        self._left -= 1
        if self._left == 0:
            # The loop may be gone when the process ends.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        if self.future.done():
            return  # nobody waits any more
        if self._error is not None:
            self.future.set_exception(mapped(self._error, "append"))
        else:
            # An idempotent producer keeps its order, so ascending is the order given.
            self.future.set_result(sorted(self._offsets))

    def fail(self, error: ThreadlogError) -> None:
        """The append is not answered any more by the broker."""
        if not self.future.done():
            self.future.set_exception(error)


class KafkaProducer:
    """Appends encoded records to partitions that the caller names."""

    def __init__(self, config: KafkaConfig, on_fatal: OnFatal) -> None:
        self._config = config
        self._on_fatal = on_fatal
        self._producer: Producer | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._is_closed = False
        self._failure: ThreadlogError | None = None
        self._pending: set[_Pending] = set()

    def start(self) -> None:
        """Makes the client; must be called on the loop that appends."""
        self._loop = asyncio.get_running_loop()
        told = self._config.statistics.settings("producer")
        settings = {**self._config.producer(), **told, "error_cb": self._on_error}
        try:
            self._producer = Producer(settings, logger=CLIENT_LOG)
        except KafkaException as error:
            raise of_exception(error, "producer") from error
        self._thread = threading.Thread(target=self._serve, name="kafka-producer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """What is under way is acknowledged, or its outcome stays unknown."""
        self._is_closed = True
        self._closing.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        # Answers that the thread left on this loop come before the verdict over the rest.
        await asyncio.sleep(0)
        for pending in self._pending:
            pending.fail(LogUnavailableError("append: the log was closed"))
        self._producer = None

    async def append(self, topic: str, partition: int, records: Sequence[Encoded]) -> list[int]:
        """The offsets of the records, all durable, in the order given.

        Raises:  TransientError: it is unknown which of them are in the log.
                 RejectedError: the first one is too large, and none was appended.
        """
        if self._is_closed or self._producer is None:
            raise LogUnavailableError("append: the log is closed")
        if self._failure is not None:
            raise LogUnavailableError(f"append: {self._failure}")
        pending = _Pending(self._loop, len(records))
        try:
            for key, headers, value, _ in records:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=pending.on_delivery,
                    headers=headers,  # type: ignore[arg-type]  # lists are invariant: str | bytes
                )
        except (BufferError, KafkaException) as error:
            raise of_exception(error, "append") from error
        self._pending.add(pending)
        try:
            return await pending.future
        finally:
            self._pending.discard(pending)

    def _serve(self) -> None:
        """The producer's thread: serves callbacks until closing, then what is still under way."""
        producer = self._producer
        assert producer is not None
        try:
            while not self._closing.is_set():
                producer.poll(_POLL_S)
            producer.flush(_FLUSH_S)
        except Exception as error:  # noqa: BLE001  # a client's thread: told to all who wait
            # A fatal error is no call of `error_cb`: the client raises it here.
            self._tell(of_exception(error, "producer"))

    def _on_error(self, error: KafkaError) -> None:
        """The client's callback for what concerns no single record."""
        if error.fatal():
            self._tell(mapped(error, "producer"))
        else:
            _log.info("producer: %s (%s)", error.str(), error.name())

    def _tell(self, failure: ThreadlogError) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._fail, failure)

    def _fail(self, failure: ThreadlogError) -> None:
        """Nothing can be appended any more."""
        if self._failure is not None:
            return
        self._failure = failure
        _log.error("producer ended: %s", failure)
        # Answers that the thread left on this loop came before this call.
        for pending in self._pending:
            pending.fail(LogUnavailableError(f"append: {failure}"))
        self._on_fatal(failure)
