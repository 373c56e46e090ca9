"""Who holds a service while partitions come and go at awkward moments."""

import asyncio
import gc

import pytest

from tests.helpers.memory_group import Coordinator
from threadlog.ids import Partition, Position
from threadlog.runtime import assignment
from threadlog.runtime.assignment import Assignment

P0 = Partition(0)
DEADLINE_S = 5.0


class Fake:
    """A service that is busy, stuck or slow to end as the test says."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.log: list[str] = []
        self.is_busy = False
        self.is_ready = True
        self.commit_point: Position | None = Position(7)
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.has_ended = False

    async def run(self, committed: Position | None) -> None:
        self.log.append(f"run {committed}")
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.has_ended = True

    async def let_go(self) -> Position | None:
        self.log.append("let_go")
        await self.may_go.wait()
        return Position(9)

    def take_back(self, committed: Position | None) -> None:
        self.log.append(f"take_back {committed}")

    async def drain(self, timeout_ms: int) -> None:
        self.log.append(f"drain {timeout_ms}")
        self.is_busy = False


class Made:
    """An assignment of fakes, alone in its group."""

    def __init__(self, partitions: int = 1) -> None:
        self.fakes: list[Fake] = []
        self.group = Coordinator(partitions)
        self.assignment = Assignment("a", self.group.member("a"), self._make)

    def _make(self, partition: Partition) -> Fake:
        self.fakes.append(Fake(partition))
        return self.fakes[-1]


async def until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "_LOOK_S", 0.02)


async def test_a_partition_that_is_given_away_idle_ends_at_once() -> None:
    made = Made()
    await made.assignment.start()
    await made.group.move(P0, None)
    assert made.fakes[0].has_ended
    assert made.group.commits == [("a", {0: 9})], "what it said when it was let go"
    assert (made.assignment.services, made.assignment.followed) == ({}, set())
    await made.assignment.stop(0)


async def test_a_partition_that_was_lost_is_let_go_and_not_committed() -> None:
    made = Made()
    await made.assignment.start()
    await made.group.lose(P0, None)
    assert made.fakes[0].has_ended
    assert made.fakes[0].log == ["run None", "let_go"]
    assert made.group.commits == []
    await made.assignment.stop(0)


async def test_one_that_does_not_let_go_in_time_is_given_away_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is committed up to where it was before, and read on."""
    monkeypatch.setattr(assignment, "_LET_GO_S", 0.01)
    made = Made(2)
    await made.assignment.start()
    stuck = made.fakes[0]
    stuck.may_go.clear()
    stuck.is_busy = True
    async with asyncio.timeout(DEADLINE_S):
        await made.group.move(P0, None)
    assert made.group.committed == {0: 7}
    assert made.assignment.followed == {0}
    assert not stuck.has_ended
    await made.assignment.stop(0)


async def test_what_comes_back_while_it_is_followed_is_the_same_service() -> None:
    made = Made()
    await made.assignment.start()
    made.fakes[0].is_busy = True
    await made.group.move(P0, None)
    await made.group.move(P0, "a")
    assert made.fakes[0].log == ["run None", "let_go", "take_back 9"]
    assert len(made.fakes) == 1
    made.fakes[0].is_busy = False
    await asyncio.sleep(3 * assignment._LOOK_S)
    assert not made.fakes[0].has_ended, "the follower knows that it is owned again"
    await made.assignment.stop(0)


async def test_a_follower_of_an_earlier_time_ends_no_service_that_came_later() -> None:
    """Revoked, back, revoked again, all within a look: two looked once, and both would close."""
    made = Made()
    await made.assignment.start()
    first = made.fakes[0]
    first.is_busy = True
    await made.group.move(P0, None)
    await asyncio.sleep(assignment._LOOK_S / 2)
    await made.group.move(P0, "a")
    await made.group.move(P0, None)
    first.is_busy = False
    await until(lambda: first.has_ended)
    await made.group.move(P0, "a")
    second = made.fakes[1]
    await asyncio.sleep(3 * assignment._LOOK_S)
    assert not second.has_ended
    assert made.assignment.services == {P0: second}
    await made.assignment.stop(0)
    gc.collect()  # an error that a follower ended by would be told here


async def test_when_it_has_stopped_nothing_reads_any_more() -> None:
    """Neither what it ends itself, nor what a follower is just about to end."""
    made = Made(3)
    await made.assignment.start()
    closing = made.fakes[0]
    for fake in made.fakes:
        fake.is_busy = True
    for partition in range(3):
        await made.group.move(Partition(partition), None)
    closing.may_end.clear()
    closing.is_busy = False
    await until(lambda: 0 not in made.assignment.followed)
    stopping = asyncio.create_task(made.assignment.stop(5))
    await asyncio.sleep(2 * assignment._LOOK_S)
    assert not stopping.done()
    closing.may_end.set()
    async with asyncio.timeout(DEADLINE_S):
        await stopping
    assert all(fake.has_ended for fake in made.fakes)
    assert [fake.log[-1] for fake in made.fakes] == ["let_go", "drain 5", "drain 5"]


async def test_a_follower_that_ends_its_service_during_the_stop_is_waited_for() -> None:
    made = Made(4)
    await made.assignment.start()
    for fake in made.fakes:
        fake.is_busy = True
        fake.may_end.clear()
    for partition in range(4):
        await made.group.move(Partition(partition), None)
    stopping = asyncio.create_task(made.assignment.stop(5))
    await until(lambda: not any(fake.is_busy for fake in made.fakes))
    await asyncio.sleep(2 * assignment._LOOK_S)
    for fake in made.fakes:
        fake.may_end.set()
    async with asyncio.timeout(DEADLINE_S):
        await stopping
    assert all(fake.has_ended for fake in made.fakes)


async def test_nothing_is_committed_for_a_partition_that_is_not_owned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment, "_COMMIT_S", 0.001)
    made = Made()
    await made.assignment.start()
    fake = made.fakes[0]
    await until(lambda: made.group.committed == {0: 7})
    fake.is_busy = True
    await made.group.move(P0, None)
    told = len(made.group.commits)
    fake.commit_point = Position(50)
    await asyncio.sleep(0.02)
    assert len(made.group.commits) == told, "it is another's to commit"
    await made.group.move(P0, "a")
    await until(lambda: made.group.committed == {0: 50})
    await made.assignment.stop(0)


async def test_what_has_not_moved_is_not_committed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "_COMMIT_S", 0.001)
    made = Made(2)
    await made.assignment.start()
    made.fakes[1].commit_point = None
    await until(lambda: made.group.commits)
    await asyncio.sleep(0.02)
    assert made.group.commits == [("a", {0: 7})]
    made.fakes[0].commit_point = Position(8)
    await until(lambda: len(made.group.commits) == 2)
    assert made.group.commits[1] == ("a", {0: 8})
    await made.assignment.stop(0)
