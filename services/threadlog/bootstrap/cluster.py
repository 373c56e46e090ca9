"""A process of a cluster: its connections to Kafka, Redis and blobs, checked before use."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from threadlog.adapters.blobs.files import FileBlobs
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.log import KafkaLog
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.adapters.redis.channels import Channels
from threadlog.adapters.redis.connect import connected
from threadlog.adapters.redis.notify import RedisNotify
from threadlog.adapters.redis.snapshots import RedisSnapshots
from threadlog.adapters.redis.views import RedisViews
from threadlog.bootstrap.kafka import kafka_config
from threadlog.clock import SystemClock
from threadlog.commands.service import Commands
from threadlog.errors import ThreadlogError
from threadlog.ids import LOCAL_TENANT
from threadlog.ports.blobs import SizedBlobs
from threadlog.ports.log import LogIdentity
from threadlog.queries.reading import Reader
from threadlog.settings import Settings

_STORING = ("planner", "tool-runner", "gateway")
"""Services that put large contents into the blob store."""
_LOOK_S = 1.0
"""Frames are lost when a projection dies between a batch and telling of it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The connections of one process. Made by `open_cluster`."""

    config: KafkaConfig
    identity: LogIdentity
    log: KafkaLog
    views: RedisViews
    snapshots: RedisSnapshots
    notify: RedisNotify
    blobs: SizedBlobs
    clock: SystemClock

    def commands(self, actor: str) -> Commands:
        """The commands of this process."""
        return Commands(
            self.log, self.views, self.blobs, self.clock, tenant=LOCAL_TENANT, actor=actor
        )

    def reader(self) -> Reader:
        """A reader that hears frames."""
        return Reader(self.views, self.blobs, self.notify, LOCAL_TENANT, look_s=_LOOK_S)


@asynccontextmanager
async def open_cluster(
    settings: Settings,
    service: str,
    instance: str,
    *,
    on_fatal: Callable[[ThreadlogError], None],
) -> AsyncIterator[Cluster]:
    """The log and the views are there, and are the ones that belong together.

    Raises:  UsageError: a setting is missing. RefusedError: topic, Redis or what is stored there
             must not be used as it is; says what to run. TransientError: one cannot be reached.
    """
    settings.check_cluster()
    config = kafka_config(settings, service, instance)
    url, folder = settings.redis.address(), settings.blobs_folder()
    assert url is not None, "checked by Settings.check_cluster"
    assert folder is not None, "checked by Settings.check_cluster"
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        topics = KafkaTopics(config)
        await topics.check()
        identity = await topics.identity()
        client = await stack.enter_async_context(connected(url))
        channels = Channels(client)
        stack.push_async_callback(channels.aclose)
        log = KafkaLog(config, on_fatal=on_fatal)
        await log.start()
        stack.push_async_callback(log.close)
        views = RedisViews(client, channels, identity, log)
        stack.push_async_callback(views.aclose)
        await views.check()
        notify = RedisNotify(client, channels, identity)
        stack.push_async_callback(notify.aclose)
        snapshots = RedisSnapshots(client, identity)
        blobs = FileBlobs(folder)
        if service in _STORING:
            await blobs.check()
        yield Cluster(config, identity, log, views, snapshots, notify, blobs, clock)
