"""Recorded histories on a real broker: appended, read back, carried to another log and back."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from tests.golden.record import FILES, digests, fold_all, recorded
from tests.helpers.kafka import make_config, make_topics, running_log
from tests.helpers.logs import collect, events_of
from threadlog.adapters.sqlite.file import open_file
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.clock import SystemClock
from threadlog.errors import ThreadlogError
from threadlog.events.codec import from_cloud_event, to_cloud_event
from threadlog.events.envelope import Event
from threadlog.ids import Partition
from threadlog.limits import APPEND_EVENTS_MAX
from threadlog.ports.log import Log
from threadlog.thread.fold import judge
from threadlog.thread.state import ThreadState

NAMES = sorted(digests())
RECORDED = recorded()


@contextlib.asynccontextmanager
async def kafka(bootstrap: str) -> AsyncIterator[Log]:
    """A topic of one partition that nobody else has."""
    config = make_config(bootstrap)
    await make_topics(config)
    async with running_log(config) as log:
        yield log.partition(Partition(0))


@contextlib.asynccontextmanager
async def sqlite(path: Path) -> AsyncIterator[Log]:
    """A file of its own."""
    fatal: list[ThreadlogError] = []
    file = await open_file(path, clock=SystemClock(), on_fatal=fatal.append)
    try:
        yield SqliteLog(file)
    finally:
        await file.close()
    assert not fatal


async def imported(log: Log, lines: Iterable[bytes]) -> list[Event]:
    """What the log gives back of the events of these lines."""
    events = [from_cloud_event(line)[0] for line in lines]
    start = await log.end()
    for first in range(0, len(events), APPEND_EVENTS_MAX):
        await log.append(events[first : first + APPEND_EVENTS_MAX])
    return events_of(await collect(log, start, len(events)))


def exported(events: Iterable[Event]) -> list[bytes]:
    """The events as JSON lines, each with the seq that the fold gives it."""
    state: ThreadState | None = None
    lines = []
    for event in events:
        judgement = judge(state or ThreadState(event.tenant_id, event.thread_id), event)
        state = judgement.state
        lines.append(to_cloud_event(event, judgement.seq))
    return lines


def lines_of(name: str) -> list[bytes]:
    return (FILES / f"{name}.jsonl").read_bytes().splitlines()


@pytest.mark.timeout(90)
async def test_G5_law_2_a_log_is_carried_from_kafka_to_a_file_and_back_byte_for_byte(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    """As JSON lines; out of each log every state, void and verdict is as it was recorded."""
    async with (
        kafka(kafka_bootstrap) as first,
        sqlite(tmp_path / "carried.db") as file,
        kafka(kafka_bootstrap) as second,
    ):
        for name in NAMES:
            lines = lines_of(name)
            for log in (first, file, second):
                events = await imported(log, lines)
                assert fold_all(events) == RECORDED[name], name
                lines = exported(events)
                assert lines == lines_of(name), f"{name}: a line is not as it was recorded"
