"""Views in Redis say what views in memory say, of random logs that arrive in random batches.

Some batches end early and come again otherwise cut. Causes lie in the same thread, in another, in
the future or nowhere; ids are repeated, void before they are accepted or behind it.
"""

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.contract.redis_parts import RedisParts, redis_parts
from tests.contract.usage_suite import fact
from tests.helpers.events import LOCAL, OTHER, event_id, make_event, thread_id
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.adapters.redis import batches, causes, layout, reading
from threadlog.adapters.redis.batches import calls_of
from threadlog.adapters.redis.scripts import APPLY
from threadlog.events.content import TextPart
from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.ids import EventId, Partition, Position, Seq, TenantId, ThreadId
from threadlog.ports.usage import UsageFact
from threadlog.ports.views import (
    Direction,
    Judged,
    ViewBatch,
    Views,
)

STREAMS = [(LOCAL, thread_id(n)) for n in range(3)] + [(OTHER, thread_id(n)) for n in (0, 5)]
EVENTS = 120


class World:
    """A random log of several streams, and its judgement."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ids = {stream: self._ids(n) for n, stream in enumerate(STREAMS)}
        self.judged: list[Judged] = []
        self.facts: list[UsageFact] = []

    def _ids(self, stream: int) -> list[EventId]:
        return [event_id(f"{stream}.{n}") for n in range(40)]

    def _event(self) -> Event:
        tenant, thread = stream = self.chance.choice(STREAMS)
        mine = [s for s in STREAMS if s[0] == tenant]
        where = stream if self.chance.random() < 0.7 else self.chance.choice(mine)
        named = self.chance.choice(self.ids[stream])
        cause = self.chance.choice(self.ids[where]) if self.chance.random() < 0.8 else None
        text = TextPart(text="x" * self.chance.choice((1, 10, 1_000)))
        return make_event(
            MessageReceived(base_seq=-1, delivery="next_turn", content=(text,)),
            event_id=named,
            tenant=tenant,
            thread=thread,
            caused_by=None if cause == named else cause,
            # An id is an input's always or never.
            idempotency_key="key" if int(named[0], 16) % 2 else None,
        )

    async def fill(self, parts: RedisParts) -> None:
        heads: Counter[tuple[TenantId, ThreadId]] = Counter()
        accepted: set[EventId] = set()
        for _ in range(EVENTS):
            event = self._event()
            [receipt] = await parts.records.logs[0].append([event])
            stream = (event.tenant_id, event.thread_id)
            is_void = event.event_id in accepted or self.chance.random() < 0.3
            seq = None if is_void else Seq(heads[stream])
            if not is_void:
                accepted.add(event.event_id)
                heads[stream] += 1
            reason = "stale" if is_void else None
            self.judged.append(Judged(receipt.position, event, seq, reason))
            if self.chance.random() < 0.2:
                told = fact(receipt.position, tenant=event.tenant_id)
                told = replace(told, position=receipt.position, thread_id=event.thread_id)
                self.facts.append(told)

    def batch(self, first: int, last: int) -> ViewBatch:
        """The rows of the records behind `first` up to `last`."""
        return ViewBatch(
            Position(first),
            Position(last),
            judged=[j for j in self.judged if first < j.position <= last],
            usage=[f for f in self.facts if first < f.position <= last],
        )


async def bring_in(world: World, parts: RedisParts, memory: MemoryViews) -> None:
    """Everything is in both views; some batches were begun and not finished."""
    at = 0
    keys = layout.keys_of(parts.identity, Partition(0))
    while at < EVENTS:
        last = min(at + world.chance.randrange(1, 30), EVENTS)
        batch = world.batch(at, last)
        calls = calls_of(keys, batch)
        if world.chance.random() < 0.4:
            for call in calls[: world.chance.randrange(len(calls) + 1)]:
                arguments = call.arguments(batch, keys.moved, is_last=False)
                await parts.client.script(APPLY, call.keys, arguments)
            if world.chance.random() < 0.5:
                await compare(world, parts, memory)
            continue
        assert await memory.apply(batch, urgent=True) == last
        assert await parts.partition().apply(batch, urgent=True) == last
        at = last


async def compare(world: World, parts: RedisParts, memory: MemoryViews) -> None:
    """Random questions have the same answers."""
    chance = world.chance
    for _ in range(15):
        tenant, thread = stream = chance.choice(STREAMS)
        named = chance.choice(world.ids[stream])
        first, last, limit = chance.randrange(20), chance.randrange(40), chance.randrange(1, 40)
        direction: Direction = chance.choice(("ancestors", "descendants"))
        deep = chance.choice((1, 3, 1_000))

        async def ask(
            views: Views,
            tenant: TenantId = tenant,
            thread: ThreadId = thread,
            named: EventId = named,
            span: tuple[int, int, int] = (first, last, limit),
            way: tuple[Direction, int] = (direction, deep),
        ) -> list[object]:
            return [
                await views.events(
                    tenant, thread, first=Seq(span[0]), last=Seq(span[1]), limit=span[2]
                ),
                await views.voids(tenant, thread, limit=span[2]),
                await views.find(tenant, thread, named),
                await views.usage(tenant, ("thread", "turn"), thread),
                await views.usage(tenant, ("model",)),
                await views.causes(tenant, thread, named, way[0], limit=way[1]),
            ]

        assert await ask(parts.views) == await ask(memory)
        before = Position(chance.randrange(1, await memory.watermark() + 2))
        after = Position(chance.randrange(before))
        found = [
            [
                (r.position, r.key, r.event)
                for r in await views.records(tenant, thread, after=after, before=before)
            ]
            for views in (parts.views, memory)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(12))
async def test_redis_says_what_memory_says(
    seed: int, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small enough that batches take several calls, pages several reads, recent events the log.
    monkeypatch.setattr(batches, "VIEW_CALL_BYTES_MAX", 3_000)
    monkeypatch.setattr(batches, "RECENT_EVENTS_MAX", 5)
    monkeypatch.setattr(reading, "READ_EVENTS_MAX", 4)
    monkeypatch.setattr(reading, "SCAN_BYTES", 3 * layout.ENTRY)
    monkeypatch.setattr(causes, "_PIECE", 3)
    monkeypatch.setattr(causes, "_SCAN", 5)
    monkeypatch.setattr(causes, "_THREADS", 2)
    world = World(seed)
    async with redis_parts(redis_url) as parts, asyncio.timeout(25):
        await world.fill(parts)
        memory = MemoryViews(parts.records.logs[0], MemorySnapshots())
        await bring_in(world, parts, memory)
        for _ in range(4):
            await compare(world, parts, memory)
