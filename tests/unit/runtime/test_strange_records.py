"""Records that no appender of ours makes: gaps are nothing, bad ones are pointed at."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.events import event_id, thread_id
from tests.helpers.events import message as raw_message
from tests.helpers.fakes import StepModel, reply
from tests.helpers.shared_world import SharedWorld, hasten
from tests.helpers.thread_events import MODEL, configured, created, message
from threadlog.ids import Position
from threadlog.planner.service import Planner
from threadlog.ports.log import KEY_DISAGREES, Record

IDLE = (created(), configured(model=MODEL))


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture
async def world() -> AsyncIterator[SharedWorld]:
    async with SharedWorld() as world:
        yield world


async def turn_runs(world: SharedWorld, model: StepModel) -> None:
    """A thread of the partition has a turn."""
    await world.go(message(), thread=world.thread())
    (await model.asked()).answer(reply("done"))
    await world.until(lambda: world.state(world.thread()).verdict == "completed")
    await world.caught_up()


async def test_a_gap_is_no_bad_record_and_counts_as_read(
    world: SharedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: list[Record] = []
    monkeypatch.setattr(Planner, "on_bad", lambda planner, record: bad.append(record))
    log, model = world.log.logs[0], StepModel()
    planner = await world.planner("p1", model)
    await world.ready(planner)
    await world.go(*IDLE, thread=world.thread())
    gaps = [await log.append_record("", None, None) for _ in range(3)]
    assert log.entries[-1].is_gap
    await world.until(lambda: planner.service().commit_point == gaps[-1])
    await world.caught_up()
    assert await world.parts[0].watermark() == gaps[-1]
    await turn_runs(world, model)
    await log.append_record("", None, None)
    await world.caught_up()
    assert world.parts[0].dead_letters == {}
    assert not bad
    assert not planner.service().actor.worker.broken


async def test_a_gap_in_a_threads_own_key_changes_nothing_for_it(world: SharedWorld) -> None:
    log, model = world.log.logs[0], StepModel()
    await world.ready(await world.planner("p1", model))
    await world.go(*IDLE, thread=world.thread())
    await log.append_record(f"local/{world.thread()}", None, None)
    await turn_runs(world, model)
    assert world.parts[0].dead_letters == {}


@pytest.mark.parametrize(
    ("key", "has_event", "reason"),
    [
        ("local/x", False, "no envelope"),
        ("", False, "no key"),
        ("", True, KEY_DISAGREES),
        ("local/other", True, KEY_DISAGREES),
    ],
)
async def test_a_bad_record_is_a_dead_letter_and_its_neighbours_go_on(
    world: SharedWorld, key: str, has_event: bool, reason: str
) -> None:
    log, model = world.log.logs[0], StepModel()
    planner = await world.planner("p1", model)
    await world.ready(planner)
    await world.go(*IDLE, thread=world.thread())
    event = raw_message("x", thread_id(), event_id=event_id(1)) if has_event else None
    bad = [await log.append_record(key, event, None if has_event else reason) for _ in range(2)]
    await turn_runs(world, model)
    letters = world.parts[0].dead_letters
    assert {at: letter.reason for at, letter in letters.items()} == dict.fromkeys(bad, reason)
    assert not planner.service().actor.worker.broken
    await world.until(lambda: planner.service().commit_point == len(log.entries))
    assert planner.state(world.thread()) == world.state(world.thread()), "it changed nothing"


async def test_a_gap_after_records_without_a_key_is_still_none(world: SharedWorld) -> None:
    """What is wrong with a key says nothing of a place where no record lies."""
    log = world.log.logs[0]
    await log.append_record("", raw_message("x", thread_id()), None)
    await log.append_record("", None, None)
    await world.caught_up()
    assert world.parts[0].dead_letters.keys() == {Position(1)}
