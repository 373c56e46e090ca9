"""What several checks of a cluster need: each is asked for once, and told of by one check."""

from dataclasses import dataclass
from pathlib import Path

from threadlog.adapters.blobs.files import FileBlobs
from threadlog.adapters.kafka.inspection import BrokerSeen, Inspection
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.adapters.redis.connect import RedisClient
from threadlog.adapters.redis.inspection import RedisSeen, seen
from threadlog.bootstrap.doctor.report import Once, off_loop
from threadlog.bootstrap.kafka import kafka_config
from threadlog.clock import Clock
from threadlog.errors import NotFoundError, UsageError
from threadlog.ids import draw
from threadlog.ports.log import LogIdentity
from threadlog.settings import Settings


@dataclass(frozen=True, slots=True)
class Reached:
    """A broker that answers, and who asks it."""

    inspection: Inspection
    topics: KafkaTopics
    seen: BrokerSeen


@dataclass(frozen=True, slots=True)
class Bounds:
    """The log as it is: from where to where each partition goes."""

    identity: LogIdentity
    first: dict[int, int]
    ends: dict[int, int]


class Facts:
    """The cluster of these settings. `close` in the end."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.broker = Once(self._broker, "the broker was not reached")
        self.bounds = Once(self._bounds, "the events topic could not be read")
        self.redis = Once(self._redis, "Redis was not reached")
        self.folder = Once(self._folder, "the blobs folder cannot be used")
        self._inspection: Inspection | None = None
        self.client: RedisClient | None = None

    async def close(self) -> None:
        """No connection is open."""
        if self._inspection is not None:
            self._inspection.close()
        if self.client is not None:
            await self.client.aclose()

    async def _broker(self) -> Reached:
        config = kafka_config(self.settings, "cli", draw())
        inspection = Inspection(config, self.clock)
        self._inspection = inspection
        return Reached(inspection, KafkaTopics(config), await off_loop(inspection.broker))

    async def _bounds(self) -> Bounds:
        reached = await self.broker()
        identity = await reached.topics.identity()
        first, ends = await off_loop(lambda: reached.inspection.bounds(identity.partitions))
        return Bounds(identity, first, ends)

    async def _folder(self) -> Path:
        folder = self.settings.blobs_folder()
        if folder is None:
            raise UsageError("a cluster needs a blob store: set THREADLOG_BLOBS__URL")

        def probe() -> None:
            if not folder.exists():
                raise NotFoundError(f"{folder} does not exist")
            FileBlobs(folder).probe()

        # A network file system may hang: no thread that the program would wait for goes there.
        await off_loop(probe)
        return folder

    async def _redis(self) -> tuple[RedisClient, RedisSeen]:
        url = self.settings.redis.address()
        if url is None:
            raise UsageError("a cluster needs a Redis: set THREADLOG_REDIS__URL")
        self.client = RedisClient(url)
        return self.client, await seen(self.client)
