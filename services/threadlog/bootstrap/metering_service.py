"""`threadlog serve metering`: usage facts counted into windows, as a process.

It needs the broker alone. Any number may run; they share the partitions of usage facts.
"""

import asyncio
import gc
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.metering import MeteringTopics
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.bootstrap.embedded import Notice, arm_faults
from threadlog.bootstrap.kafka import kafka_config
from threadlog.bootstrap.log_watch import LogWatch
from threadlog.bootstrap.loop_health import Health, serve_pages
from threadlog.clock import SystemClock
from threadlog.errors import TransientError, UsageError
from threadlog.ids import Partition, Position, draw
from threadlog.limits import METERED_TENANTS_MAX
from threadlog.metering.app import MeteringConfig
from threadlog.metering.service import Metering
from threadlog.ports.log import LogIdentity
from threadlog.runtime.lag import Lag, is_moving
from threadlog.settings import Settings
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.scope import mark_process
from threadlog.telemetry.tenants import named_tenants

METRICS_PORT = 9105
_SAMPLE_S = 1.0


async def serve_metering(settings: Settings, notice: Notice, stop: asyncio.Event) -> None:
    """Metering ran until `stop` was set, and left in order.

    Raises:  UsageError, RefusedError: it must not run like this; the message says what to run.
             TransientError: the broker cannot be reached, or it stood still. Any other error.
    """
    if not settings.is_cluster:
        raise UsageError("metering needs a Kafka: set THREADLOG_KAFKA__BOOTSTRAP")
    arm_faults(settings)
    instance, clock = draw(), SystemClock()
    mark_process("metering", instance)
    config = kafka_config(settings, "metering", instance)
    topics = KafkaTopics(config)
    await topics.check()
    usage_id = await topics.check_metering()
    identity = await topics.identity()
    async with AsyncExitStack() as stack:
        outside = MeteringTopics(config)
        stack.push_async_callback(outside.close)
        stall_ms = settings.metering.stall_timeout_ms
        metering = Metering(
            metering_config(config, identity, usage_id), outside, clock, stall_ms=stall_ms
        )
        metrics, health = Metrics(revision=settings.revision), Health(clock)
        metrics.expect("metering")
        pages = serve_pages(settings, METRICS_PORT, metrics, health)
        stack.callback(pages.close)
        tenants = settings.metering.tenants
        work = _Sampler(config, metering, metrics, tenants).run(health, clock)
        sampling = asyncio.create_task(work)
        stack.callback(sampling.cancel)
        host, bound = pages.address
        notice(f"metering {instance} joins group {config.group}; metrics on {host}:{bound}")
        gc.freeze()
        await _run(metering, sampling, LogWatch(topics, identity), stop)


def metering_config(config: KafkaConfig, identity: LogIdentity, usage_id: str) -> MeteringConfig:
    """What Faust's clients are told, from what ours are."""
    security = config.security
    return MeteringConfig(
        bootstrap=config.bootstrap,
        group=config.metering_group,
        usage_topic=config.usage_topic,
        partitions=config.usage_partitions,
        topic_id=identity.topic_id,
        usage_id=usage_id,
        writer=config.instance,
        member_timeout_ms=config.member_timeout_ms,
        heartbeat_ms=config.heartbeat_ms,
        protocol=security.protocol,
        sasl_mechanism=security.sasl_mechanism,
        sasl_username=security.sasl_username,
        sasl_password=security.sasl_password,
        ssl_ca_file=security.ssl_ca_file,
    )


async def _run(
    metering: Metering, sampling: asyncio.Task[None], watch: LogWatch, stop: asyncio.Event
) -> None:
    """It ran until `stop`, or until the log was replaced; then nothing that it counts is true."""
    ended = asyncio.Event()
    running = asyncio.create_task(metering.run(ended))
    replaced, told = asyncio.create_task(watch.failed()), asyncio.create_task(stop.wait())
    try:
        tasks: list[asyncio.Task[Any]] = [running, replaced, told, sampling]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if sampling.done():
            sampling.result()
    finally:
        ended.set()
        told.cancel()
        await running
    if replaced.done() and (failure := replaced.result()) is not None:
        raise failure
    replaced.cancel()


class _Sampler:
    """What operators watch is measured about once a second."""

    def __init__(
        self, config: KafkaConfig, metering: Metering, metrics: Metrics, tenants: tuple[str, ...]
    ) -> None:
        self._group, self._topic = config.metering_group, config.usage_topic
        self._metering = metering
        self._metrics = metrics
        self._chosen = tenants
        self._lag = Lag()
        self._known: dict[int, Position] = {}

    async def run(self, health: Health, clock: SystemClock) -> None:
        """For ever."""
        while True:
            is_ready = self._metering.has_recovered
            health.beat(None if is_ready else "its table is not read yet")
            await asyncio.sleep(_SAMPLE_S)
            try:
                ends, done = await self._metering.sample()
                self._metrics.up("kafka", True)
                self._measure(clock, ends, done)
            except TransientError:
                self._metrics.up("kafka", False)
            windows = self._metering.windows()
            totals: dict[str, Mapping[str, int]] = {
                slot.tenant: {str(name): amount for name, amount in window.sums.items()}
                for slot, window in windows.items()
                if slot.span == "total"
            }
            self._metrics.tenants.show(named_tenants(totals, self._chosen, METERED_TENANTS_MAX))

    def _measure(
        self, clock: SystemClock, ends: Mapping[int, int], done: Mapping[int, int]
    ) -> None:
        now_s = asyncio.get_running_loop().time()
        records, oldest_s = self._lag.sample(
            now_s,
            {Partition(p): Position(end) for p, end in ends.items()},
            {Partition(p): Position(at) for p, at in done.items()},
        )
        self._metrics.set_lag(self._group, self._topic, records, oldest_s)
        for partition, at in done.items():
            if is_moving(self._known.get(partition), Position(at), records.get(partition)):
                self._metrics.progress(self._group, partition, clock.now_ms() / 1_000)
        self._metrics.revoked(self._group, self._known.keys() - done.keys())
        self._known = {partition: Position(at) for partition, at in done.items()}
