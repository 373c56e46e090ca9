"""What every log promises. A backend inherits `LogSuite`, opens a log and declares what it can.

The log of a backend may be shared with others and hold records already, so each test works on a
thread of its own and starts behind the end.
"""

import asyncio

import pytest

from tests.helpers.events import created, event_id, make_event, message
from tests.helpers.logs import DEADLINE_S, append_each, collect, events_of
from threadlog import ids
from threadlog.errors import RejectedError
from threadlog.events.envelope import Event, Invalid, Opaque
from threadlog.events.thread import ThreadCreated
from threadlog.ids import NO_POSITION, Position, TenantId, ThreadId
from threadlog.limits import APPEND_EVENTS_MAX, EVENT_BYTES_MAX
from threadlog.ports.log import Log, Record

APPENDERS = 64
EACH = 12


class LogSuite:
    """Inherit, and define the fixture `log`: an open log."""

    starts_empty = False
    """Whether each test has a log of its own."""
    survives_reopening = False
    """Whether `reopened` gives the same log in what stands for another process."""
    knows_openings = False
    """Whether a creation that a living subscriber sees is told to open its stream."""
    takes_rubbish = False
    """Whether `inject` can put a record without a usable envelope into the log."""

    async def reopened(self) -> Log:
        raise NotImplementedError

    async def inject(self, thread: ThreadId) -> Position:
        raise NotImplementedError

    @pytest.fixture
    def thread(self) -> ThreadId:
        return ThreadId(ids.draw())

    # -- append

    async def test_receipts_name_the_events_in_order(self, log: Log, thread: ThreadId) -> None:
        events = [message(f"m{n}", thread) for n in range(20)]
        receipts = await log.append(events)
        assert [receipt.event_id for receipt in receipts] == [event.event_id for event in events]
        positions = [receipt.position for receipt in receipts]
        assert positions == sorted(set(positions))

    async def test_a_record_is_the_event_that_was_appended(
        self, log: Log, thread: ThreadId
    ) -> None:
        start = await log.end()
        event = make_event(
            ThreadCreated(title='quotes " \\ \n tab\t ü \U0001f600 \x00'),
            thread=thread,
            turn_id=ids.turn_id(thread, 1),
            caused_by=event_id("cause"),
            actor="user:é",
            source="gateway",
            worker=ids.WorkerId("w-1"),
            workspace_id=ids.WorkspaceId("ws-1"),
            idempotency_key="key 1 \x00",
        )
        [receipt] = await log.append([event])
        [record] = await collect(log, start, 1, keys={event.key})
        assert (record.position, record.key) == (receipt.position, event.key)
        assert record.event == event
        assert record.problem is None

    async def test_body_bytes_come_back_verbatim(self, log: Log, thread: ThreadId) -> None:
        start = await log.end()
        data = b'{ "title" : "caf\\u00e9", "later_member": [1, 2.50, null] }'
        event = created(thread).model_copy(update={"data": data})
        await log.append([event])
        [read] = events_of(await collect(log, start, 1, keys={event.key}))
        assert read.data == data
        assert read.body == ThreadCreated(title="café")

    async def test_a_repeat_is_appended_again(self, log: Log, thread: ThreadId) -> None:
        start = await log.end()
        event = message("once or twice", thread)
        first, second = await append_each(log, [event, event])
        assert first.event_id == second.event_id
        assert first.position < second.position
        assert events_of(await collect(log, start, 2, keys={event.key})) == [event, event]

    async def test_unknown_types_and_bad_bodies_are_records_like_others(
        self, log: Log, thread: ThreadId
    ) -> None:
        start = await log.end()
        known = created(thread)
        unknown = known.model_copy(update={"type": "thread.sang", "data": b'{"song": 1}'})
        newer = known.model_copy(update={"version": 9})
        unfit = known.model_copy(update={"data": b'{"title": 7}'})
        await log.append([unknown, newer, unfit, known])
        read = events_of(await collect(log, start, 4, keys={known.key}))
        assert [type(event.body) for event in read] == [Opaque, Opaque, Invalid, ThreadCreated]
        assert read[0].data == b'{"song": 1}'

    @pytest.mark.parametrize("case", ["none", "many", "two_threads", "two_tenants", "large"])
    async def test_a_wrong_append_is_rejected_as_a_whole(
        self, log: Log, thread: ThreadId, case: str
    ) -> None:
        start = await log.end()
        good = message("good", thread)
        fat = b'{"base_seq":-1,"delivery":"next_turn","pad":"%s"}' % (b"x" * EVENT_BYTES_MAX)
        events: dict[str, list[Event]] = {
            "none": [],
            "many": [good] * (APPEND_EVENTS_MAX + 1),
            "two_threads": [good, message("other", ThreadId(ids.draw()))],
            "two_tenants": [good, message("other", thread, tenant=TenantId("other"))],
            "large": [good, good.model_copy(update={"data": fat})],
        }
        with pytest.raises(RejectedError):
            await log.append(events[case])
        last = message("last", thread)
        await log.append([last])
        assert events_of(await collect(log, start, 1, keys={good.key})) == [last]

    async def test_the_largest_append_is_taken(self, log: Log, thread: ThreadId) -> None:
        start = await log.end()
        events = [message(f"m{n}", thread) for n in range(APPEND_EVENTS_MAX)]
        await log.append(events)
        assert events_of(await collect(log, start, len(events), keys={events[0].key})) == events

    async def test_end_is_the_last_position(self, log: Log, thread: ThreadId) -> None:
        if self.starts_empty:
            assert await log.end() == NO_POSITION
        *_, last = await log.append([message("a", thread), message("b", thread)])
        assert await log.end() == last.position

    # -- order

    async def test_order_within_a_key_is_append_order(self, log: Log) -> None:
        start = await log.end()
        threads = [ThreadId(ids.draw()) for _ in range(APPENDERS)]
        sent = {t: [message(f"m{n}", t) for n in range(EACH)] for t in threads}
        told = await asyncio.gather(*(append_each(log, events) for events in sent.values()))
        keys = {events[0].key for events in sent.values()}
        records = await collect(log, start, APPENDERS * EACH, keys=keys)
        for thread, events in sent.items():
            mine = [record for record in records if record.key.endswith(thread)]
            assert events_of(mine) == events
            positions = [record.position for record in mine]
            assert positions == sorted(set(positions))
        stored = {(r.position, r.event.event_id) for r in records if r.event is not None}
        assert {(t.position, t.event_id) for receipts in told for t in receipts} == stored

    async def test_an_append_is_not_torn_by_others(self, log: Log, thread: ThreadId) -> None:
        """64 writers of one thread: each one's three events stay next to each other."""
        start = await log.end()
        sent = [[message(f"{w}.{n}", thread) for n in range(3)] for w in range(APPENDERS)]
        await asyncio.gather(*(log.append(events) for events in sent))
        key = sent[0][0].key
        read = events_of(await collect(log, start, APPENDERS * 3, keys={key}))
        groups = [read[at : at + 3] for at in range(0, len(read), 3)]
        assert sorted(groups, key=lambda g: g[0].event_id) == sorted(
            sent, key=lambda g: g[0].event_id
        )

    # -- subscribe

    async def test_a_subscriber_gets_the_old_and_then_the_new(
        self, log: Log, thread: ThreadId
    ) -> None:
        start = await log.end()
        old = [message(f"old {n}", thread) for n in range(700)]
        for at in range(0, len(old), 100):
            await log.append(old[at : at + 100])
        new = [message(f"new {n}", thread) for n in range(50)]
        reading = asyncio.create_task(collect(log, start, 750, keys={old[0].key}))
        await append_each(log, new)
        assert events_of(await reading) == old + new

    async def test_the_seam_has_no_gap_and_no_repeat_under_load(
        self, log: Log, thread: ThreadId
    ) -> None:
        """Subscribers begin while appends go on, at every offset to the live end."""
        start = await log.end()
        events = [message(f"m{n}", thread) for n in range(300)]
        readers: list[asyncio.Task[list[Record]]] = []
        for event in events:
            await log.append([event])
            if len(readers) < APPENDERS:
                readers.append(
                    asyncio.create_task(collect(log, start, len(events), keys={event.key}))
                )
        for reader in readers:
            assert events_of(await reader) == events

    async def test_a_subscriber_starts_behind_the_position_it_names(
        self, log: Log, thread: ThreadId
    ) -> None:
        events = [message(f"m{n}", thread) for n in range(10)]
        receipts = await log.append(events)
        after = receipts[3].position
        assert events_of(await collect(log, after, 6, keys={events[0].key})) == events[4:]

    async def test_a_record_is_seen_only_once_it_is_in_the_log(
        self, log: Log, thread: ThreadId
    ) -> None:
        start = await log.end()
        events = [message(f"m{n}", thread) for n in range(100)]
        appending = asyncio.create_task(append_each(log, events))
        seen = 0
        async with asyncio.timeout(DEADLINE_S):
            async for batch in log.subscribe(start):
                assert batch
                assert await log.end() >= batch[-1].position
                seen += len(batch)
                if seen >= len(events):
                    break
        await appending

    async def test_a_slow_subscriber_holds_nobody_up_and_loses_nothing(
        self, log: Log, thread: ThreadId
    ) -> None:
        start = await log.end()
        slow = log.subscribe(start)
        first = message("first", thread)
        await log.append([first])
        async with asyncio.timeout(DEADLINE_S):
            read = [r for r in await anext(slow) if r.key == first.key]
        events = [message(f"m{n}", thread) for n in range(3_000)]
        for at in range(0, len(events), 100):
            await log.append(events[at : at + 100])
        quick = await collect(log, start, 3_001, keys={first.key})
        assert events_of(quick) == [first, *events]
        async with asyncio.timeout(DEADLINE_S):
            while len(read) < len(quick):
                read += [r for r in await anext(slow) if r.key == first.key]
        assert [r.position for r in read] == [r.position for r in quick]
        assert events_of(read) == events_of(quick)

    # -- what opens a stream

    async def test_only_the_first_record_of_a_key_opens_its_stream(
        self, log: Log, thread: ThreadId
    ) -> None:
        late = ThreadId(ids.draw())
        start = await log.end()
        keys = {created(thread).key, created(late).key}
        reading = asyncio.create_task(collect(log, start, 6, keys=keys))
        await log.append([message("before its creation", late)])
        await log.append([created(thread), message("a", thread), created(thread)])
        await log.append([created(thread)])
        await log.append([created(late)])
        records = await reading
        firsts = {record.key: record.position for record in reversed(records)}
        opening = {record.position for record in records if record.opens_stream}
        # False says "not known", so a log may say it always; True must be right.
        assert opening <= set(firsts.values())

    async def test_a_living_subscriber_is_told_of_new_streams(self, log: Log) -> None:
        if not self.knows_openings:
            pytest.skip("this log never knows")
        told: list[bool] = []
        async with asyncio.timeout(DEADLINE_S):
            following = log.subscribe(await log.end())
            while not any(told):
                # Until it is live it may be served without that knowledge.
                step = asyncio.ensure_future(anext(following))
                await log.append([created(ThreadId(ids.draw()))])
                told += [record.opens_stream for record in await step]

    # -- bad records

    async def test_a_bad_record_is_told_as_such_and_stops_nobody(
        self, log: Log, thread: ThreadId
    ) -> None:
        if not self.takes_rubbish:
            pytest.skip("no way to put rubbish into this log")
        start = await log.end()
        before, after = message("before", thread), message("after", thread)
        reading = asyncio.create_task(collect(log, start, 3))
        await log.append([before])
        position = await self.inject(thread)
        await log.append([after])
        for records in (await reading, await collect(log, start, 3)):
            assert [record.event for record in records] == [before, None, after]
            assert records[1].position == position
            assert records[1].problem
            assert not records[1].opens_stream

    # -- durability

    async def test_an_acknowledged_event_survives(self, log: Log, thread: ThreadId) -> None:
        if not self.survives_reopening:
            pytest.skip("lives in one process")
        start = await log.end()
        events = [created(thread), *(message(f"m{n}", thread) for n in range(40))]
        receipts = await append_each(log, events)
        again = await self.reopened()
        records = await collect(again, start, len(events), keys={events[0].key})
        assert events_of(records) == events
        assert [record.position for record in records] == [r.position for r in receipts]
        [more] = await again.append([message("more", thread)])
        assert more.position > receipts[-1].position
