"""What a process says of itself: whether it is in its group, what it waits for, how far it is."""

import asyncio

from tests.helpers.memory_group import Coordinator, MemoryGroup
from threadlog.ids import Partition, Position
from threadlog.ports.group import GroupListener
from threadlog.runtime.assignment import Assignment

P0, P1 = Partition(0), Partition(1)
DEADLINE_S = 5.0


class Fake:
    """A service that is ready, and as far, as the test says."""

    is_busy = False

    def __init__(self) -> None:
        self.is_ready = False
        self.commit_point: Position | None = None

    async def run(self, committed: Position | None) -> None:
        await asyncio.Event().wait()

    async def let_go(self) -> Position | None:
        return self.commit_point

    def take_back(self, committed: Position | None) -> None:
        pass

    async def drain(self, timeout_ms: int) -> None:
        pass


class SlowGroup(MemoryGroup):
    """Joins once the test lets it."""

    def __init__(self, coordinator: Coordinator, name: str) -> None:
        super().__init__(coordinator, name)
        self.may_join = asyncio.Event()

    async def join(self, listener: GroupListener) -> None:
        await self.may_join.wait()
        await super().join(listener)


def says(assignment: Assignment) -> tuple[str | None, bool]:
    return assignment.waits_for, assignment.is_ready


async def test_it_is_ready_once_it_is_in_its_group_and_every_partition_is_served() -> None:
    coordinator, fakes = Coordinator(2), dict[Partition, Fake]()
    coordinator.committed[P1] = Position(5)
    group = SlowGroup(coordinator, "a")

    def make(partition: Partition) -> Fake:
        fakes[partition] = Fake()
        return fakes[partition]

    assignment = Assignment("a", group, make)
    assert says(assignment) == ("not in its group yet", False)
    starting = asyncio.create_task(assignment.start())
    await asyncio.sleep(0)
    assert says(assignment) == ("not in its group yet", False)
    assert assignment.points == {}
    group.may_join.set()
    async with asyncio.timeout(DEADLINE_S):
        await starting
    assert says(assignment) == ("partitions [0, 1] wait for their views", False)
    assert assignment.points == {P0: None, P1: 5}, "the group's own word until it begins"
    fakes[P0].is_ready, fakes[P0].commit_point = True, Position(3)
    assert says(assignment) == ("partitions [1] wait for their views", False)
    fakes[P1].is_ready, fakes[P1].commit_point = True, Position(9)
    assert says(assignment) == (None, True)
    assert assignment.points == {P0: 3, P1: 9}
    await coordinator.move(P1, None)
    assert assignment.points == {P0: 3}, "only what is owned"
    await coordinator.move(P0, None)
    assert says(assignment) == (None, True), "a member without partitions serves all that it has"
    await assignment.stop(0)
