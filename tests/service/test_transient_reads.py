"""What fails to be read for a moment is read again: no thread stops, and no turn is cut short."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest

from tests.helpers.events import LOCAL
from tests.helpers.fakes import Fault, StepModel, StepTools, reply
from tests.helpers.service_world import World
from tests.helpers.shared_world import P0, SharedWorld, hasten
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    bent,
    cancel,
    configured,
    created,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    turn_started,
)
from threadlog.errors import CorruptError, RefusedError, TransientError, ViewsRebuildingError
from threadlog.events.content import BlobRef
from threadlog.events.tool import ToolFinished, ToolStarted
from threadlog.ids import WorkerId
from threadlog.limits import INLINE_BYTES_MAX
from threadlog.ports.tools import ToolResult
from threadlog.ports.views import StoredEvent
from threadlog.runtime import claiming, patience
from threadlog.tool_runner.service import ToolRunner
from threadlog.tool_runner.slots import Slots

START: tuple[Maker, ...] = (created(), configured(model=MODEL), message())
CALLS: tuple[Maker, ...] = (turn_started(), step_started("p0"), responded(calls=1))
T = TypeVar("T")
ERRORS = pytest.mark.parametrize(
    "error", [ViewsRebuildingError("not there again"), TransientError("no answer")]
)


@pytest.fixture(autouse=True)
def _hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)
    monkeypatch.setattr(patience, "_RETRY_S", 0.001)
    monkeypatch.setattr(claiming, "_AGAIN_S", 0.001)


class Failing:
    """A port of which one method fails, once or for as many calls as it is told."""

    def __init__(self, port: object, name: str, error: Exception, times: int = 1) -> None:
        self.left = times
        inner: Callable[..., Awaitable[Any]] = getattr(port, name)

        async def fails(*arguments: Any, **named: Any) -> Any:
            if self.left:
                self.left -= 1
                raise error
            return await inner(*arguments, **named)

        setattr(port, name, fails)


# -- the planner


@ERRORS
@pytest.mark.parametrize("name", ["events", "reached"])
async def test_content_of_a_cold_thread_is_read_again(error: Exception, name: str) -> None:
    model = StepModel()
    async with World() as world:
        await world.go(*START)
        failing = Failing(world.views, name, error)
        async with world.planner(model) as planner:
            exchange = await model.asked()
            assert not failing.left
            assert b"hello" in exchange.body
            exchange.answer(reply("done"))
            await world.until(lambda: world.state().verdict == "completed")
            assert not planner.worker.broken


async def test_a_blob_that_cannot_be_had_for_a_moment_is_asked_for_again() -> None:
    """Otherwise the model would be asked without it."""
    model, prompt = StepModel(), b"speak French. " * 9_000
    async with World() as world:
        [stored] = await world.blobs.put(LOCAL, [(prompt, "text/plain")])
        assert isinstance(stored, BlobRef)
        assert stored.bytes > INLINE_BYTES_MAX
        with_prompt = bent(configured(model=MODEL), system_prompt=stored)
        failing = Failing(world.blobs, "get", TransientError("no answer"))
        async with world.planner(model) as planner:
            await world.go(created(), with_prompt, message())
            exchange = await model.asked()
            assert not failing.left
            assert prompt[:100] in exchange.body
            assert not planner.worker.broken


@pytest.mark.parametrize("times", [1, 2])
async def test_views_that_went_back_between_two_looks_are_looked_at_again(times: int) -> None:
    model = StepModel()
    async with World() as world:
        await world.go(*START)
        events, shortened = world.views.events, list[int]()

        async def short(*arguments: Any, **named: Any) -> Sequence[StoredEvent]:
            found = await events(*arguments, **named)
            if len(shortened) < 2 * times and named["first"] in (0, 2):
                # A page that lacks the last event, and an empty one behind it.
                shortened.append(named["first"])
                return found[:2] if named["first"] == 0 else ()
            return found

        world.views.events = short  # type: ignore[method-assign]  # for this test
        async with world.planner(model) as planner:
            exchange = await model.asked()
            assert b"hello" in exchange.body
            assert shortened == [0, 2] * times
            assert not planner.worker.broken


async def test_events_that_are_never_there_stop_the_thread_with_a_reason() -> None:
    """A prompt without them would be a silent cut."""
    async with World() as world:
        await world.go(*START)
        await world.views.wait(await world.log.end())
        async with world.planner(StepModel()) as planner:
            loader = planner._ports.loader
            world.views.events = _none  # type: ignore[method-assign]  # for this test
            with pytest.raises(CorruptError, match="3 events"):
                await loader.accepted(world.state(), await world.log.end())


async def _none(*_: object, **__: object) -> Sequence[StoredEvent]:
    return ()


# -- the tool-runner


@ERRORS
@pytest.mark.parametrize("name", ["events", "reached"])
async def test_a_command_is_read_again(error: Exception, name: str) -> None:
    tools = StepTools()
    async with World() as world:
        await world.go(*START, *CALLS, requested(0, command="make"))
        failing = Failing(world.views, name, error)
        async with world.tool_runner(tools) as runner:
            run = await tools.started()
            assert (failing.left, run.call.command) == (0, "make")
            run.finish()
            await world.until(lambda: world.bodies(ToolFinished))
            assert not runner.worker.broken


async def test_a_command_that_is_not_there_at_first_is_looked_for_again() -> None:
    tools = StepTools()
    async with World() as world:
        await world.go(*START, *CALLS, requested(0, command="make"))
        events, looks = world.views.events, Counter[str]()

        async def short(*arguments: Any, **named: Any) -> Sequence[StoredEvent]:
            looks["events"] += 1
            return () if looks["events"] == 1 else await events(*arguments, **named)

        world.views.events = short  # type: ignore[method-assign]  # for this test
        async with world.tool_runner(tools) as runner:
            assert (await tools.started()).call.command == "make"
            assert not runner.worker.broken


@ERRORS
@pytest.mark.parametrize("name", ["causes", "reached"])
async def test_a_stored_output_is_read_again(error: Exception, name: str) -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools) as runner:
        await world.go(*START, *CALLS, requested(0))
        (await tools.started()).finish(ToolResult("ok", b"one\ntwo", 7, exit_code=0))
        await world.until(lambda: world.bodies(ToolFinished))
        failing = Failing(world.views, name, error)
        again = f"read @{world.bodies(ToolFinished)[0].call_id} 2:2"
        end = (step_finished(), step_started("p0"), responded(calls=1))
        await world.go(*end, requested(0, effect="pure", command=again))
        await world.until(lambda: len(world.bodies(ToolFinished)) == 2)
        assert not failing.left
        assert world.bodies(ToolFinished)[1].output == "2|two"
        assert not runner.worker.broken


# -- before a dead writer's claim is settled


async def test_a_claim_is_settled_only_once_nothing_of_the_dead_runs_any_more() -> None:
    tries: list[int] = []
    async with World() as world:
        await world.go(*START, *CALLS, requested(0))
        async with world.tool_runner(StepTools(), worker="t0"):
            await world.until(lambda: world.bodies(ToolStarted))
        world.mark()
        may_work = asyncio.Event()

        async def settle_gone() -> None:
            assert not world.bodies(ToolFinished), "it comes first"
            tries.append(len(tries))
            if len(tries) < 3:
                raise RefusedError("a process would not end")
            await may_work.wait()

        runner = ToolRunner(
            world.actor_ports(), StepTools(), world.blobs, WorkerId("t1"), Slots(1), settle_gone
        )
        async with world._running(runner, "t1"):
            await world.until(lambda: len(tries) == 3)
            await world.quiet()
            assert not world.bodies(ToolFinished)
            may_work.set()
            await world.until_told("tool.finished")
            assert len(tries) == 3
            assert not runner.worker.broken
        [finished] = world.bodies(ToolFinished)
        assert (finished.by, finished.outcome) == ("settlement", "unknown")


# -- what was appended although the append failed


@pytest.mark.parametrize("fault", ["unacknowledged", "late"])
async def test_an_append_that_failed_and_arrived_holds_no_commit_back(fault: Fault) -> None:
    """Its consequence was read back, or the state has moved on: nothing more is appended for it."""
    model = StepModel()
    async with SharedWorld() as world:
        process = await world.planner("p1", model)
        await world.ready(process)
        thread = world.thread()
        log = process.logs[P0]
        await world.go(*START, thread=thread)
        exchange = await model.asked()
        log.faults.append(fault)
        exchange.answer(reply("done"))
        await world.until(lambda: not log.faults)
        await log.deliver_late()
        await world.until(lambda: world.state(thread).verdict == "completed")
        service = process.service()
        await world.until(lambda: service.commit_point == len(world.log.logs[0].entries))
        assert not process.service().actor.worker.broken


@pytest.mark.parametrize(
    ("wanted", "appended"),
    [
        ((*CALLS, requested(0), cancel()), "turn.finished"),
        (CALLS, "tool.requested"),
    ],
)
async def test_what_was_open_is_closed_when_nothing_is_to_be_appended_any_more(
    wanted: tuple[Maker, ...], appended: str
) -> None:
    """Neither in a thread that is idle now, nor in one whose call is another's to run."""
    async with SharedWorld() as world:
        process = await world.planner("p1", StepModel())
        await world.ready(process)
        thread, log = world.thread(), process.logs[P0]
        log.hold()
        await world.go(*START, *wanted, thread=thread)
        log.faults.append("unacknowledged")
        log.let_go()
        await world.until(lambda: not log.faults)
        service = process.service()
        await world.until(lambda: service.commit_point == len(world.log.logs[0].entries))
        assert world.told(thread)[-1] == appended
        assert len(log.asked) == 1, "it was not appended again"
        assert service.actor.worker.ledger.open_count == 0
