"""Recorded histories fold to the recorded states: from zero, every snapshot and every log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.record import (
    DIGESTS,
    FILES,
    STATES,
    Recorded,
    digest_of,
    digests,
    fold_all,
    read,
    recorded,
    recorded_version,
    told,
)
from tests.helpers.logs import collect
from tests.helpers.thread_checks import History
from tests.helpers.thread_events import MODEL
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.sqlite.file import open_file
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.clock import SystemClock
from threadlog.errors import ThreadlogError
from threadlog.events.codec import to_cloud_event
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION
from threadlog.ports.log import Log
from threadlog.thread.fold import judge
from threadlog.thread.snapshot import decode_state, encode_state, state_hash
from threadlog.thread.state import FOLD_VERSION, ThreadState

ROOT = Path(__file__).parents[2]
NAMES = sorted(digests())
RECORDED = recorded()
BYTES_MAX = 1_500_000
every_file = pytest.mark.parametrize("name", NAMES)


def events_of(name: str) -> list[Event]:
    return [event for event, _ in read(name)]


def test_there_are_fifty_files_and_each_is_as_it_was_recorded() -> None:
    assert len(NAMES) >= 50
    assert {path.stem for path in FILES.iterdir()} == set(NAMES) == set(RECORDED)
    assert {name: digest_of(FILES / f"{name}.jsonl") for name in NAMES} == digests()
    assert sum(p.stat().st_size for p in (*FILES.iterdir(), STATES, DIGESTS)) < BYTES_MAX


def test_every_script_was_recorded() -> None:
    assert {name for name, _ in told()} <= set(NAMES), "python -m tests.golden.record --write"


def test_states_are_recorded_under_this_fold_version() -> None:
    assert recorded_version() == FOLD_VERSION, "python -m tests.golden.record --write"


@every_file
def test_a_file_is_judged_as_it_was_and_folds_to_the_same_state(name: str) -> None:
    """RELIABILITY G5: verdicts and seqs never change, hashes only with the fold version."""
    found = fold_all(events_of(name))
    assert found.judged == RECORDED[name].judged
    assert found.sha256 == RECORDED[name].sha256


@every_file
def test_a_line_names_the_seq_that_its_event_gets(name: str) -> None:
    lines = (FILES / f"{name}.jsonl").read_bytes().splitlines()
    state: ThreadState | None = None
    history = History()
    for line, (event, seq) in zip(lines, read(name), strict=True):
        before = state or ThreadState(event.tenant_id, event.thread_id)
        judgement = judge(before, event)
        history.watch(before, event, judgement)
        assert judgement.seq == seq
        assert to_cloud_event(event, seq) == line, "it is written as it was"
        state = judgement.state


@every_file
def test_a_file_folds_alike_from_every_snapshot(name: str) -> None:
    events = events_of(name)
    state = ThreadState(events[0].tenant_id, events[0].thread_id)
    every = max(1, len(events) // 40)
    for n, event in enumerate(events):
        state = judge(state, event).state
        if n % every == 0:
            encoded = encode_state(state)
            tail = decode_state(encoded, FOLD_VERSION, state_hash(encoded))
            for later in events[n + 1 :]:
                tail = judge(tail, later).state
            assert state_hash(encode_state(tail)) == RECORDED[name].sha256


def test_files_fold_alike_under_two_hash_seeds() -> None:
    paths = [str((FILES / f"{name}.jsonl").relative_to(ROOT)) for name in NAMES]
    printed = {
        subprocess.run(
            [sys.executable, "-m", "tests.helpers.fold_hashes", *paths],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": f"{ROOT}/services:{ROOT}"},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("2", "42")
    }
    assert len(printed) == 1


async def through(log: Log, name: str) -> Recorded:
    """The file appended to a log, read back, folded."""
    events = events_of(name)
    start = await log.end()
    await log.append(events)
    records = await collect(log, start, len(events))
    assert all(record.event is not None and record.key == events[0].key for record in records)
    return fold_all(record.event for record in records if record.event is not None)


async def test_files_fold_alike_out_of_memory() -> None:
    log = MemoryLog()
    for name in NAMES:
        assert await through(log, name) == RECORDED[name]


async def test_files_fold_alike_out_of_sqlite(tmp_path: Path) -> None:
    fatal: list[ThreadlogError] = []
    file = await open_file(tmp_path / "golden.db", clock=SystemClock(), on_fatal=fatal.append)
    try:
        log = SqliteLog(file)
        assert await log.end() == NO_POSITION
        for name in NAMES:
            assert await through(log, name) == RECORDED[name]
    finally:
        await file.close()
    assert not fatal


def test_the_files_show_what_can_happen() -> None:
    """Variety: every type, every verdict of a turn that exists by now, most reasons to be void."""
    types = {event.type for name in NAMES for event in events_of(name)}
    verdicts = {verdict for found in RECORDED.values() for verdict in found.verdicts}
    voids = {void for found in RECORDED.values() for void in found.voids.values()}
    assert len(types) >= 19
    assert verdicts == {"completed", "cancelled", "blocked", "budget", "max_tokens", "error"}
    assert len(voids) >= 20, sorted(voids)
    assert MODEL.provider == "scripted"
