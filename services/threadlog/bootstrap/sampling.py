"""What operators watch and no event says: looked at about once a second, and now and then.

What is asked of the broker beside the work is asked by a task of its own: it may wait for ten
seconds, and the beat of the process must not.
"""

import asyncio
from collections.abc import Iterable

from threadlog.adapters.blobs.files import FileBlobs
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.bootstrap.cluster import Cluster
from threadlog.errors import RefusedError, TransientError
from threadlog.projection.owned import OwnedProjection
from threadlog.runtime.assignment import Assignment, PartitionService
from threadlog.runtime.owned import OwnedActor
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.table import Service

LOOK_S = 10.0
_FIRST_S = 0.5
_LOOKS_A_MINUTE = 6


def broken_threads(services: Iterable[PartitionService]) -> int:
    """Threads that an error of ours stopped in this process."""
    found = 0
    for service in services:
        if isinstance(service, OwnedActor):
            found += len(service.actor.worker.broken)
        elif isinstance(service, OwnedProjection):
            found += len(service.projection.broken)
    return found


def show_clients(cluster: Cluster, metrics: Metrics) -> None:
    """What the clients of the log have said of themselves last."""
    for kind, figures in cluster.config.statistics.known().items():
        metrics.log.client(
            kind,
            rtt_s=figures.rtt_s,
            queue_s=figures.queue_s,
            throttle_s=figures.throttle_s,
            messages=figures.messages,
            rebalances=figures.rebalances,
        )


async def watch_log(
    cluster: Cluster, metrics: Metrics, service: Service, assignment: Assignment | None
) -> None:
    """Looks every ten seconds, and at the topics every minute, for ever.

    Shapes:  `assignment` None: the process owns no partitions.
    """
    topics, looks = KafkaTopics(cluster.config), 0
    while True:
        # Partitions come a moment after the start.
        wait_s = _FIRST_S if assignment is not None and not assignment.services else LOOK_S
        if service != "projection":
            metrics.up("blobs", await _stores(cluster.blobs))
        elif assignment is not None:
            owned = list(assignment.services)
            try:
                metrics.log.foreign(await topics.foreign(owned) if owned else {})
                letters = [await cluster.views.partition(p).dead_letters() for p in owned]
                metrics.unresolved(service, sum(letters))
            except (TransientError, RefusedError):
                pass  # what is not known is shown as it was; that nobody answers is shown elsewhere
        if looks % _LOOKS_A_MINUTE == 0 and service in ("projection", "gateway"):
            await _show_drift(topics, metrics)
        looks += wait_s == LOOK_S
        await asyncio.sleep(wait_s)


async def _show_drift(topics: KafkaTopics, metrics: Metrics) -> None:
    try:
        for (topic, setting), differs in (await topics.drift()).items():
            metrics.log.drift(topic, setting, differs=differs)
    except (TransientError, RefusedError):
        return


async def _stores(blobs: object) -> bool:
    if not isinstance(blobs, FileBlobs):
        return True
    try:
        await blobs.check()
    except RefusedError:
        return False
    return True
