"""Sums of usage facts, each of which counts once however often it was stored."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence

from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.reading import Home, Reading
from threadlog.adapters.redis.rows import decode_fact
from threadlog.errors import RejectedError
from threadlog.ids import Partition, TenantId, ThreadId, uuid_text
from threadlog.ports.views import UsageFact, UsageGroup, UsageRow, UsageTotals

_THREADS = 100
_GROUPS = ("tenant", "thread", "turn", "model", "day")


async def usage(
    reading: Reading, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None
) -> list[UsageRow]:
    """The sums, one line a group; no facts, no line.

    Raises:  RejectedError: usage is not grouped by one of these.
    """
    if unknown := [name for name in group if name not in _GROUPS]:
        raise RejectedError(f"usage is not grouped by {', '.join(unknown)}")
    groups: dict[tuple[str, ...], list[UsageFact]] = defaultdict(list)
    async for facts in _facts(reading, tenant, thread):
        for fact in facts:
            groups[tuple(_value(fact, name) for name in group)].append(fact)
    return [UsageRow(values, _sum(facts)) for values, facts in sorted(groups.items())]


async def _facts(
    reading: Reading, tenant: TenantId, thread: ThreadId | None
) -> AsyncIterator[list[UsageFact]]:
    """The facts of one thread, or of all of the tenant's, some threads at a time."""
    if thread is not None:
        yield await _facts_of(reading, [reading.home(tenant, thread)])
        return
    for n in range(reading.identity.partitions):
        keys = keys_of(reading.identity, Partition(n)).of(tenant)
        after = b"-"
        while True:
            page = ("ZRANGEBYLEX", keys.of_tenant("streams"), after, "+", "LIMIT", 0, _THREADS)
            _, [members] = await reading.guarded(keys, [page])
            if members:
                homes = [reading.home(tenant, ThreadId(uuid_text(m))) for m in members]
                yield await _facts_of(reading, homes)
            if len(members) < _THREADS:
                break
            after = b"(" + members[-1]


async def _facts_of(reading: Reading, homes: Sequence[Home]) -> list[UsageFact]:
    """Facts of threads of one partition, up to its watermark."""
    watermark, replies = await reading.guarded(
        homes[0].keys, [("HVALS", home.keys.of_thread("facts")) for home in homes]
    )
    facts = [
        decode_fact(data, home.tenant, home.thread)
        for home, reply in zip(homes, replies, strict=True)
        for data in reply
    ]
    return [fact for fact in facts if fact.position <= watermark]


def _value(fact: UsageFact, name: UsageGroup) -> str:
    match name:
        case "tenant":
            return fact.tenant_id
        case "thread":
            return fact.thread_id
        case "turn":
            return fact.turn_id
        case "model":
            return f"{fact.provider}/{fact.model}"
        case "day":
            return fact.occurred_at[:10]


def _sum(facts: Sequence[UsageFact]) -> UsageTotals:
    prices = [fact.cost_micros for fact in facts if fact.cost_micros is not None]
    return UsageTotals(
        steps=len({(fact.turn_id, fact.step) for fact in facts}),
        input=sum(fact.input for fact in facts),
        output=sum(fact.output for fact in facts),
        cache_read=sum(fact.cache_read for fact in facts),
        cache_write=sum(fact.cache_write for fact in facts),
        reasoning=sum(fact.reasoning for fact in facts),
        cost_micros=sum(prices) if prices else None,
    )
