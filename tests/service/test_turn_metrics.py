"""What is counted of turns, model requests and calls: once, also when a worker dies on the way."""

import pytest

from tests.helpers.events import thread_id
from tests.helpers.fakes import StepModel, StepTools, cli, reply
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL,
    configured,
    created,
    message,
    requested,
    responded,
    tool_started,
)
from tests.helpers.threads import CLAIMED
from tests.unit.telemetry.test_metrics import Samples, samples
from threadlog.clock import ManualClock
from threadlog.events.content import Usage
from threadlog.events.tool import ToolFinished
from threadlog.limits import CALL_TIMEOUT_MS
from threadlog.ports.model import Delta
from threadlog.telemetry.metrics import Metrics
from threadlog.thread.state import ThreadState
from threadlog.tool_runner.orphans import GRACE_MS, Orphans

START = (created(), configured(model=MODEL), message())
CALL = (*(m for m in CLAIMED if callable(m)), responded(calls=1), requested(0, command="read a"))


def counted(world: World) -> Samples:
    assert world.metrics is not None
    return samples(world.metrics)


def metered(world: World) -> ManualClock:
    world.metrics = Metrics()
    world.metrics.models.allow([MODEL], [MODEL.provider])
    assert isinstance(world.clock, ManualClock)
    return world.clock


def turn_sums(found: Samples) -> tuple[float, float]:
    """How many turns were counted, and the seconds of them all."""
    name = "threadlog_turn_duration_seconds"
    return sum(found[f"{name}_count"].values()), sum(found[f"{name}_sum"].values())


async def test_F103_a_turn_is_counted_once_by_its_times() -> None:
    model = StepModel()
    async with World() as world:
        clock = metered(world)
        async with world.planner(model):
            await world.go(*START)
            exchange = await model.asked()
            clock.advance(2_000)
            exchange.on_delta(Delta("text", "an"))
            clock.advance(1_000)
            exchange.on_delta(Delta("text", "swer"))
            exchange.answer(reply("answer", usage=Usage(input=10, output=2)))
            await world.until(lambda: world.state().verdict == "completed")
            await world.quiet()
        found = counted(world)
    assert turn_sums(found) == (1, 3.0)
    assert found["threadlog_turn_first_output_seconds_sum"] == {(): 2.0}
    assert found["threadlog_turn_first_output_seconds_count"] == {(): 1}
    assert list(found["threadlog_model_first_chunk_seconds_sum"].values()) == [2.0]
    assert list(found["threadlog_model_attempt_duration_seconds_sum"].values()) == [3.0]
    tokens = {labels: n for labels, n in found["threadlog_model_tokens_total"].items() if n}
    assert sorted(tokens.values()) == [2, 10]
    hops = found["threadlog_event_end_to_end_seconds_count"]
    assert hops == {("accept_to_turn",): 1, ("claim_to_call",): 1}


async def test_F103_a_turn_whose_planner_died_is_counted_once_and_from_its_beginning() -> None:
    model = StepModel()
    async with World() as world:
        clock = metered(world)
        async with world.planner(model, "p1"):
            await world.go(*START)
            await model.asked()
            clock.advance(5_000)
        async with world.planner(model, "p2"):
            (await model.asked()).answer(reply("answer"))
            await world.until(lambda: world.state().verdict == "completed")
            await world.quiet()
        async with world.planner(model, "p3"):
            await world.quiet()
        assert turn_sums(counted(world)) == (1, 5.0)


async def test_F103_what_two_workers_read_is_counted_by_the_one_that_wrote_it() -> None:
    model, tools = StepModel(), StepTools()
    async with World() as world:
        metered(world)
        async with (
            world.planner(model, "p1"),
            world.planner(model, "p2"),
            world.tool_runner(tools, "t1"),
            world.tool_runner(tools, "t2"),
        ):
            await world.go(*START)
            (await model.asked()).answer(reply("", cli("make"), cli("make"), ("unknown", "{}")))
            for _ in range(2):
                (await tools.started()).finish()
            (await model.asked()).answer(reply("answer"))
            await world.until(lambda: world.state().verdict == "completed")
            await world.quiet()
        found = counted(world)
    assert turn_sums(found)[0] == 1
    calls = {labels: n for labels, n in found["threadlog_tool_calls_total"].items() if n}
    assert calls == {("shell", "ok"): 2, ("none", "not_started"): 1}
    assert found["threadlog_event_end_to_end_seconds_count"][("accept_to_turn",)] == 1


async def test_a_request_that_failed_is_counted_by_why_and_the_next_one_apart() -> None:
    model = StepModel()
    async with World() as world:
        metered(world)
        async with world.planner(model):
            await world.go(*START)
            (await model.asked()).fail(retry_after_ms=0)
            (await model.asked()).answer(reply("answer"))
            await world.until(lambda: world.state().verdict == "completed")
        found = counted(world)["threadlog_model_attempts_total"]
    shown = {next(x for x in k if x in ("ok", "overloaded")): n for k, n in found.items() if n}
    assert shown == {"ok": 1, "overloaded": 1}


async def test_a_refused_call_has_not_started_and_has_run_no_command() -> None:
    model = StepModel()
    async with World() as world:
        metered(world)
        async with world.planner(model):
            await world.go(*START)
            (await model.asked()).answer(reply("", ("unknown", "{}")))
            (await model.asked()).answer(reply("answer"))
            await world.until(lambda: world.state().verdict == "completed")
            await world.quiet()
        found = counted(world)
    assert found["threadlog_tool_calls_total"][("none", "not_started")] == 1
    assert found["threadlog_event_end_to_end_seconds_count"][("call_to_step",)] == 1


async def test_F103_a_call_is_counted_by_its_command_and_once() -> None:
    tools = StepTools()
    async with World() as world:
        clock = metered(world)
        async with world.tool_runner(tools, "t1"):
            await world.go(*CALL)
            run = await tools.started()
            clock.advance(1_500)
            run.finish()
            await world.until_told("tool.started", "tool.finished")
        async with world.tool_runner(tools, "t2"):
            await world.quiet()
        found = counted(world)
    assert found["threadlog_tool_calls_total"][("read", "ok")] == 1
    assert found["threadlog_tool_call_duration_seconds_sum"] == {("read",): 1.5}


async def test_a_call_whose_runner_died_is_unknown_and_counted_by_who_said_so() -> None:
    tools = StepTools()
    shell = (*CALL[:-1], requested(0, command="make"))
    async with World() as world:
        metered(world)
        await world.go(*shell, tool_started(0, worker="gone"))
        async with world.tool_runner(tools):
            await world.until(lambda: world.bodies(ToolFinished))
            await world.quiet()
        found = counted(world)["threadlog_tool_calls_total"]
    assert sum(n for labels, n in found.items() if "unknown" in labels) == 1


@pytest.mark.parametrize(
    ("after_ms", "count"),
    [(CALL_TIMEOUT_MS + GRACE_MS, 0), (CALL_TIMEOUT_MS + GRACE_MS + 1, 1)],
)
async def test_a_started_call_is_orphaned_once_its_deadline_has_passed(
    after_ms: int, count: int
) -> None:
    async with World() as world:
        await world.go(*CALL)
        open_call = world.state()
        await world.go(tool_started(0, worker="gone"))
        orphans, started = Orphans(), world.state()
    assert orphans.count(0, [open_call]) == 0
    assert orphans.count(1_000, [started]) == 0
    assert orphans.count(1_000 + after_ms, [started]) == count
    assert orphans.count(2_000 + after_ms, [ThreadState(started.tenant_id, thread_id(7))]) == 0
    assert orphans.count(3_000 + after_ms, [started]) == 0, "it is seen anew"
