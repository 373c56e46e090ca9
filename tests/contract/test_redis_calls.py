"""Calls to Redis that bring batches in, and events that it no longer keeps."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.redis_parts import (
    RedisParts,
    accept,
    apply,
    everything,
    judged,
    redis_parts,
    thread_keys,
)
from tests.contract.usage_suite import fact, sums
from tests.contract.views_suite import row
from tests.helpers.events import LOCAL, make_event, message, thread_id
from tests.helpers.servers import RedisServer
from threadlog import limits
from threadlog.adapters.redis import reading
from threadlog.adapters.redis.batches import calls_of
from threadlog.adapters.redis.connect import Command, RedisClient
from threadlog.adapters.redis.layout import ENTRY, keys_of
from threadlog.adapters.redis.scripts import APPLY
from threadlog.errors import CorruptError, TransientError
from threadlog.events.content import TextPart
from threadlog.events.envelope import Event
from threadlog.events.input import MessageReceived
from threadlog.ids import Partition, Position, Seq, ThreadId
from threadlog.ports.usage import UsageRow
from threadlog.ports.views import (
    Direction,
    Judged,
    ViewBatch,
)


@pytest.fixture
async def parts(redis_url: str) -> AsyncIterator[RedisParts]:
    async with redis_parts(redis_url) as opened:
        yield opened


class TestRecents:
    async def test_events_that_are_no_longer_kept_are_read_from_the_log(
        self, parts: RedisParts
    ) -> None:
        thread = thread_id(0)
        events = [message(f"m{n}", thread) for n in range(1_600)]
        for at in range(0, 1_600, 400):
            await accept(parts, events[at : at + 400], first=at)
        stream = thread_keys(parts, thread).of_thread("recent")
        [kept, ttl] = await parts.client.batch([("XLEN", stream), ("PTTL", stream)])
        assert limits.RECENT_EVENTS_MAX <= kept <= limits.RECENT_EVENTS_MAX + 100
        assert 0 < ttl <= limits.RECENT_IDLE_MS
        read = await parts.views.events(LOCAL, thread, first=Seq(1_200), last=Seq(1_900), limit=999)
        assert [stored.event for stored in read] == events[1_200:]
        assert parts.records.read_count == 0
        read = await parts.views.events(LOCAL, thread, first=Seq(0), last=Seq(9_999), limit=9_999)
        assert [stored.event for stored in read] == events
        assert parts.records.read_count == 1_600 - kept

    async def test_what_is_kept_is_not_believed(self, parts: RedisParts) -> None:
        thread = thread_id(0)
        events = [message(f"m{n}", thread) for n in range(4)]
        await accept(parts, events)
        stream = thread_keys(parts, thread).of_thread("recent")
        await parts.client.batch([("DEL", stream)])
        [_, kept] = [message("x", thread), message("m2", thread_id(1))]
        for n, line in enumerate((b"", b"{}", kept.data, b"\xff")):
            await parts.client.batch([("XADD", stream, f"{n}-1", "e", line)])
        read = await parts.views.events(LOCAL, thread, first=Seq(0), last=Seq(9), limit=9)
        assert [stored.event for stored in read] == events

    async def test_a_log_that_holds_another_record_there_is_corrupt(
        self, parts: RedisParts
    ) -> None:
        thread = thread_id(0)
        await accept(parts, [message(f"m{n}", thread) for n in range(4)])
        await parts.client.batch([("DEL", thread_keys(parts, thread).of_thread("recent"))])
        entries = parts.records.logs[0].entries
        entries[0], entries[1] = entries[1], entries[0]
        with pytest.raises(CorruptError):
            await parts.views.events(LOCAL, thread, first=Seq(0), last=Seq(9), limit=9)

    async def test_an_index_with_a_hole_is_corrupt(self, parts: RedisParts) -> None:
        thread = thread_id(0)
        await accept(parts, [message(f"m{n}", thread) for n in range(4)])
        key = thread_keys(parts, thread).of_thread("idx")
        await parts.client.batch([("SETRANGE", key, ENTRY, b"\0" * ENTRY)])
        with pytest.raises(CorruptError):
            await parts.views.events(LOCAL, thread, first=Seq(0), last=Seq(9), limit=9)

    async def test_an_old_event_without_a_place_of_its_own_is_found(
        self, parts: RedisParts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only inputs are in the table of ids; the others are found in the index, in pieces."""
        monkeypatch.setattr(reading, "SCAN_BYTES", 100 * ENTRY)
        thread = thread_id(0)
        events = [message(f"m{n}", thread) for n in range(500)]
        body = MessageReceived(base_seq=-1, delivery="next_turn", content=(TextPart(text="keyed"),))
        keyed = make_event(body, thread=thread, idempotency_key="k")
        await accept(parts, [keyed, *events])
        for seq, event in ((0, keyed), (1, events[0]), (101, events[100]), (500, events[499])):
            found = await parts.views.find(LOCAL, thread, event.event_id)
            assert found is not None
            assert (found.seq, found.event) == (seq, event)
        keys = thread_keys(parts, thread)
        [count] = await parts.client.batch([("HLEN", keys.of_thread("ids"))])
        assert count == 1


class TestUsage:
    async def test_many_facts_are_summed_in_bounded_pages(
        self, parts: RedisParts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also while more come, which are not of the sum yet or of all of it."""
        many, other = thread_id(0), [thread_id(n) for n in range(1, 90)]
        facts = [replace(fact(n), thread_id=many) for n in range(5_000)]
        facts += [replace(fact(5_000 + n), thread_id=one) for n, one in enumerate(other)]
        await apply(parts, ViewBatch(Position(0), Position(6_000), usage=facts))
        batch, sizes = parts.client.batch, []

        async def watched(_: RedisClient, commands: Sequence[Command]) -> list[Any]:
            replies = await batch(commands)
            pages = [r for c, r in zip(commands, replies, strict=True) if c[0] == "HSCAN"]
            assert not [c for c in commands if c[0] in ("HVALS", "HGETALL")]
            sizes.append(sum(len(page) for _, page in pages))
            at = 10_000 + len(sizes)
            later = [replace(fact(at * 50 + n), thread_id=many) for n in range(50)]
            monkeypatch.undo()
            await apply(parts, ViewBatch(Position(0), Position(at * 50 + 50), usage=later))
            monkeypatch.setattr(RedisClient, "batch", watched)
            return replies

        monkeypatch.setattr(RedisClient, "batch", watched)
        found = await parts.views.usage(LOCAL, ("thread",), many)
        monkeypatch.undo()
        assert found == [UsageRow((many,), sums([f for f in facts if f.thread_id == many]))]
        assert len(sizes) > 20
        assert max(sizes) < 500
        # All of them, over all threads.
        count = len(sizes) * 50
        facts += [replace(fact(10_001 * 50 + n), thread_id=many) for n in range(count)]
        assert await parts.views.usage(LOCAL, ()) == [UsageRow((), sums(facts))]


class TestCalls:
    def large(self, thread: ThreadId, n: int) -> Event:
        part = TextPart(text=f"{n}:" + "x" * 300_000)
        return make_event(
            MessageReceived(base_seq=-1, delivery="next_turn", content=(part,)), thread=thread
        )

    async def test_a_large_batch_takes_several_calls(self, parts: RedisParts) -> None:
        found = await judged(parts, [self.large(thread_id(n % 3), n) for n in range(9)])
        rows = [row(thread_id(n), 9) for n in range(3)]
        batch = ViewBatch(Position(0), Position(9), judged=found, threads=rows)
        keys = keys_of(parts.identity, Partition(0))
        calls = calls_of(keys, batch)
        assert len(calls) >= 3
        assert all(call.size_bytes <= limits.VIEW_CALL_BYTES_MAX for call in calls)
        assert await parts.partition().apply(batch, urgent=True) == 9
        for n in range(3):
            read = await parts.views.events(LOCAL, thread_id(n), first=Seq(0), last=Seq(9), limit=9)
            assert [s.event for s in read] == [j.event for j in found[n::3]]

    async def test_many_threads_take_several_calls(self, parts: RedisParts) -> None:
        events = [message(f"m{n}", thread_id(n)) for n in range(350)]
        found = await judged(parts, events)
        rows = [row(thread_id(n), n + 1, status="open") for n in range(350)]
        batch = ViewBatch(Position(0), Position(350), judged=found, threads=rows)
        calls = calls_of(keys_of(parts.identity, Partition(0)), batch)
        assert [len(call.streams) for call in calls] == [100, 100, 100, 50, 350]
        assert await parts.partition().apply(batch, urgent=True) == 350
        assert await parts.views.threads(LOCAL, limit=400) == rows[::-1]
        assert len((await parts.partition().open_threads()).threads) == 350

    async def test_calls_of_a_batch_that_ended_early_show_nothing(self, parts: RedisParts) -> None:
        """Wherever it ends, and whatever batches the same records come in then."""
        thread = thread_id(0)
        await accept(parts, [message("first", thread)])
        found = await judged(parts, [self.large(thread, n) for n in range(9)], first=1)
        found[4] = Judged(found[4].position, found[4].event, None, "stale")
        found[5:] = [replace(j, seq=Seq(j.seq - 1)) for j in found[5:] if j.seq is not None]
        batch = ViewBatch(
            *(Position(1), Position(10), found),
            threads=[row(thread, 10)],
            usage=[replace(fact(1), thread_id=thread, position=Position(3))],
        )
        keys = keys_of(parts.identity, Partition(0))
        calls = calls_of(keys, batch)
        for call in calls[:-1]:
            arguments = call.arguments(batch, keys.moved, is_last=False)
            assert await parts.client.script(APPLY, call.keys, arguments) == b"1"
            await self._shows_the_first_only(parts, thread, found)
        # The projection comes back and takes other batches.
        for at in (3, 4, 7, 9):
            start = await parts.partition().watermark()
            some = [j for j in found if start < j.position <= at + 1]
            await apply(
                parts,
                ViewBatch(
                    start,
                    Position(at + 1),
                    judged=some,
                    threads=[row(thread, at + 1)],
                    usage=batch.usage if at == 3 else (),
                ),
            )
        accepted = await parts.views.events(LOCAL, thread, first=Seq(1), last=Seq(99), limit=99)
        assert [s.event for s in accepted] == [j.event for j in found if j.seq is not None]
        [void] = await parts.views.voids(LOCAL, thread, limit=9)
        assert void.event == found[4].event
        [line] = await parts.views.usage(LOCAL, ())
        assert line.totals.steps == 1

    async def _shows_the_first_only(
        self, parts: RedisParts, thread: ThreadId, later: list[Judged]
    ) -> None:
        views = parts.views
        assert await views.thread(LOCAL, thread) == row(thread, 1)
        [first] = await views.events(LOCAL, thread, first=Seq(0), last=Seq(99), limit=99)
        assert first.position == 1
        assert await views.voids(LOCAL, thread, limit=9) == []
        assert await views.usage(LOCAL, ()) == []
        for each in later:
            assert await views.find(LOCAL, thread, each.event.event_id) is None
        down = await views.causes(LOCAL, thread, first.event.event_id, "descendants", limit=9)
        assert down == [first]

    async def test_a_repeat_that_finds_later_events_writes_the_same(
        self, parts: RedisParts
    ) -> None:
        """An effect of a void copy, whose accepted copy a first try has stored already."""
        thread = thread_id(0)
        cause = message("cause", thread)
        effect = message("effect", thread, caused_by=cause.event_id)
        for event in (cause, effect, cause):
            await parts.append(event)
        found = [
            Judged(Position(1), cause, None, "stale"),
            Judged(Position(2), effect, Seq(0)),
            Judged(Position(3), cause, Seq(1)),
        ]
        batch = ViewBatch(Position(0), Position(3), judged=found)
        keys = keys_of(parts.identity, Partition(0))
        [call] = calls_of(keys, batch)
        arguments = call.arguments(batch, keys.moved, is_last=False)
        await parts.client.script(APPLY, call.keys, arguments)
        before = await everything(parts)
        assert await parts.client.script(APPLY, call.keys, arguments) == b"0"
        assert await everything(parts) == before
        await apply(parts, batch)
        ways: list[tuple[Event, Direction]] = [(effect, "ancestors"), (cause, "descendants")]
        for of, way in ways:
            chain = await parts.views.causes(LOCAL, thread, of.event_id, way, limit=9)
            assert [stored.event for stored in chain] == [effect, cause]

    async def test_a_script_that_fails_half_way_is_repeated_harmlessly(
        self, parts: RedisParts
    ) -> None:
        """The last row meets a key of another kind; once that is gone the same batch goes in."""
        found = await judged(parts, [message(f"m{n}", thread_id(0)) for n in range(3)])
        batch = ViewBatch(
            Position(0), Position(3), judged=found, threads=[row(thread_id(0), 3, status="open")]
        )
        keys = keys_of(parts.identity, Partition(0))
        await parts.client.batch([("SET", keys.open, "x")])
        with pytest.raises(CorruptError):
            await parts.partition().apply(batch, urgent=True)
        assert await parts.partition().watermark() == 0
        assert await parts.views.thread(LOCAL, thread_id(0)) is None
        read = parts.views.events(LOCAL, thread_id(0), first=Seq(0), last=Seq(9), limit=9)
        assert await read == []
        await parts.client.batch([("DEL", keys.open)])
        await apply(parts, batch)
        assert await parts.views.thread(LOCAL, thread_id(0)) == batch.threads[0]
        read = parts.views.events(LOCAL, thread_id(0), first=Seq(0), last=Seq(9), limit=9)
        assert [s.event for s in await read] == [j.event for j in found]

    async def test_malformed_rows_are_found_before_the_first_is_written(
        self, parts: RedisParts
    ) -> None:
        found = await judged(parts, [message("m", thread_id(0))])
        keys = keys_of(parts.identity, Partition(0))
        batch = ViewBatch(Position(0), Position(1), judged=found)
        [call] = calls_of(keys, batch)
        arguments = call.arguments(batch, keys.moved, is_last=True)
        before = await everything(parts)
        for bad in (
            [*arguments, b"J", b""],
            [*arguments, b"X" * 86, b""],
            [*arguments, b"S\0\0\0\x63", b""],
            [*arguments, b"J"],
            [*arguments[:1], "far", *arguments[2:]],
        ):
            with pytest.raises(CorruptError, match="malformed"):
                await parts.client.script(APPLY, call.keys, bad)
        assert await everything(parts) == before

    async def test_without_memory_nothing_moves(self) -> None:
        thread = thread_id(0)
        with RedisServer({"maxmemory": "8mb", "maxmemory-policy": "noeviction"}) as server:
            async with redis_parts(server.url) as parts:
                await accept(parts, [message("first", thread)])
                with contextlib.suppress(TransientError):
                    while True:
                        await parts.client.batch([("RPUSH", "ballast", b"x" * 50_000)])
                before = await everything(parts)
                # Readers are served all the same.
                assert await parts.views.thread(LOCAL, thread) == row(thread, 1)
                [first] = await parts.views.events(
                    LOCAL, thread, first=Seq(0), last=Seq(9), limit=9
                )
                found = await judged(parts, [self.large(thread, 1)], first=1)
                seen = await parts.views.find(LOCAL, thread, first.event.event_id)
                assert seen == first
                for batch in (
                    ViewBatch(Position(1), Position(2), judged=found, threads=[row(thread, 2)]),
                    ViewBatch(Position(1), Position(2), threads=[row(thread, 2)]),
                    ViewBatch(Position(1), Position(2)),
                ):
                    with pytest.raises(TransientError, match="memory"):
                        await parts.partition().apply(batch, urgent=True)
                    assert await everything(parts) == before
                await parts.client.batch([("DEL", "ballast")])
                batch = ViewBatch(Position(1), Position(2), judged=found, threads=[row(thread, 2)])
                assert await parts.partition().apply(batch, urgent=True) == 2

    async def test_a_server_that_forgot_the_scripts_is_told_again(self, parts: RedisParts) -> None:
        await accept(parts, [message("m0", thread_id(0))])
        await parts.client.batch([("SCRIPT", "FLUSH")])
        await accept(parts, [message("m1", thread_id(0))], first=1)
        await parts.client.batch([("SCRIPT", "FLUSH")])
        found = await parts.views.find(LOCAL, thread_id(0), message("m0", thread_id(0)).event_id)
        assert found is not None
