"""Reading a log in tests: wait for records, with a deadline, never for a time to pass."""

import asyncio
from collections.abc import Collection, Sequence

from threadlog.events.envelope import Event
from threadlog.ids import Position
from threadlog.ports.log import Log, Receipt, Record

DEADLINE_S = 15.0


async def collect(
    log: Log, after: Position, count: int, *, keys: Collection[str] | None = None
) -> list[Record]:
    """The first `count` records behind `after`, of these keys or of all."""
    found: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        async for batch in log.subscribe(after):
            found += [record for record in batch if keys is None or record.key in keys]
            if len(found) >= count:
                break
    return found[:count]


async def append_each(log: Log, events: Sequence[Event]) -> list[Receipt]:
    """Every event in an append of its own, one after another."""
    return [receipt for event in events for receipt in await log.append([event])]


def events_of(records: Sequence[Record]) -> list[Event]:
    """The events, where each record must have one."""
    events = [record.event for record in records if record.event is not None]
    assert len(events) == len(records), [record.problem for record in records]
    return events
