"""A turn through services that are processes of their own, as a person and an outsider see it."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Consumer, TopicPartition

from tests.helpers.cluster import NAMES, Cluster, Process, cluster, until_true
from tests.helpers.nursery import Nursery, nursery

SCRIPT = [
    {"text": "I look.", "calls": ["echo one > a.txt && cat a.txt"]},
    {"text": "I write.", "calls": ["write b.txt two"]},
    {"text": "Done.", "usage": {"input": 10, "output": 2}},
]
DEADLINE_S = 20.0
MODEL = "scripted/script"


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as started:
        yield started


def read_as_an_outsider(one: Cluster) -> list[BaseCloudEvent]:
    """Every record of the topic, by a plain consumer and the CloudEvents package alone."""
    consumer = Consumer(
        {"bootstrap.servers": one.bootstrap, "group.id": "outsider", "enable.auto.commit": False}
    )
    try:
        places = [TopicPartition(one.topic, p, 0) for p in range(one.partitions)]
        total = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
        consumer.assign(places)
        found: list[BaseCloudEvent] = []
        while len(found) < total:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "the topic ends early"
            assert message.error() is None
            headers = {name: bytes(value) for name, value in message.headers() or []}  # type: ignore[arg-type,str-unpack]  # a list of pairs
            record = KafkaMessage(headers, message.key(), message.value() or b"")
            found.append(from_binary(record, JSONFormat(), CloudEvent))
        return found
    finally:
        consumer.close()


def shape(events: list[tuple[str, str, str | None]]) -> list[tuple[str, str | None]]:
    """(id, type, cause) of a thread's events as (type, type of the cause)."""
    types = {event_id: kind for event_id, kind, _ in events}
    return [(kind, None if cause is None else types[cause]) for _, kind, cause in events]


async def embedded_shape(one: Cluster, script: Path) -> list[tuple[str, str | None]]:
    """The same turn on one file in one process."""
    bare = {name: None for name in one.environment() if "KAFKA" in name or "REDIS" in name}
    folder = one.home / "apart"
    folder.mkdir()
    argv = ("run", "go", "--script", str(script), "--model", MODEL, "--workspace", str(folder))
    child = await one.run(*argv, **bare, THREADLOG_BLOBS__URL=None, OPENAI_BASE_URL=None)
    assert child.status == 0, child.stderr
    with sqlite3.connect(one.home / "data" / "threadlog.db") as connection:
        query = "SELECT event_id, type, caused_by FROM accepted ORDER BY seq"
        return shape(list(connection.execute(query)))


async def check_none_looks_stuck(one: Cluster, process: Process) -> None:
    """Nothing is left to do, and the times of all partitions go on: an alert reads them."""

    async def moved_at() -> list[float]:
        _, page = await one.get(process, "/metrics")
        name = "threadlog_consumer_last_progress_timestamp_seconds{"
        return [float(x.rpartition(" ")[2]) for x in page.splitlines() if x.startswith(name)]

    before = await moved_at()
    assert before

    async def all_moved() -> bool:
        return min(await moved_at()) > max(before)

    await until_true(all_moved, "idle partitions move", [process], DEADLINE_S)


@pytest.mark.timeout(120)
async def test_F11_one_turn_through_one_process_a_service_with_the_events_of_one_file(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    script = short_dir / "script.json"
    script.write_text(json.dumps(SCRIPT))
    async with cluster(children, short_dir, (kafka_bootstrap, redis_url)) as one:
        begun = await one.start(*NAMES, THREADLOG_SCRIPTED__SCRIPT=str(script))
        ran = await one.run("run", "go", "--model", MODEL, "--json")
        assert ran.status == 0, ran.stderr
        document = json.loads(ran.stdout)
        assert (document["verdict"], document["answer"]) == ("completed", "Done.")
        assert document["usage"]["output"] == 2

        # What it shows is what is in the topic, for any reader of CloudEvents.
        shown = await one.run("thread", "show", "last", "--json")
        events = json.loads(shown.stdout)["events"]
        threads = defaultdict(list)
        for event in read_as_an_outsider(one):
            threads[event.get_subject()].append(event)
        told = threads[document["thread_id"]]
        assert [e.get_id() for e in told] == [e["id"] for e in events]
        assert [e.get_type() for e in told] == [e["type"] for e in events]
        assert all(e.get_extension("tenantid") == "local" for e in told)
        assert [e["sequence"] for e in events] == [f"{n:020d}" for n in range(len(events))]

        # The same events, with the same causes, as on one file in one process.
        ours = shape([(e["id"], e["type"], e.get("causationid")) for e in events])
        assert ours == await embedded_shape(one, script)
        for process in begun:
            await check_none_looks_stuck(one, process)


@pytest.mark.timeout(120)
async def test_commands_of_a_cluster_say_what_they_can_not_do(
    children: Nursery, short_dir: Path, kafka_bootstrap: str, redis_url: str
) -> None:
    script = short_dir / "script.json"
    script.write_text(json.dumps(SCRIPT))
    async with cluster(children, short_dir, (kafka_bootstrap, redis_url)) as one:
        for argv, said in (
            (("up",), "unset it"),
            (("run", "x", "--script", str(script)), "THREADLOG_SCRIPTED__SCRIPT"),
            (("serve", "gatway"), "gatway"),
        ):
            child = await one.run(*argv)
            assert child.status == 2, child.stderr
            assert said in child.stderr
        empty = await one.run("thread", "ls", "--json")
        assert empty.status == 3, "no views are no empty list"
        assert "threadlog serve projection" in json.loads(empty.stdout)["detail"]
        await one.start("projection")
        listed = await one.run("thread", "ls", "--json")
        assert (listed.status, json.loads(listed.stdout)["threads"]) == (0, [])
        checked = await one.run("doctor", "--json")
        found = {(f["group"], f["check"]): f for f in json.loads(checked.stdout)["findings"]}
        for name in (("log", "topics"), ("redis", "server"), ("groups", "projection")):
            assert found[name]["level"] == "ok", found[name]
