"""Sums of usage facts, each of which counts once however often it was stored.

Facts are summed as they come, in bounded pages; what is kept at a time is one sum a group, and of
the threads of one page which facts and steps were counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from threadlog.adapters.redis.layout import keys_of
from threadlog.adapters.redis.reading import Home, Reading
from threadlog.adapters.redis.rows import decode_fact
from threadlog.errors import RejectedError, ViewsRebuildingError
from threadlog.ids import Partition, TenantId, ThreadId, TurnId, uuid_text
from threadlog.ports.usage import (
    UsageFact,
    UsageGroup,
    UsageRow,
    UsageTotals,
)

_THREADS = 20
_FACTS = 100
"""What one call takes of a thread; Redis gives small hashes whole (`hash-max-listpack-entries`)."""
_GROUPS = get_args(UsageGroup)
_Group = tuple[str, ...]


@dataclass(slots=True)
class _Sum:
    """The totals of one group so far."""

    steps: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_micros: int | None = None
    tool_ms: int = 0

    def add(self, fact: UsageFact) -> None:
        self.input += fact.input
        self.output += fact.output
        self.cache_read += fact.cache_read
        self.cache_write += fact.cache_write
        self.reasoning += fact.reasoning
        self.tool_ms += fact.tool_ms or 0
        if fact.cost_micros is not None:
            self.cost_micros = (self.cost_micros or 0) + fact.cost_micros

    def totals(self) -> UsageTotals:
        return UsageTotals(
            steps=self.steps,
            input=self.input,
            output=self.output,
            cache_read=self.cache_read,
            cache_write=self.cache_write,
            reasoning=self.reasoning,
            cost_micros=self.cost_micros,
        )


@dataclass(slots=True)
class _Scan:
    """How far the facts of one thread were read."""

    home: Home
    cursor: int = 0
    counted: set[bytes] = field(default_factory=set)
    """Redis may give a field twice while a hash grows."""
    steps: dict[_Group, set[tuple[TurnId, int]]] = field(default_factory=dict)


class _Sums:
    """The sums of all groups."""

    def __init__(self, reading: Reading, group: Sequence[UsageGroup]) -> None:
        self._reading = reading
        self._group = group
        self._sums: dict[_Group, _Sum] = {}

    def rows(self) -> list[UsageRow]:
        sums = sorted(self._sums.items())
        return [UsageRow(values, found.totals(), found.tool_ms) for values, found in sums]

    async def take(self, homes: Sequence[Home]) -> None:
        """Facts of threads of one partition, up to its watermark as it is first read.

        What lies up to there is in the hashes from the first page to the last, so that none is
        missed although they grow meanwhile.
        """
        scans = [_Scan(home) for home in homes]
        until = None
        while scans:
            calls = [
                ("HSCAN", s.home.keys.of_thread("facts"), s.cursor, "COUNT", _FACTS) for s in scans
            ]
            watermark, replies = await self._reading.guarded(homes[0].keys, calls)
            until = watermark if until is None else until
            if watermark < until:
                raise ViewsRebuildingError("the views were lost while usage was summed")
            for scan, (cursor, page) in zip(scans, replies, strict=True):
                scan.cursor = cursor
                for name, data in page.items():
                    if name not in scan.counted:
                        scan.counted.add(name)
                        fact = decode_fact(data, scan.home.tenant, scan.home.thread)
                        if fact.position <= until:
                            self._add(scan, fact)
                if not cursor:
                    self._end(scan)
            scans = [scan for scan in scans if scan.cursor]

    def _add(self, scan: _Scan, fact: UsageFact) -> None:
        values = tuple(_value(fact, name) for name in self._group)
        self._sums.setdefault(values, _Sum()).add(fact)
        if fact.tool_ms is None:
            scan.steps.setdefault(values, set()).add((fact.turn_id, fact.step))

    def _end(self, scan: _Scan) -> None:
        # A turn belongs to one thread, so that no step is counted with another thread's.
        for values, steps in scan.steps.items():
            self._sums[values].steps += len(steps)


async def usage(
    reading: Reading, tenant: TenantId, group: Sequence[UsageGroup], thread: ThreadId | None
) -> list[UsageRow]:
    """The sums, one line a group; no facts, no line.

    Raises:  RejectedError: usage is not grouped by one of these.
    """
    if unknown := [name for name in group if name not in _GROUPS]:
        raise RejectedError(f"usage is not grouped by {', '.join(unknown)}")
    sums = _Sums(reading, group)
    if thread is not None:
        await sums.take([reading.home(tenant, thread)])
        return sums.rows()
    for n in range(reading.identity.partitions):
        keys = keys_of(reading.identity, Partition(n)).of(tenant)
        after = b"-"
        while True:
            page = ("ZRANGEBYLEX", keys.of_tenant("streams"), after, "+", "LIMIT", 0, _THREADS)
            _, [members] = await reading.guarded(keys, [page])
            if members:
                homes = [reading.home(tenant, ThreadId(uuid_text(m))) for m in members]
                await sums.take(homes)
            if len(members) < _THREADS:
                break
            after = b"(" + members[-1]
    return sums.rows()


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
        case "hour":
            return fact.occurred_at[:13]
