"""One service as a process: while it starts, when it is told to stop, when it fails."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.helpers.memory_group import Coordinator, MemoryGroup
from threadlog.bootstrap import serving
from threadlog.bootstrap.loop_health import Health
from threadlog.bootstrap.serving import _unless, _until, serve_service
from threadlog.clock import ManualClock, SystemClock
from threadlog.errors import LogUnavailableError
from threadlog.ids import Partition, Position, WorkerId
from threadlog.ports.group import GroupListener
from threadlog.settings import Settings

DEADLINE_S = 5.0


# -- health


class Stepping:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def mono_ms(self) -> int:
        return self.ms


def test_health_says_why_it_is_not_ready_and_since_when_nothing_moves() -> None:
    clock = Stepping()
    health = Health(cast(SystemClock, clock))
    assert (health.is_alive(), health.is_ready()) == (True, "not in its group yet")
    health.beat("partitions [3] wait for their views")
    assert health.is_ready() == "partitions [3] wait for their views"
    health.beat(None)
    assert health.is_ready() is True
    clock.ms += 14_999
    assert health.is_alive() is True
    clock.ms += 1
    assert health.is_alive() == "nothing has moved for 15 s"
    clock.ms += 60_000
    assert health.is_alive() == "nothing has moved for 75 s"
    health.beat(None)
    assert health.is_alive() is True


# -- starting


async def test_work_that_is_done_first_is_told_and_what_it_raises_is_raised() -> None:
    stop = asyncio.Event()

    async def works() -> None:
        await asyncio.sleep(0)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LogUnavailableError("no broker")

    assert await _unless(stop, works())
    with pytest.raises(LogUnavailableError):
        await _unless(stop, fails())
    assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]


async def test_a_stop_while_it_starts_ends_what_starts() -> None:
    stop, ended = asyncio.Event(), list[str]()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("it")

    starting = asyncio.create_task(_unless(stop, never()))
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(DEADLINE_S):
        assert not await starting
    assert ended == ["it"]


# -- running


class Failing:
    """Something that fails when the test says."""

    def __init__(self) -> None:
        self.failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def failed(self) -> Exception:
        return await asyncio.shield(self.failure)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("stop", (None, False)),
        ("service", ("service", False)),
        ("members", ("members", True)),
        ("both", ("members", True)),
        ("log", ("log", True)),
    ],
)
async def test_what_ends_it_is_told_and_whether_it_is_taken_for_dead(
    first: str, expected: tuple[str | None, bool]
) -> None:
    stop, assignment, members, log = asyncio.Event(), Failing(), Failing(), Failing()
    parts = (cast(Any, part) for part in (assignment, members, log))
    waiting = asyncio.create_task(_until(stop, *parts))
    await asyncio.sleep(0)
    if first == "stop":
        stop.set()
    if first in ("service", "both"):
        assignment.failure.set_result(RuntimeError("service"))
    if first in ("members", "both"):
        members.failure.set_result(RuntimeError("members"))
    if first == "log":
        log.failure.set_result(RuntimeError("log"))
    async with asyncio.timeout(DEADLINE_S):
        error, is_gone = await waiting
    assert (None if error is None else str(error), is_gone) == expected


# -- the whole process, over fakes


class Service:
    """A service of one partition, which fails when the test says, and tells how it was drained."""

    is_ready = True
    commit_point = Position(0)

    def __init__(self) -> None:
        self.is_busy = True
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.drained: list[int] = []

    async def run(self, committed: Position | None) -> None:
        await self.failure

    async def let_go(self) -> Position | None:
        return None

    def take_back(self, committed: Position | None) -> None:
        pass

    async def drain(self, timeout_ms: int) -> None:
        self.drained.append(timeout_ms)
        self.is_busy = False


class Members(Failing):
    """The group of the living."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    async def start(self) -> None:
        self.told.append("start")

    async def close(self) -> None:
        self.told.append("close")


class Group(MemoryGroup):
    """The group of the partitions; `may_join` cleared: it never becomes a member."""

    rebalances = 0

    def __init__(self) -> None:
        super().__init__(Coordinator(1), "a")
        self.may_join = asyncio.Event()
        self.may_join.set()
        self.told: list[str] = []

    async def join(self, listener: GroupListener) -> None:
        self.told.append("join")
        try:
            await self.may_join.wait()
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise
        await super().join(listener)

    async def leave(self) -> None:
        self.told.append("leave")
        await super().leave()

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        pass


class Played:
    """A process that is served over fakes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.service, self.members, self.group = Service(), Members(), Group()
        self.stop = asyncio.Event()
        self.notices: list[str] = []
        config = SimpleNamespace(group="g", worker=WorkerId("w"), partitions=1, events_topic="t")
        cluster = SimpleNamespace(config=config, clock=ManualClock(), identity=None)

        @asynccontextmanager
        async def opened(*_: object, **__: object) -> AsyncIterator[Any]:
            yield cluster

        @asynccontextmanager
        async def maker(*_: object) -> AsyncIterator[Any]:
            yield lambda partition: self.service

        patch.setattr(serving, "open_cluster", opened)
        patch.setattr(serving, "_maker", maker)
        patch.setattr(serving, "KafkaMembers", lambda config: self.members)
        patch.setattr(serving, "KafkaGroup", lambda config: self.group)
        patch.setattr(serving, "KafkaTopics", lambda config: None)
        patch.setattr(serving, "arm_faults", lambda settings: None)
        patch.setattr("gc.freeze", lambda: None)
        patch.setattr(Settings, "check_cluster", lambda self: None)
        patch.setenv("THREADLOG_METRICS__PORT", "0")
        patch.setenv("THREADLOG_WORKER__DRAIN_TIMEOUT_MS", "1234")
        self.serving = asyncio.create_task(
            serve_service(Settings(), "planner", self.notices.append, self.stop)
        )

    async def running(self) -> None:
        await self.until(lambda: self.notices)

    async def until(self, is_so: Any) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                assert not self.serving.done(), self.serving
                await asyncio.sleep(0.001)

    async def ended(self) -> Exception | None:
        """It has ended; what it raised."""
        await asyncio.wait({self.serving}, timeout=DEADLINE_S)
        assert self.serving.done()
        error = self.serving.exception()
        assert error is None or isinstance(error, Exception)
        assert self.members.told == ["start", "close"], "the living are left last"
        return error


async def test_a_stop_drains_for_as_long_as_the_settings_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch)
    await played.running()
    played.stop.set()
    assert await played.ended() is None
    assert played.service.drained == [1_234]
    assert played.group.told == ["join", "leave"]


async def test_a_service_that_fails_ends_the_process_which_drains_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch)
    await played.running()
    error = LogUnavailableError("the log was cut")
    played.service.failure.set_exception(error)
    assert await played.ended() is error
    assert played.service.drained == [1_234], "what runs elsewhere in it may end"


async def test_who_is_none_of_the_living_any_more_ends_at_once_all_that_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others take it for dead, and settle its claims: nothing of it may run on."""
    played = Played(monkeypatch)
    await played.running()
    error = LogUnavailableError("expelled")
    played.members.failure.set_result(error)
    assert await played.ended() is error
    assert played.service.drained == [0]


async def test_a_stop_while_it_joins_its_group_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker without a coordinator would keep it for ever."""
    played = Played(monkeypatch)
    played.group.may_join.clear()
    await played.until(lambda: played.group.told)
    played.stop.set()
    assert await played.ended() is None
    assert played.group.told == ["join", "cancelled", "leave"]
    assert not played.notices
