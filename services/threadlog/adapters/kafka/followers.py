"""Everybody in this process who follows a partition, spread over as few consumers as possible.

One consumer serves one subscriber of each partition, so a worker needs one for all of its
partitions; a second subscriber of the same partition has a consumer of its own.
"""

from collections.abc import AsyncIterator, Sequence

from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.reader import Reader
from threadlog.clock import Clock
from threadlog.errors import LogUnavailableError
from threadlog.ids import Partition, Position
from threadlog.ports.log import Record


class Followers:
    """The readers of one log. All methods run on one event loop."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._readers: list[Reader] = []
        self._retired: list[Reader] = []
        self._is_closed = False

    async def follow(
        self, partition: Partition, after: Position
    ) -> AsyncIterator[Sequence[Record]]:
        """Every record of `partition` behind `after`, in batches, for ever.

        Raises:  LogUnavailableError: the log was closed or cannot be read any more.
                 HistoryTruncatedError: the record behind `after` is gone, or never was.
        """
        if self._is_closed:
            raise LogUnavailableError("the log is closed")
        reader = self._reader_for(partition)
        subscriber = reader.join(partition, after)
        try:
            while True:
                yield await subscriber.take()
        finally:
            reader.leave(subscriber)
            self._tidy()

    async def close(self) -> None:
        """Whoever still follows fails; every thread has ended."""
        self._is_closed = True
        readers = [*self._readers, *self._retired]
        for reader in readers:
            reader.close()
        for reader in readers:
            await reader.closed()

    def _reader_for(self, partition: Partition) -> Reader:
        for reader in self._readers:
            if not reader.has_ended and not reader.serves(partition):
                return reader
        reader = Reader(self._config, self._clock)
        self._readers.append(reader)
        return reader

    def _tidy(self) -> None:
        """Consumers that nobody needs go; the first stays, with its connections."""
        for reader in self._readers[1:]:
            if reader.is_idle:
                self._retire(reader)
        if self._readers and self._readers[0].has_ended:
            self._retire(self._readers[0])
        self._retired = [reader for reader in self._retired if reader.is_running]

    def _retire(self, reader: Reader) -> None:
        reader.close()
        self._readers.remove(reader)
        self._retired.append(reader)
