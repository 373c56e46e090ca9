"""The end of every fault test on a cluster: wait for rest, gather all evidence, ask the oracle."""

import asyncio
from collections.abc import Sequence

from tests.helpers.cluster import NAMES, Cluster, until_true
from tests.helpers.cluster_log import LogTold, Outsider, Told
from tests.helpers.cluster_model import Counted
from tests.helpers.cluster_oracle import (
    SHOWN_MAX,
    Evidence,
    Figures,
    Viewed,
    figures,
    findings,
)
from threadlog.bootstrap.cluster import Cluster as Connections
from threadlog.commands.requests import Accepted
from threadlog.errors import TransientError
from threadlog.ids import Partition, Position, Seq
from threadlog.limits import READ_EVENTS_MAX
from threadlog.ports.views import StoredEvent
from threadlog.runtime.load import Loader
from threadlog.thread.snapshot import encode_state, state_hash

REST_S = 45.0
"""A claim of a dead worker is settled after its membership and `claim_ttl`, and asked again."""
_VOIDS_MAX = 100_000


async def check(
    cluster: Cluster,
    *,
    sent: Sequence[Accepted] = (),
    model: Counted | None = None,
    rest_s: float = REST_S,
) -> tuple[Figures, LogTold]:
    """The cluster comes to rest, and then everything that must hold does.

    Raises:  AssertionError: what does not hold, up to `SHOWN_MAX` findings.
    """
    outsider = Outsider(cluster.bootstrap, cluster.topic, cluster.partitions)
    try:
        async with cluster.connected() as connections:
            await rest(cluster, connections, outsider, rest_s)
            evidence = await gather(cluster, connections, outsider)
    finally:
        await asyncio.to_thread(outsider.close)
    evidence.sent = sent
    evidence.asked = None if model is None else list(model.asked)
    found = findings(evidence)
    told = figures(evidence.log)
    shown = "\n".join(found[:SHOWN_MAX])
    assert not found, f"{len(found)} findings in {told}:\n{shown}"
    cluster.check_nobody_died()
    return told, evidence.log


async def rest(
    cluster: Cluster, connections: Connections, outsider: Outsider, rest_s: float
) -> None:
    """No turn is open, and the views have passed every record."""

    async def is_at_rest() -> bool:
        told = await asyncio.to_thread(outsider.read_on)
        return told.is_at_rest and await watermarks(cluster, connections) == told.ends

    try:
        await until_true(is_at_rest, "everything is at rest", cluster.living(), rest_s)
    except AssertionError as error:
        raise AssertionError(f"{_unrest(outsider.told)}\n{error}") from None


def _unrest(told: LogTold) -> str:
    """The last records of threads that are not at rest."""
    lines = [f"ends {told.ends}"]
    for key, thread in told.threads.items():
        if not thread.is_at_rest:
            last = [
                f"{e.event.type}({e.event.worker}){'' if e.judgement.void is None else ' void'}"
                for e in thread.entries[-6:]
            ]
            lines.append(f"{key} in {thread.partition}: {last}")
    return "\n".join(lines[:SHOWN_MAX])


async def watermarks(cluster: Cluster, connections: Connections) -> dict[Partition, Position]:
    """Up to where the views of each partition are; empty while they cannot be asked."""
    try:
        return {
            Partition(n): await connections.views.partition(Partition(n)).watermark()
            for n in range(cluster.partitions)
        }
    except TransientError:
        return {}


async def gather(cluster: Cluster, connections: Connections, outsider: Outsider) -> Evidence:
    """All that can be seen from outside."""
    committed: dict[tuple[str, Partition], Position | None] = {
        (name, partition): place
        for name in NAMES
        for partition, place in (
            await asyncio.to_thread(
                outsider.committed, cluster.bootstrap, f"{cluster.prefix}.{name}"
            )
        ).items()
    }
    told = outsider.told
    return Evidence(
        log=told,
        effects=cluster.effects(),
        marker=str(cluster.marker),
        innocent=cluster.innocent(),
        watermarks=await watermarks(cluster, connections),
        committed=committed,
        views={
            key: await viewed(connections, thread, told.ends[thread.partition])
            for key, thread in told.threads.items()
        },
    )


async def viewed(connections: Connections, told: Told, end: Position) -> Viewed:
    """What a reader and a service see of this thread."""
    tenant, thread, views = told.tenant, told.thread, connections.views
    events: list[StoredEvent] = []
    while page := await views.events(
        tenant, thread, first=Seq(len(events)), last=Seq(2**62), limit=READ_EVENTS_MAX
    ):
        events += page
    loaded = await Loader(views, connections.snapshots).load(tenant, thread, Position(end + 1))
    newest = await connections.snapshots.newest(tenant, thread)
    return Viewed(
        row=await views.thread(tenant, thread),
        events=events,
        voids=await views.voids(tenant, thread, limit=_VOIDS_MAX),
        state_sha256=state_hash(encode_state(loaded.state)),
        snapshot=None if newest is None else (newest.position, newest.sha256),
    )
