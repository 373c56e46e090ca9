"""Records of strangers among good ones: void for everyone, pointed at, and in nobody's way.

D1, C67, C68: what is none of ours, what claims another tenant or thread, what is of a newer kind.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.helpers.cluster import Cluster, metric
from tests.helpers.cluster_world import World, world
from tests.helpers.events import OTHER, make_event, message, thread_id
from tests.helpers.nursery import Nursery
from threadlog.adapters.kafka.headers import encode
from threadlog.events.catalog import schema_urn
from threadlog.events.envelope import Event
from threadlog.events.thread import ThreadCreated
from threadlog.ids import Partition, Position, ThreadId, partition_of

CANARY = "canary-3f9c"
"""In every bad record, and nowhere where it must not be told."""
ASK_S = 10.0
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as somebody else appends it. `key` None and `value` None are what Kafka has."""

    key: bytes | None
    headers: Headers
    value: bytes | None


def good(event: Event) -> Raw:
    """The record that we would append."""
    done = encode(event)
    return Raw(done.key, [*done.headers], done.value)


def bent(event: Event, change: Callable[[Headers], Headers], value: bytes | None = None) -> Raw:
    """The same with other headers, or another body."""
    raw = good(event)
    return Raw(raw.key, change(raw.headers), raw.value if value is None else value)


def header(name: str, value: str) -> Callable[[Headers], Headers]:
    """This header says something else."""

    def change(headers: Headers) -> Headers:
        return [(n, value.encode() if n == name else v) for n, v in headers]

    return change


def of_nobody(event: Event) -> list[Raw]:
    """Records without a usable envelope, next to `event`'s thread."""
    raw = good(event)
    return [
        Raw(None, [], CANARY.encode()),
        Raw(b"\xff\xfe", [], CANARY.encode()),
        Raw(raw.key, [], CANARY.encode()),
        Raw(raw.key, [("ce_id", b"\xff"), ("x", CANARY.encode())], raw.value),
        Raw(raw.key, [*raw.headers, raw.headers[0]], raw.value),
        Raw(raw.key, [("ce_id", None)], raw.value),
        Raw(raw.key, raw.headers, None),
        # C67: the tenant of a header is not that of the key; the key is another thread's.
        bent(event, header("ce_tenantid", OTHER)),
        bent(event, header("ce_subject", thread_id(77))),
        Raw(f"{event.tenant_id}/{thread_id(78)}".encode(), raw.headers, raw.value),
    ]


def void_for_all(event: Event) -> list[Raw]:
    """Bodies that do not fit: records of the thread that no reader accepts."""
    body = json.dumps({"canary": CANARY}).encode()
    raw = good(event)
    return [
        Raw(raw.key, raw.headers, b""),
        Raw(raw.key, raw.headers, b"{" + CANARY.encode()),
        Raw(raw.key, raw.headers, body),
        Raw(raw.key, raw.headers, b"[" * 100_000),
    ]


def newer(event: Event, *, critical: bool) -> Raw:
    """The event in version 99."""

    def change(headers: Headers) -> Headers:
        changed = header("ce_dataschema", schema_urn(event.type, 99))(headers)
        others = [(n, v) for n, v in changed if n != "ce_critical"]
        return [*others, ("ce_critical", b"true")] if critical else others

    return bent(event, change, json.dumps({"new": CANARY}).encode())


def append(one: Cluster, partition: int, raws: Sequence[Raw]) -> list[tuple[Partition, Position]]:
    """Where the records lie, in this partition."""
    places: list[tuple[Partition, Position]] = []
    producer = Producer({"bootstrap.servers": one.bootstrap, "linger.ms": 0})
    for raw in raws:
        producer.produce(
            one.topic,
            raw.value,
            raw.key,
            partition,
            headers=raw.headers,
            on_delivery=lambda error, found: places.append(
                (Partition(partition), Position((found.offset() or 0) + 1))
            ),
        )
    assert producer.flush(ASK_S) == 0
    return places


def pointers(one: Cluster) -> list[dict[str, object]]:
    """What the topic of dead letters holds."""
    topic = f"{one.prefix}.dead-letters"
    settings = {"bootstrap.servers": one.bootstrap, "group.id": "outsider"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    try:
        place = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=ASK_S)
        consumer.assign([place])
        found: list[dict[str, object]] = []
        while len(found) < end:
            read = consumer.poll(ASK_S)
            assert read is not None
            assert read.error() is None
            found.append(json.loads(read.value() or b""))
        return found
    finally:
        consumer.close()


async def dead_letters_counted(one: World) -> int:
    """In the metrics of all projections."""
    total = 0.0
    for process in one.cluster.living("projection"):
        status, page = await one.cluster.get(process, "/metrics")
        assert status == 200
        total += metric(page, "threadlog_dead_letters_total")
    return int(total)


def check_pointers(found: list[dict[str, object]], places: list[tuple[int, int]]) -> None:
    """Each place once, with a reason and nothing of the content."""
    told = sorted((int(str(p["partition"])), int(str(p["offset"])) + 1) for p in found)
    assert told == sorted(places)
    members = {"topic", "topic_id", "partition", "offset", "reason", "code_version"}
    assert all(set(pointer) == members for pointer in found)
    assert CANARY not in json.dumps(found)


@pytest.mark.timeout(120)
async def test_D1_C67_C68_bad_records_are_pointed_at_and_stop_nobody(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    async with world(children, short_dir, servers) as one:
        cluster, client = one.cluster, one.load.client
        one.load.start(8)
        await one.load.turns(8)
        # Into every partition, and into the threads that talk: each goes on.
        threads = {ThreadId(result.thread_id) for result in client.results}
        places: list[tuple[Partition, Position]] = []
        for number, thread in enumerate(sorted(threads)):
            event = message(f"{CANARY} {number}", thread)
            home = partition_of(event.key, cluster.partitions)
            raws = [*of_nobody(event), *void_for_all(event)]
            places += await asyncio.to_thread(append, cluster, home, raws)
            await asyncio.to_thread(append, cluster, home, [newer(event, critical=False)])
        await one.load.turns(16)
        # A critical one of a newer kind stops its own thread, and that one alone.
        halted, other = thread_id(500), thread_id(501)
        created = [make_event(ThreadCreated(title="t"), thread=t) for t in (halted, other)]
        for event in created:
            home = partition_of(event.key, cluster.partitions)
            await asyncio.to_thread(append, cluster, home, [good(event)])
        stopping = newer(message("later", halted), critical=True)
        home = partition_of(created[0].key, cluster.partitions)
        await asyncio.to_thread(append, cluster, home, [stopping])
        await one.load.turns(8)
        told, log = await one.check(f"{len(places)} bad records")
        assert await dead_letters_counted(one) == len(places)
        check_pointers(await asyncio.to_thread(pointers, cluster), [(p, n) for p, n in places])
        rows = {t: (await client.reader.thread(t)).status for t in (halted, other)}
        assert rows == {halted: "halted", other: "idle"}
        said = "".join(process.child.stderr for process in cluster.processes)
    assert CANARY not in said
    assert set(told.verdicts) == {"completed"}
    assert len(log.bad) == len(threads) * len(of_nobody(message("")))
    opaque = [e for e in log.accepted if e.event.version == 99]
    assert len(opaque) == len(threads), "kept and counted"
    assert all(not entry.event.critical for entry in opaque)


@pytest.mark.timeout(60)
async def test_D1_a_flood_of_bad_records_is_passed_in_time(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """A thousand in a row, in front of a message."""
    async with world(children, short_dir, servers, partitions=1) as one:
        flood = [Raw(None, [], f"{CANARY} {n}".encode()) for n in range(1_000)]
        await asyncio.to_thread(append, one.cluster, 0, flood)
        result = await one.load.client.turn("behind a flood")
        assert result.verdict == "completed"
        _, log = await one.check("a flood of bad records")
        assert len(log.bad) == len(flood)
        assert len(await asyncio.to_thread(pointers, one.cluster)) == len(flood)
