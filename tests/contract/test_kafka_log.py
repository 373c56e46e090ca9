"""What the log on Kafka promises beyond the suite: partitions, gaps, lost heads, doubt."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.events import created, message
from tests.helpers.kafka import (
    append_raw,
    append_transaction,
    make_config,
    make_topics,
    running_log,
    until,
)
from tests.helpers.logs import DEADLINE_S, append_each, collect, events_of
from tests.helpers.relay import Relay, advertised_at
from tests.helpers.servers import Broker, reserved_port
from threadlog import ids
from threadlog.adapters.kafka import failures, feeds
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.log import KafkaLog
from threadlog.errors import (
    CorruptError,
    HistoryTruncatedError,
    LogUnavailableError,
    RejectedError,
    ThreadlogError,
    TransientError,
)
from threadlog.ids import NO_POSITION, Partition, Position, ThreadId, partition_of
from threadlog.ports.log import Record
from threadlog.runtime.patience import patiently

ZERO = Partition(0)
# From the tests of Kafka's own Java client: key and murmur2 as a signed number.
PUBLISHED = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.fixture
async def config(kafka_bootstrap: str) -> KafkaConfig:
    config = make_config(kafka_bootstrap)
    await make_topics(config)
    return config


@pytest.fixture
async def log(config: KafkaConfig) -> AsyncIterator[KafkaLog]:
    async with running_log(config) as log:
        yield log


def new_thread() -> ThreadId:
    return ThreadId(ids.draw())


async def reached(log: KafkaLog, after: Position, end: Position) -> list[Record]:
    """Everything behind `after`, until a record tells that the end was reached."""
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE_S):
        async for batch in log.partition(ZERO).subscribe(after):
            records += batch
            if records[-1].position >= end:
                break
    return records


async def take(following: AsyncIterator[Sequence[Record]], count: int) -> list[Record]:
    """The first `count` records, however long they take: the test has a limit of its own."""
    records: list[Record] = []
    while len(records) < count:
        records += await anext(following)
    return records


# -- which partition


@pytest.mark.parametrize(("key", "signed"), PUBLISHED)
def test_a_key_lies_where_java_clients_put_it(key: bytes, signed: int) -> None:
    for partitions in (1, 16, 1_000, 2**31):
        assert partition_of(key.decode(), partitions) == (signed & 0x7FFFFFFF) % partitions


@given(st.text(max_size=100), st.integers(1, 1_000))
def test_a_key_lies_where_this_client_puts_it(key: str, partitions: int) -> None:
    expected = confluent_kafka.murmur2(key.encode(), partitions)
    assert partition_of(key, partitions) == expected


async def test_threads_spread_over_partitions_and_keep_their_order(kafka_bootstrap: str) -> None:
    config = make_config(kafka_bootstrap, partitions=4)
    await make_topics(config)
    threads = [new_thread() for _ in range(40)]
    sent = {thread: [message(f"m{n}", thread) for n in range(5)] for thread in threads}
    async with running_log(config) as log:
        await asyncio.gather(*(append_each(log.partition(ZERO), e) for e in sent.values()))
        for partition in map(Partition, range(4)):
            keys = {e[0].key for e in sent.values() if partition_of(e[0].key, 4) == partition}
            assert keys
            records = await collect(log.partition(partition), NO_POSITION, 5 * len(keys))
            assert {record.key for record in records} == keys
            for thread, events in sent.items():
                if events[0].key in keys:
                    mine = [r for r in records if r.key.endswith(thread)]
                    assert events_of(mine) == events


# -- appends


async def test_a_cancelled_append_harms_nobody(log: KafkaLog) -> None:
    first, second = message("first", new_thread()), message("second", new_thread())
    waiting = asyncio.create_task(log.append([first]))
    await asyncio.sleep(0)
    waiting.cancel()
    await log.append([second])
    assert events_of(await collect(log.partition(ZERO), NO_POSITION, 2)) == [first, second]


async def test_a_full_queue_is_transient(config: KafkaConfig) -> None:
    """ag2ai/faststream#2836: nobody may take it for an append that worked."""

    class Narrow(KafkaConfig):
        def producer(self) -> dict[str, str | int | float | bool]:
            return {**super().producer(), "queue.buffering.max.messages": 10}

    narrow = Narrow(config.bootstrap, "planner", "narrow", prefix=config.prefix, partitions=1)
    thread = new_thread()
    events = [message(f"m{n}", thread) for n in range(100)]
    async with running_log(narrow) as log:
        with pytest.raises(TransientError):
            await log.append(events)
        for event in events:
            await patiently(functools.partial(log.append, [event]))
        [*_, last] = await reached(log, NO_POSITION, await log.end_of(ZERO))
        assert last.event == events[-1]


async def test_text_that_is_no_unicode_is_rejected(log: KafkaLog) -> None:
    event = message("a", new_thread()).model_copy(update={"idempotency_key": "\ud800"})
    with pytest.raises(RejectedError):
        await log.append([event])
    assert await log.end_of(ZERO) == NO_POSITION


async def test_a_closed_log_says_so(config: KafkaConfig) -> None:
    async with running_log(config) as log:
        following = log.partition(ZERO).subscribe(NO_POSITION)
        waiting = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
    with pytest.raises(LogUnavailableError):
        await waiting
    with pytest.raises(LogUnavailableError):
        await log.append([message("a")])
    with pytest.raises(LogUnavailableError):
        await anext(log.partition(ZERO).subscribe(NO_POSITION))
    with pytest.raises(LogUnavailableError):
        await log.read(ZERO, [Position(1)])
    with pytest.raises(LogUnavailableError):
        await log.end_of(ZERO)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("kafka_bootstrap")
async def test_a_failed_append_may_be_in_the_log() -> None:
    """KAFKA: unknown, not absent. Appended again with the same id, the fold voids one of them."""
    thread = new_thread()
    event, later = message("unknown", thread), message("later", thread)
    with reserved_port() as port, Broker(advertised_at(port)) as broker:
        async with Relay(port, broker.bootstrap) as relay:
            config = make_config(broker.bootstrap, delivery_timeout_ms=2_000)
            await make_topics(config)
            async with running_log(config) as log:
                # The first may meet a broker that is still starting, and stand there twice.
                await patiently(functools.partial(log.append, [created(thread)]))
                relay.answers.clear()
                with pytest.raises(LogUnavailableError):
                    await log.append([event])
                relay.answers.set()
                await patiently(functools.partial(log.append, [later]))
                read = events_of(await reached(log, NO_POSITION, await log.end_of(ZERO)))
    assert read.count(event) == 1
    assert read.index(event) < read.index(later)


@pytest.mark.timeout(120)
async def test_appends_and_followers_outlive_the_broker(own_broker: Broker) -> None:
    """The broker stops dead under both: nothing acknowledged is missing, nothing is doubled."""
    config = make_config(own_broker.bootstrap, delivery_timeout_ms=60_000)
    await make_topics(config)
    thread = new_thread()
    events = [message(f"m{n}", thread) for n in range(60)]
    async with running_log(config) as log:
        following = asyncio.create_task(take(log.partition(ZERO).subscribe(NO_POSITION), 60))
        for n, event in enumerate(events):
            appending = asyncio.create_task(log.append([event]))
            if n == 30:
                own_broker.kill()
                await asyncio.to_thread(own_broker.start)
            await appending
        assert events_of(await following) == events
        assert await log.end_of(ZERO) == len(events)


# -- places without a record


async def test_the_end_is_reached_over_a_strangers_transaction(
    config: KafkaConfig, log: KafkaLog
) -> None:
    append_transaction(config, b"stranger")
    end = await log.end_of(ZERO)
    assert end == 2
    stranger, gap = await reached(log, NO_POSITION, end)
    assert stranger.problem is not None
    assert gap.is_gap
    assert (gap.position, gap.key) == (end, "")
    # Also for one who starts between the two, and for one who is there already.
    assert await reached(log, Position(1), end) == [gap]
    following = log.partition(ZERO).subscribe(end)
    waiting = asyncio.ensure_future(anext(following))
    append_transaction(config, b"stranger")
    event = message("after", new_thread())
    seen = list(await asyncio.wait_for(waiting, DEADLINE_S))
    while not seen[-1].is_gap:
        seen += await asyncio.wait_for(anext(following), DEADLINE_S)
    [receipt] = await log.append([event])
    [record] = await asyncio.wait_for(anext(following), DEADLINE_S)
    assert (record.event, record.position) == (event, receipt.position)
    assert [r.position for r in seen] == [3, 4]


async def test_F79_a_lost_beginning_is_told(config: KafkaConfig, log: KafkaLog) -> None:
    thread = new_thread()
    events = [message(f"m{n}", thread) for n in range(10)]
    await log.append(events)
    admin = AdminClient({"bootstrap.servers": config.bootstrap})
    cut = TopicPartition(config.events_topic, 0, 4)
    admin.delete_records([cut])[cut].result(DEADLINE_S)
    for after in (NO_POSITION, Position(3)):
        with pytest.raises(HistoryTruncatedError):
            await collect(log.partition(ZERO), after, 1)
    assert events_of(await collect(log.partition(ZERO), Position(4), 6)) == events[4:]
    with pytest.raises(CorruptError):
        await log.read(ZERO, [Position(3)])


async def test_a_position_behind_the_end_is_of_another_log(log: KafkaLog) -> None:
    await log.append([message("a", new_thread())])
    with pytest.raises(HistoryTruncatedError):
        await collect(log.partition(ZERO), Position(50), 1)


# -- slow subscribers


async def test_a_full_subscriber_rests_and_its_neighbour_goes_on(
    kafka_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_QUEUE_RECORDS_MAX", 40)
    config = make_config(kafka_bootstrap, partitions=2)
    await make_topics(config)
    sent = {}
    for partition in (0, 1):
        key = next(t for t in iter(new_thread, "") if partition_of(f"local/{t}", 2) == partition)
        sent[partition] = [message(f"m{n}", key) for n in range(300)]
    async with running_log(config) as log:
        slow = log.partition(ZERO).subscribe(NO_POSITION)
        read: list[Record] = []
        for at in range(0, 300, 10):
            for events in sent.values():
                await log.append(events[at : at + 10])
            if not at:
                read += await asyncio.wait_for(anext(slow), DEADLINE_S)
        quick = await collect(log.partition(Partition(1)), NO_POSITION, 300)
        assert events_of(quick) == sent[1]
        async with asyncio.timeout(DEADLINE_S):
            while len(read) < 300:
                read += await anext(slow)
        assert events_of(read) == sent[0]


async def test_a_subscriber_alone_is_bounded_too(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_QUEUE_RECORDS_MAX", 40)
    thread = new_thread()
    events = [message(f"m{n}", thread) for n in range(2_000)]
    for at in range(0, 2_000, 500):
        await log.append(events[at : at + 500])
    slow = log.partition(ZERO).subscribe(NO_POSITION)
    read = list(await anext(slow))
    [reader] = log._followers._readers
    [subscriber] = reader._joined.values()
    await until(lambda: subscriber.is_full)
    given = subscriber._given_records
    assert given <= 1_000
    async with asyncio.timeout(DEADLINE_S):
        while len(read) < 2_000:
            read += await anext(slow)
    assert events_of(read) == events


# -- single records


async def test_records_are_found_by_their_positions(log: KafkaLog) -> None:
    thread = new_thread()
    events = [message(f"m{n}" + "x" * 2_000, thread) for n in range(400)]
    await log.append(events)
    for places in ([1], [400], [1, 2, 3], [5, 90, 91, 399], list(range(1, 401))):
        records = await log.read(ZERO, [Position(place) for place in places])
        assert [record.position for record in records] == places
        assert events_of(records) == [events[place - 1] for place in places]
    assert await log.read(ZERO, []) == []
    many = await asyncio.gather(*(log.read(ZERO, [Position(n)]) for n in range(1, 41)))
    assert [events_of(found) for found in many] == [[event] for event in events[:40]]


async def test_a_record_that_is_not_there_is_corrupt(config: KafkaConfig, log: KafkaLog) -> None:
    await log.append([message("a", new_thread())])
    append_transaction(config, b"stranger")
    [rubbish] = append_raw(config, [(None, [], None)])
    append_transaction(config, b"stranger")
    [found] = await log.read(ZERO, [rubbish])
    assert (found.problem, found.key) == ("no key", "")
    # A marker in the middle and at the end, the end itself, behind it, before the first.
    for place in (3, 6, 7, 90, 0):
        with pytest.raises(CorruptError):
            await log.read(ZERO, [Position(place)])
    with pytest.raises(CorruptError):
        await log.read(ZERO, [Position(2), Position(1)])
    assert len(await log.read(ZERO, [Position(1), rubbish])) == 2


# -- errors


def every_code() -> dict[str, int]:
    return {
        name: value
        for name in dir(KafkaError)
        if name.isupper() and isinstance(value := getattr(KafkaError, name), int)
    }


def test_every_error_of_the_client_lands_in_a_family() -> None:
    codes = every_code()
    assert len(codes) > 150
    families = (RejectedError, TransientError, CorruptError)
    for name, code in codes.items():
        error = failures.mapped(KafkaError(code), "test")
        assert isinstance(error, families), name
        assert str(error).startswith("test") or isinstance(error, HistoryTruncatedError), name


@pytest.mark.parametrize(
    ("code", "family"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, RejectedError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RejectedError),
        (KafkaError._MSG_TIMED_OUT, LogUnavailableError),
        (KafkaError._ALL_BROKERS_DOWN, LogUnavailableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, LogUnavailableError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, LogUnavailableError),
        (KafkaError._QUEUE_FULL, TransientError),
        (KafkaError.OFFSET_OUT_OF_RANGE, HistoryTruncatedError),
        (KafkaError._AUTO_OFFSET_RESET, HistoryTruncatedError),
        (KafkaError.INCONSISTENT_TOPIC_ID, CorruptError),
    ],
)
def test_the_errors_that_matter_say_what_to_do(code: int, family: type[ThreadlogError]) -> None:
    assert isinstance(failures.mapped(KafkaError(code), "test"), family)


def test_what_the_client_raises_is_mapped_too() -> None:
    wrapped = confluent_kafka.KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    assert isinstance(failures.of_exception(wrapped, "test"), RejectedError)
    assert isinstance(failures.of_exception(BufferError("full"), "test"), TransientError)
    assert isinstance(failures.of_exception(RuntimeError("closed"), "test"), LogUnavailableError)
    ours = CorruptError("ours")
    assert failures.of_exception(ours, "test") is ours


async def test_a_fatal_client_is_told_once(config: KafkaConfig) -> None:
    told: list[ThreadlogError] = []
    log = KafkaLog(config, on_fatal=told.append)
    await log.start()
    fatal = KafkaError(KafkaError._FATAL, "out of order", True)
    log._producer._on_error(KafkaError(KafkaError._TRANSPORT, "only away"))
    log._producer._on_error(fatal)
    log._producer._on_error(fatal)
    await until(lambda: bool(told))
    await log.close()
    assert [type(error) for error in told] == [LogUnavailableError]
