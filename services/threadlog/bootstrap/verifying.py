"""`usage --verify`: metering's figures beside the exact ones of the projection.

It needs no metering process: what metering has counted lies in its table's topic. Facts that its
group has not finished are counted here on top, so that "behind" is never taken for "different".
"""

from dataclasses import dataclass

from threadlog.adapters.kafka.metering import MeteringTopics
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.bootstrap.cluster import Cluster, open_cluster
from threadlog.bootstrap.embedded import die
from threadlog.errors import RecordError, UsageError, ViewsRebuildingError
from threadlog.ids import LOCAL_TENANT, Partition, Position, TenantId, draw
from threadlog.metering.ledger import Ledger
from threadlog.metering.windows import Slot
from threadlog.ports.usage import UsageRow, UsageTotals
from threadlog.ports.usage_log import AMOUNTS, UsageRecord, decode_usage
from threadlog.settings import Settings

Figures = dict[str, int]
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """One tenant. `metered` holds the `behind` facts, too, that metering has not counted yet."""

    tenant: str
    exact: Figures
    metered: Figures
    behind: int


async def compared(settings: Settings) -> list[Compared]:
    """Every tenant that metering has met, and this one.

    Raises:  UsageError: there is no cluster. RefusedError: there is no metering.
             TransientError: the views are behind the log, or move too fast to compare.
    """
    if settings.url is not None or not settings.is_cluster:
        raise UsageError("--verify compares with metering, which only a cluster has: set its Kafka")
    async with open_cluster(settings, "cli", draw(), on_fatal=die) as cluster:
        usage_id = await KafkaTopics(cluster.config).check_metering()
        topics = MeteringTopics(cluster.config)
        try:
            for _ in range(_TRIES):
                before = await _watermarks(cluster)
                found = await _compare(cluster, topics, usage_id)
                if before == await _watermarks(cluster):
                    return found
        finally:
            await topics.close()
    raise ViewsRebuildingError("usage moves too fast to be compared now: try again")


async def _watermarks(cluster: Cluster) -> list[Position]:
    """Of every partition, each at the end of its log."""
    found = []
    for n in range(cluster.config.partitions):
        end = await cluster.log.end_of(Partition(n))
        at = await cluster.views.partition(Partition(n)).watermark()
        if at < end:
            raise ViewsRebuildingError(
                f"the views are {end - at} records behind partition {n} of the log: try again"
            )
        found.append(at)
    return found


async def _compare(cluster: Cluster, topics: MeteringTopics, usage_id: str) -> list[Compared]:
    ledger = Ledger(cluster.identity.topic_id, usage_id, "verify")
    ledger.recover(await topics.table())
    pairs = await topics.unread(ledger.next_of)
    unread = [record for pair in pairs if (record := _record(*pair)) is not None]
    tenants = {str(LOCAL_TENANT), *(slot.tenant for slot in ledger.windows)}
    tenants |= {record.tenant_id for record in unread}
    behind = dict.fromkeys(tenants, 0)
    for record in unread:
        # As of all time: no window is too new for it, and the older ones do not matter here.
        behind[record.tenant_id] += ledger.count(record, 0)
    found = []
    for tenant in sorted(tenants):
        rows = await cluster.views.usage(TenantId(tenant), ())
        row = next(iter(rows), UsageRow((), UsageTotals()))
        window = ledger.windows.get(Slot("total", 0, tenant))
        metered: Figures = {name: 0 if window is None else window.sums[name] for name in AMOUNTS}
        found.append(Compared(tenant, _exact(row), metered, behind[tenant]))
    return found


def _record(key: bytes | None, value: bytes | None) -> UsageRecord | None:
    try:
        return decode_usage(key, value)
    except RecordError:
        return None  # metering passes over it, too


def _exact(row: UsageRow) -> Figures:
    figures: Figures = {str(name): getattr(row.totals, name, 0) or 0 for name in AMOUNTS}
    return figures | {"tool_ms": row.tool_ms}
