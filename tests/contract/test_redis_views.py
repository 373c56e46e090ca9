"""What is special to views in Redis: one watermark moved by compare and set, lost and old views,
several partitions, events that are no longer kept, calls that fail half-way.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.redis_parts import (
    RedisParts,
    accept,
    apply,
    everything,
    flush,
    identity_of,
    judged,
    redis_parts,
    thread_keys,
)
from tests.contract.snapshots_suite import snapshot
from tests.contract.usage_suite import fact, sums
from tests.contract.views_suite import row
from tests.helpers.events import LOCAL, OTHER, message, thread_id
from tests.helpers.logs import DEADLINE_S
from tests.helpers.servers import RedisServer
from threadlog import ids
from threadlog.adapters.redis.connect import Command, RedisClient
from threadlog.adapters.redis.layout import FORMAT, keys_of
from threadlog.errors import (
    CorruptError,
    RefusedError,
    RejectedError,
    ViewsRebuildingError,
)
from threadlog.events.envelope import Event
from threadlog.ids import EventId, Partition, Position, Seq, TenantId, ThreadId
from threadlog.ports.usage import UsageRow
from threadlog.ports.views import (
    DeadLetter,
    ThreadPlace,
    ThreadRow,
    ThreadStatus,
    ViewBatch,
)
from threadlog.runtime.patience import patiently


@pytest.fixture
async def parts(redis_url: str) -> AsyncIterator[RedisParts]:
    async with redis_parts(redis_url) as opened:
        yield opened


class TestCompareAndSet:
    async def test_a_repeat_is_answered_and_changes_nothing(self, parts: RedisParts) -> None:
        thread = thread_id(0)
        found = await judged(parts, [message(f"m{n}", thread) for n in range(5)])
        batch = ViewBatch(
            Position(0),
            Position(5),
            judged=found,
            threads=[row(thread, 5, status="open")],
            snapshots=[snapshot(3)],
            usage=[fact(2)],
            dead_letters=[],
        )
        assert await parts.partition().apply(batch, urgent=True) == 5
        before = await everything(parts)
        assert await parts.partition().apply(batch, urgent=True) == 5
        assert await everything(parts) == before

    async def test_newer_than_stored_is_not_enough(self, parts: RedisParts) -> None:
        await apply(parts, ViewBatch(Position(0), Position(5)))
        gap = ViewBatch(Position(7), Position(9), threads=[row(thread_id(0), 9)])
        before = await everything(parts)
        assert await parts.partition().apply(gap, urgent=True) == 5
        assert await everything(parts) == before

    async def test_of_two_processes_one_moves_it(self, redis_url: str, parts: RedisParts) -> None:
        async with redis_parts(redis_url, parts.identity, has_begun=False) as other:
            for at in range(0, 200, 2):
                answers = await asyncio.gather(
                    *(
                        each.partition().apply(
                            ViewBatch(Position(at), Position(at + 1 + n)), urgent=True
                        )
                        for n, each in enumerate((parts, other))
                    )
                )
                stored = await parts.partition().watermark()
                assert answers == [stored, stored]
                if stored == at + 1:
                    await apply(parts, ViewBatch(Position(0), Position(at + 2)))

    async def test_dead_letters_are_counted_once(self, parts: RedisParts) -> None:
        batch = ViewBatch(
            Position(0), Position(3), dead_letters=[DeadLetter(Position(n), "x") for n in (1, 2)]
        )
        for _ in range(3):
            assert await parts.partition().apply(batch, urgent=True) == 3
        assert await parts.partition().dead_letters() == 2


class TestLostViews:
    async def test_a_flush_is_never_an_empty_thread(self, parts: RedisParts) -> None:
        """E26: readers are refused until what they could read before is there again."""
        thread = thread_id(0)
        found = await accept(parts, [message(f"m{n}", thread) for n in range(6)])
        assert await parts.views.thread(LOCAL, thread) is not None
        await flush(parts)
        await self._refuses(parts, thread)
        # The projection goes on as if nothing had happened, and is sent back.
        on = ViewBatch(Position(6), Position(7), threads=[row(thread, 7)])
        assert await parts.partition().apply(on, urgent=True) == 0
        assert await parts.partition().begin(Position(6)) == 0
        await self._refuses(parts, thread)
        half = ViewBatch(Position(0), Position(3), judged=found[:3], threads=[row(thread, 3)])
        assert await parts.partition().apply(half, urgent=True) == 3
        await self._refuses(parts, thread)
        # Who loads a state may read what is whole again already.
        async with asyncio.timeout(DEADLINE_S):
            records = await parts.views.records(
                LOCAL, thread, after=Position(0), before=Position(4)
            )
        assert [record.position for record in records] == [1, 2, 3]
        assert await parts.partition().row(LOCAL, thread) == row(thread, 3)
        # A projection that starts again meanwhile does not open them.
        assert await parts.partition().begin(Position(6)) == 3
        await self._refuses(parts, thread)
        rest = ViewBatch(Position(3), Position(6), judged=found[3:], threads=[row(thread, 6)])
        assert await parts.partition().apply(rest, urgent=True) == 6
        assert await parts.views.thread(LOCAL, thread) == row(thread, 6)
        events = await parts.views.events(LOCAL, thread, first=Seq(0), last=Seq(99), limit=99)
        assert [stored.event for stored in events] == [each.event for each in found]

    async def _refuses(self, parts: RedisParts, thread: ThreadId) -> None:
        views, event_id = parts.views, message("m0", thread).event_id
        reads = [
            lambda: views.thread(LOCAL, thread),
            lambda: views.threads(LOCAL, limit=9),
            lambda: views.events(LOCAL, thread, first=Seq(0), last=Seq(9), limit=9),
            lambda: views.voids(LOCAL, thread, limit=9),
            lambda: views.find(LOCAL, thread, event_id),
            lambda: views.causes(LOCAL, thread, event_id, "ancestors", limit=9),
            lambda: views.causes(LOCAL, thread, event_id, "descendants", limit=9),
            lambda: views.usage(LOCAL, ()),
            lambda: views.usage(LOCAL, (), thread),
            parts.partition().open_threads,
        ]
        for read in reads:
            with pytest.raises(ViewsRebuildingError, match=parts.identity.topic):
                await read()

    async def test_a_flush_in_the_middle_of_a_read_is_found(
        self, parts: RedisParts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        thread = thread_id(0)
        await accept(parts, [message(f"m{n}", thread) for n in range(6)])
        batch = parts.client.batch

        async def interrupted(_: RedisClient, commands: Sequence[Command]) -> list[Any]:
            """Redis is emptied, and the projection is there, right behind the first command."""
            monkeypatch.undo()
            replies = await batch(commands[:1])
            await flush(parts)
            await parts.partition().begin(Position(6))
            return [*replies, *await batch(commands[1:])]

        for read in (
            lambda: parts.views.thread(LOCAL, thread),
            lambda: parts.views.threads(LOCAL, limit=9),
        ):
            await apply(parts, ViewBatch(Position(0), Position(6), threads=[row(thread, 6)]))
            monkeypatch.setattr(RedisClient, "batch", interrupted)
            with pytest.raises(ViewsRebuildingError):
                await read()

    async def test_open_threads_and_their_watermark_are_of_one_moment(
        self, redis_url: str, parts: RedisParts
    ) -> None:
        """Else a worker would begin behind an input whose thread it does not load."""
        async with redis_parts(redis_url, parts.identity, has_begun=False) as other:

            async def move() -> None:
                for at in range(1, 300):
                    status: ThreadStatus = "open" if at % 2 else "idle"
                    one = row(thread_id(0), at, status=status)
                    await apply(other, ViewBatch(Position(0), Position(at), threads=[one]))
                await flush(other)
                await other.partition().begin(Position(299))

            moving = asyncio.create_task(move())
            looks = set()
            with contextlib.suppress(ViewsRebuildingError):
                while True:
                    found = await parts.partition().open_threads()
                    assert len(found.threads) == found.watermark % 2
                    looks.add(found.watermark)
            await moving
            assert len(looks) > 20

    async def test_views_below_what_was_reached_are_refused_until_it_is_there_again(
        self, parts: RedisParts
    ) -> None:
        """E26: a copy of Redis that is older than what readers have seen is not current."""
        thread, partition = thread_id(0), parts.partition()
        found = await accept(parts, [message(f"m{n}", thread) for n in range(3)])
        # What was reached, and more: nothing has happened.
        assert await partition.begin(Position(9), reached=Position(3)) == 3
        assert await parts.views.thread(LOCAL, thread) == row(thread, 3)
        assert await partition.begin(Position(9), reached=Position(6)) == 3
        await self._refuses(parts, thread)
        # Whoever knows less does not open them; whoever knows more is believed.
        assert await partition.begin(Position(9), reached=Position(4)) == 3
        assert await partition.begin(Position(9)) == 3
        await apply(parts, ViewBatch(Position(0), Position(5), threads=[row(thread, 5)]))
        await self._refuses(parts, thread)
        async with asyncio.timeout(DEADLINE_S):
            records = await parts.views.records(
                LOCAL, thread, after=Position(0), before=Position(4)
            )
        assert len(records) == len(found)
        await apply(parts, ViewBatch(Position(0), Position(6), threads=[row(thread, 6)]))
        assert await parts.views.thread(LOCAL, thread) == row(thread, 6)

    async def test_empty_views_are_refused_until_all_that_is_known_is_there(
        self, parts: RedisParts
    ) -> None:
        thread, partition = thread_id(0), parts.partition()
        for end, reached in ((4, 6), (6, 4)):
            await flush(parts)
            assert await partition.begin(Position(end), reached=Position(reached)) == 0
            await apply(parts, ViewBatch(Position(0), Position(5)))
            await self._refuses(parts, thread)
            await apply(parts, ViewBatch(Position(0), Position(6)))
            assert await parts.views.thread(LOCAL, thread) is None

    async def test_an_empty_log_has_views_at_once(self, parts: RedisParts) -> None:
        assert await parts.views.threads(LOCAL, limit=9) == []
        assert await parts.views.thread(LOCAL, thread_id(0)) is None

    async def test_an_older_dump_answers_where_it_is(self) -> None:
        thread = thread_id(0)
        with RedisServer() as server:
            async with redis_parts(server.url) as parts:
                found = await accept(parts, [message(f"m{n}", thread) for n in range(3)])
                old = await asyncio.to_thread(server.copy_data)
                later = [message(f"n{n}", thread) for n in range(3)]
                found += await accept(parts, later, first=3)
                whole = await everything(parts)
                await asyncio.to_thread(server.start_from, old)
                await patiently(parts.partition().watermark)
                on = ViewBatch(Position(6), Position(7), threads=[row(thread, 7)])
                assert await parts.partition().apply(on, urgent=True) == 3
                assert await parts.partition().watermark() == 3
                again = ViewBatch(
                    Position(3), Position(6), judged=found[3:], threads=[row(thread, 6)]
                )
                assert await parts.partition().apply(again, urgent=True) == 6
                assert _lasting(await everything(parts)) == _lasting(whole)
                assert await parts.views.thread(LOCAL, thread) == row(thread, 6)
                events = await parts.views.events(LOCAL, thread, first=Seq(0), last=Seq(9), limit=9)
                assert [s.event for s in events] == [j.event for j in found]

    async def test_waiting_outlives_a_restart(self) -> None:
        with RedisServer() as server:
            async with redis_parts(server.url) as parts:
                waiting = asyncio.create_task(parts.partition().wait(Position(2)))
                await apply(parts, ViewBatch(Position(0), Position(1)))
                await asyncio.to_thread(server.restart)
                # It answers that it is loading, for a moment.
                await patiently(parts.partition().watermark)
                await apply(parts, ViewBatch(Position(1), Position(2)))
                async with asyncio.timeout(DEADLINE_S):
                    await waiting

    async def test_waiting_ends_without_a_word_of_the_move(self, parts: RedisParts) -> None:
        """A lost message costs a moment: the watermark is read now and then all the same."""
        waiting = asyncio.create_task(parts.partition().wait(Position(2)))
        await asyncio.sleep(0)
        meta = keys_of(parts.identity, Partition(0)).meta
        await parts.client.batch([("HSET", meta, "watermark", 2)])
        async with asyncio.timeout(DEADLINE_S):
            await waiting


def _lasting(keys: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Without rows and recent events, whose layout depends on how they came to be."""
    odd = (b":recent:", b":row:")
    return {name: value for name, value in keys.items() if not any(o in name for o in odd)}


class TestIdentity:
    async def test_views_of_another_log_are_refused(
        self, redis_url: str, parts: RedisParts
    ) -> None:
        """KAFKA.md 10: a topic that was made again has another id."""
        for changed in (
            replace(parts.identity, topic_id="another"),
            replace(parts.identity, cluster_id="another"),
            replace(parts.identity, partitions=2),
        ):
            async with redis_parts(redis_url, changed, has_begun=False) as other:
                with pytest.raises(CorruptError, match="redis-cli --scan"):
                    await other.partition().begin(Position(9))
                with pytest.raises((CorruptError, ViewsRebuildingError)):
                    await other.views.threads(LOCAL, limit=1)

    async def test_a_newer_format_is_refused(self, parts: RedisParts) -> None:
        meta = keys_of(parts.identity, Partition(0)).meta
        await parts.client.batch([("HSET", meta, "format", FORMAT + 1)])
        with pytest.raises(RefusedError, match="newer"):
            await parts.partition().begin(Position(0))
        with pytest.raises(RefusedError):
            await parts.views.thread(LOCAL, thread_id(0))

    async def test_views_of_another_fold_are_refused_by_all(self, parts: RedisParts) -> None:
        """Their numbers are the other fold's: followed on, they would be mixed with this one's."""
        thread = thread_id(0)
        await accept(parts, [message("m0", thread)])
        meta = keys_of(parts.identity, Partition(0)).meta
        for change in (("HSET", meta, "fold", "0+other"), ("HDEL", meta, "fold")):
            await parts.client.batch([change])
            for refused in (
                lambda: parts.partition().begin(Position(1), reached=Position(9)),
                parts.partition().watermark,
                parts.partition().open_threads,
                parts.views.check,
                lambda: parts.views.thread(LOCAL, thread),
                lambda: parts.partition().wait(Position(1)),
            ):
                with pytest.raises(RefusedError, match=r"fold.*redis-cli"):
                    await refused()
            # Nothing of theirs was touched.
            [until] = await parts.client.batch([("HGET", meta, "rebuilding_until")])
            assert until == b"0"

    async def test_a_snapshot_of_views_that_are_gone_or_another_s_is_none(
        self, redis_url: str, parts: RedisParts
    ) -> None:
        await apply(parts, ViewBatch(Position(0), Position(3), snapshots=[snapshot(3)]))
        assert await parts.snapshots.newest(LOCAL, thread_id(0)) == snapshot(3)
        for changed in (
            replace(parts.identity, topic_id="another"),
            replace(parts.identity, cluster_id="another"),
        ):
            async with redis_parts(redis_url, changed, has_begun=False) as other:
                assert await other.snapshots.newest(LOCAL, thread_id(0)) is None
        meta = keys_of(parts.identity, Partition(0)).meta
        for change in (("HSET", meta, "fold", "0+other"), ("UNLINK", meta)):
            await parts.client.batch([change])
            assert await parts.snapshots.newest(LOCAL, thread_id(0)) is None

    async def test_the_advice_removes_meta_first_and_then_all(self, redis_url: str) -> None:
        """Else a worker could find a thread's index gone under a watermark that still stands."""
        async with redis_parts(redis_url, identity_of(12)) as parts:
            await accept(parts, [message("m0", parts.thread_in(n)) for n in range(12)])
            # A tenant that is called like a key.
            odd = replace(row(parts.thread_in(0), 9), tenant_id=TenantId("meta"))
            await apply(parts, ViewBatch(Position(0), Position(9), threads=[odd]))
            metas = {keys_of(parts.identity, Partition(n)).meta for n in range(12)}
            for meta in metas:
                await parts.client.batch([("HSET", meta, "fold", "0+other")])
            with pytest.raises(RefusedError, match="stop all services first") as refused:
                await parts.views.check()
            first, second = re.findall("`redis-cli --scan --pattern '(.+?)'", str(refused.value))
            [found, whole] = await parts.client.batch([("KEYS", first), ("KEYS", second)])
            assert {key.decode() for key in found} == metas
            everywhere = [await everything(parts, n) for n in range(12)]
            assert set(whole) == {key for each in everywhere for key in each}

    async def test_damaged_meta_is_corrupt(self, parts: RedisParts) -> None:
        meta = keys_of(parts.identity, Partition(0)).meta
        await parts.client.batch([("HSET", meta, "watermark", "much")])
        with pytest.raises(CorruptError):
            await parts.partition().watermark()

    async def test_a_fact_or_snapshot_that_is_none_is_corrupt(self, parts: RedisParts) -> None:
        keys = thread_keys(parts, thread_id(0))
        for value in (b"", b"[]", b"{}", b'["a"]', b"[1,2,3,4,5,6,7,8,9,10,11,12,13,14]"):
            await parts.client.batch([("HSET", keys.of_thread("facts"), b"1" * 8, value)])
            with pytest.raises(CorruptError):
                await parts.views.usage(LOCAL, (), thread_id(0))
            await parts.client.batch([("SET", keys.of_thread("snap"), value)])
            with pytest.raises(CorruptError):
                await parts.snapshots.newest(LOCAL, thread_id(0))

    async def test_an_id_that_is_none_names_nothing(self, parts: RedisParts) -> None:
        for name in ("", "x", "g" * 36, ids.draw().upper()):
            assert await parts.views.find(LOCAL, thread_id(0), EventId(name)) is None
            up = parts.views.causes(LOCAL, thread_id(0), EventId(name), "ancestors", limit=9)
            assert await up == []
            assert await parts.views.thread(LOCAL, ThreadId(name)) is None

    async def test_a_row_that_is_no_row_is_corrupt(self, parts: RedisParts) -> None:
        key = thread_keys(parts, thread_id(0)).of_thread("row")
        for value in (b"{}", b"\xff", row(thread_id(1), 1).title.encode()):
            await parts.client.batch([("HSET", key, "row", value, "place", b"x")])
            with pytest.raises(CorruptError):
                await parts.views.thread(LOCAL, thread_id(0))


class TestPartitions:
    @pytest.fixture
    async def three(self, redis_url: str) -> AsyncIterator[RedisParts]:
        async with redis_parts(redis_url, identity_of(3)) as opened:
            yield opened

    async def test_threads_are_paged_across_partitions(self, three: RedisParts) -> None:
        rows: list[ThreadRow] = []
        for n in range(40):
            thread = three.thread_in(n % 3)
            # Some at the same millisecond, some at the same place of different partitions.
            when = f"2026-11-30T18:00:00.{n // 4:03d}Z"
            rows.append(replace(row(thread, n // 3 + 1), updated_at=when))
        for n in range(3):
            await apply(three, ViewBatch(Position(0), Position(99), threads=rows[n::3]), n)
        found: list[ThreadRow] = []
        before: ThreadPlace | None = None
        while page := await three.views.threads(LOCAL, limit=7, before=before):
            found += page
            before = page[-1].place
        wanted = sorted(rows, key=lambda r: (r.updated_at, r.position, r.thread_id), reverse=True)
        assert found == wanted

    async def test_a_foreign_clock_s_text_is_only_old(self, three: RedisParts) -> None:
        thread = three.thread_in(1)
        odd = replace(row(thread, 1), updated_at="yesterday")
        await apply(three, ViewBatch(Position(0), Position(1), threads=[odd]), 1)
        usual = row(three.thread_in(1), 2)
        await apply(three, ViewBatch(Position(0), Position(2), threads=[usual]), 1)
        assert await three.views.threads(LOCAL, limit=9) == [usual, odd]

    async def test_causes_cross_partitions(self, three: RedisParts) -> None:
        one, two = three.thread_in(0), three.thread_in(2)
        root = message("root", one)
        ask = message("ask", one, caused_by=root.event_id)
        told = message("told", two, caused_by=ask.event_id)
        answer = message("answer", two, caused_by=told.event_id)
        back = message("back", one, caused_by=answer.event_id)
        foreign = message("foreign", two, tenant=OTHER, caused_by=ask.event_id)
        assert three.home(two) == 2
        await accept(three, [root, ask, back])
        await accept(three, [told, answer])
        if three.home(two, OTHER) != 2:
            await three.records.logs[three.home(two, OTHER)].append([foreign])

        async def causes(of: Event, **more: int) -> tuple[list[Event], list[Event]]:
            limit = more.get("limit", 99)
            views, thread = three.views, of.thread_id
            up = await views.causes(LOCAL, thread, of.event_id, "ancestors", limit=limit)
            down = await views.causes(LOCAL, thread, of.event_id, "descendants", limit=limit)
            return [s.event for s in up], [s.event for s in down]

        # Those of a thread stand together.
        assert await causes(told) == ([root, ask, told], [told, answer, back])
        up, down = await causes(back)
        assert up == [root, ask, back, told, answer]
        assert down == [back]
        assert (await causes(root))[1] == [root, ask, back, told, answer]
        assert (await causes(answer, limit=2))[0] == [told, answer]

    async def test_usage_is_summed_over_partitions(self, three: RedisParts) -> None:
        facts = [fact(n) for n in range(40)]
        for n in range(3):
            mine = [f for f in facts if three.home(f.thread_id) == n]
            await apply(three, ViewBatch(Position(0), Position(99), usage=mine), n)
        assert await three.views.usage(LOCAL, ()) == [UsageRow((), sums(facts))]

    async def test_usage_by_an_unknown_group_is_rejected(self, three: RedisParts) -> None:
        with pytest.raises(RejectedError, match="week"):
            await three.views.usage(LOCAL, ("week",))  # type: ignore[arg-type]  # from outside

    async def test_a_lost_partition_refuses_lists_and_leaves_the_others(
        self, three: RedisParts
    ) -> None:
        thread = three.thread_in(1)
        await apply(three, ViewBatch(Position(0), Position(1), threads=[row(thread, 1)]), 1)
        await three.client.batch([("UNLINK", keys_of(three.identity, Partition(2)).meta)])
        with pytest.raises(ViewsRebuildingError):
            await three.views.threads(LOCAL, limit=9)
        assert await three.views.thread(LOCAL, thread) == row(thread, 1)

    async def test_each_partition_waits_for_itself(self, three: RedisParts) -> None:
        thread = three.thread_in(2)
        waiting = asyncio.create_task(three.views.reached(LOCAL, thread, Position(5)))
        await apply(three, ViewBatch(Position(0), Position(9)), 0)
        await asyncio.sleep(0)
        assert not waiting.done()
        await apply(three, ViewBatch(Position(0), Position(5)), 2)
        async with asyncio.timeout(DEADLINE_S):
            await waiting
