"""Pages of a tenant's threads by last activity, merged from all partitions."""

from collections.abc import Sequence

from threadlog.adapters.redis.layout import keys_of, place_of, thread_at
from threadlog.adapters.redis.reading import Reading
from threadlog.adapters.redis.rows import decode_row
from threadlog.ids import Partition, TenantId
from threadlog.ports.views import (
    ThreadPlace,
    ThreadRow,
)


async def newest_threads(
    reading: Reading, tenant: TenantId, limit: int, before: ThreadPlace | None
) -> list[ThreadRow]:
    """Rows right behind `before`, newest first.

    A thread that moves while a page is read stands at its new place, and in no page behind it.
    """
    rows: list[ThreadRow] = []
    end = b"+" if before is None else b"(" + place_of(before)
    while (wanted := limit - len(rows)) > 0:
        places = await _places(reading, tenant, end, wanted)
        rows += await _rows(reading, tenant, places)
        if len(places) < wanted:
            break
        end = b"(" + places[-1]
    return rows


async def _places(reading: Reading, tenant: TenantId, end: bytes, count: int) -> list[bytes]:
    """The highest `count` places below `end` in all partitions; every place is another."""
    partitions = [
        keys_of(reading.identity, Partition(n)).of(tenant)
        for n in range(reading.identity.partitions)
    ]
    pages = await reading.guarded_each(
        [
            (keys, ("ZREVRANGEBYLEX", keys.of_tenant("threads"), end, "-", "LIMIT", 0, count))
            for keys in partitions
        ]
    )
    found = [place for page in pages for place in page]
    return sorted(found, reverse=True)[:count]


async def _rows(reading: Reading, tenant: TenantId, places: Sequence[bytes]) -> list[ThreadRow]:
    """The rows that still stand at these places."""
    homes = [reading.home(tenant, thread_at(place)) for place in places]
    read = await reading.guarded_each(
        [(home.keys, ("HMGET", home.keys.of_thread("row"), "row", "place")) for home in homes]
    )
    return [
        decode_row(data, tenant, home.thread)
        for home, place, (data, stands_at) in zip(homes, places, read, strict=True)
        if stands_at == place
    ]
