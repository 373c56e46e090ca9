"""What the writer remembers changes nothing: judgements come out as if everything were sought."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.helpers.events import OTHER, created, message, thread_id
from threadlog.adapters.sqlite import recent
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.recent import Appended, Recent
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.events.envelope import Event
from threadlog.ids import Position, Seq
from threadlog.ports.log import Receipt
from threadlog.ports.views import (
    Judged,
    ViewBatch,
)

FIRST = [message(f"first {n}", thread_id(n % 3)) for n in range(6)]
MIXED = [
    *FIRST,
    *(message(f"caused {n}", thread_id(n), caused_by=FIRST[n].event_id) for n in range(5)),
    # Repeats, a foreign tenant that names our event, and a cause that is nowhere.
    FIRST[0],
    message("caused again", thread_id(1), caused_by=FIRST[0].event_id),
    message("foreign", thread_id(0), tenant=OTHER, caused_by=FIRST[0].event_id),
    message("nowhere", thread_id(0), caused_by=created(thread_id(99)).event_id),
]


def judged_all(events: Sequence[Event], receipts: Sequence[Receipt]) -> list[Judged]:
    pairs = zip(receipts, events, strict=True)
    return [Judged(receipt.position, event, Seq(n)) for n, (receipt, event) in enumerate(pairs)]


async def judge(path: Path, events: Sequence[Event], receipts: Sequence[Receipt]) -> None:
    judged = judged_all(events, receipts)
    async with opened(path) as file:
        await SqliteViews(file).apply(
            ViewBatch(Position(0), receipts[-1].position, judged=judged), urgent=True
        )


async def append(path: Path, events: Sequence[Event], *, judging: bool) -> list[Receipt]:
    """Each event in an append of its own; judged by the same writer, or later by another."""
    async with opened(path) as file:
        receipts = [r for event in events for r in await SqliteLog(file).append([event])]
        if judging:
            judged = judged_all(events, receipts)
            await SqliteViews(file).apply(
                ViewBatch(Position(0), receipts[-1].position, judged=judged), urgent=True
            )
    return receipts


def judgements(path: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM judgements ORDER BY position").fetchall()


@pytest.mark.parametrize("entries_max", [1, 3, 8_192])
async def test_remembered_and_sought_judgements_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries_max: int
) -> None:
    monkeypatch.setattr(recent, "_RECORDS_MAX", entries_max)
    monkeypatch.setattr(recent, "_STREAMS_MAX", entries_max)
    remembered, sought = tmp_path / "remembered.db", tmp_path / "sought.db"
    await append(remembered, MIXED, judging=True)
    await judge(sought, MIXED, await append(sought, MIXED, judging=False))
    assert judgements(remembered) == judgements(sought)
    streams = {row[1] for row in judgements(sought)}
    assert streams == {1, 2, 3, 10, 11, 14}, "the first record of each of six streams"
    causes = [row[2] for row in judgements(sought)]
    assert causes == [None] * 6 + [1, 2, 3, 4, 5] + [None, 12, None, None]


def test_what_is_too_old_is_forgotten_first() -> None:
    memory = Recent()
    count = recent._RECORDS_MAX + 10
    for at in range(1, count + 1):
        memory.add(Appended((f"t{at}", "local"), Position(at), [Position(at)], [f"e{at}"], [None]))
    assert memory.place(Position(10)) is None
    oldest = memory.place(Position(11))
    assert oldest is not None
    assert oldest.stream == 11
    assert memory.stream((f"t{count}", "local")) == count


def test_a_cause_that_is_not_remembered_must_be_sought() -> None:
    memory = Recent()
    memory.add(Appended(("t", "local"), Position(1), [Position(9)], ["e"], ["unknown"]))
    assert memory.place(Position(9)) is None
