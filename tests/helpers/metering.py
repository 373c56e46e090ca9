"""Usage facts as projections append them, with every repeat that may happen, and their true sums.

The sums come from the facts that were made, by no code that counts.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka.admin import AdminClient

from tests.helpers.events import event_id, thread_id
from threadlog import ids
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.log import KafkaLog
from threadlog.adapters.kafka.metering import MeteringTopics
from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.ids import Partition, Position, TenantId
from threadlog.metering.ledger import Ledger
from threadlog.metering.windows import Slot, Window
from threadlog.ports.usage import UsageFact
from threadlog.ports.usage_log import AMOUNTS, encode_usage

SOURCES = 4
TENANTS = tuple(TenantId(f"tenant-{n}") for n in range(7))
HOUR_MS = 3_600_000
Sums = dict[str, int]


def make_fact(n: int, at_ms: int, rng: random.Random) -> UsageFact:
    """Fact `n`; every fourth is a call's. Its place in the log is `n` too."""
    is_call, thread = n % 4 == 0, thread_id(n % 40)
    some = [0] * 6 if is_call else [rng.randrange(1_000) for _ in range(6)]
    return UsageFact(
        event_id=event_id(n),
        position=Position(3 * n + 1),
        tenant_id=rng.choice(TENANTS),
        thread_id=thread,
        turn_id=ids.turn_id(thread, n // 100),
        step=n,
        attempt=1,
        provider="openai",
        model="gpt",
        input=some[0],
        output=some[1],
        cache_read=some[2],
        cache_write=some[3],
        reasoning=some[4],
        cost_micros=None if is_call else some[5],
        occurred_at="2026-11-30T18:00:00.000Z",
        tool_ms=rng.randrange(1, 5_000) if is_call else None,
        begins_step=not is_call and n % 3 > 0,
        appended_ms=at_ms,
    )


def amounts(fact: UsageFact) -> Sums:
    """What it adds."""
    more = {"steps": int(fact.begins_step), "tool_ms": fact.tool_ms or 0}
    return {name: more.get(name) or getattr(fact, name, 0) or 0 for name in AMOUNTS}


@dataclass(slots=True)
class Source:
    """One partition of the log with its facts. `done`: how many the views have."""

    partition: Partition
    facts: list[UsageFact] = field(default_factory=list)
    done: int = 0


class Projections:
    """Appends the facts of all sources as projections would that crash and are rebuilt."""

    def __init__(self, log: KafkaLog, topic_id: str, seed: int) -> None:
        self._log = log
        self._topic_id = topic_id
        self._rng = random.Random(seed)
        self.sources = [Source(Partition(n)) for n in range(SOURCES)]
        self.told = 0

    def make(self, count: int, now_ms: int) -> None:
        """So many more facts lie in the log, of the last 60 hours and in their order."""
        known = sum(len(source.facts) for source in self.sources)
        for n in range(known, known + count):
            at_ms = now_ms - 60 * HOUR_MS + 60 * HOUR_MS * (n - known) // count
            source = self._rng.choice(self.sources)
            source.facts.append(make_fact(n, at_ms, self._rng))

    async def go(self, repeats: float) -> None:
        """All facts are told, about `repeats` of the batches more than once."""
        await asyncio.gather(*(self._source(source, repeats) for source in self.sources))

    async def rebuild(self) -> None:
        """Every fact is told once more, from the first."""
        for source in self.sources:
            source.done = 0
        await self.go(0)

    async def _source(self, source: Source, repeats: float) -> None:
        while source.done < len(source.facts):
            first, more = source.done, self._rng.randrange(1, 40)
            batch = source.facts[first : first + more]
            await self._tell(source, batch)
            if self._rng.random() < repeats:
                # Killed before its views moved, taken for dead and not, or its views went back.
                back = max(0, first - self._rng.randrange(60))
                await self._tell(source, source.facts[back : first + self._rng.randrange(1, 60)])
                continue
            source.done = first + len(batch)

    async def _tell(self, source: Source, facts: Sequence[UsageFact]) -> None:
        self.told += len(facts)
        for records in encode_usage(facts, self._topic_id, source.partition):
            await self._log.append_usage(records)

    def sums(self) -> dict[Slot, Sums]:
        """The true sums of all days and of all time."""
        found: dict[Slot, Sums] = defaultdict(lambda: dict.fromkeys(AMOUNTS, 0))
        for fact in (fact for source in self.sources for fact in source.facts):
            for slot in _slots(fact):
                for name, amount in amounts(fact).items():
                    found[slot][name] += amount
        return dict(found)


def _slots(fact: UsageFact) -> Iterator[Slot]:
    yield Slot("hour", fact.appended_ms // HOUR_MS, fact.tenant_id)
    yield Slot("day", fact.appended_ms // (24 * HOUR_MS), fact.tenant_id)
    yield Slot("total", 0, fact.tenant_id)


async def kept(config: KafkaConfig, topic_id: str) -> Mapping[Slot, Window]:
    """The windows as the broker keeps them, once every usage record is counted; else none."""
    usage_id = await KafkaTopics(config).check_metering()
    topics, ledger = MeteringTopics(config), Ledger(topic_id, usage_id, "test")
    try:
        ends = await topics.ends()
        ledger.recover(await topics.table())
    finally:
        await topics.close()
    return ledger.windows if all(ledger.next_of(p) >= at for p, at in ends.items()) else {}


async def without(config: KafkaConfig, topic: str) -> None:
    """The topic is gone."""
    admin = AdminClient({"bootstrap.servers": config.bootstrap})
    [gone] = admin.delete_topics([topic]).values()
    await asyncio.wrap_future(gone)
    while topic in (await asyncio.to_thread(admin.list_topics, timeout=10)).topics:
        await asyncio.sleep(0.05)
