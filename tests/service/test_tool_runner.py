"""The tool-runner: claims, barriers, outcomes, cancels, settlements, stored outputs."""

import pytest

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.fakes import Fault, FaultyLog, SlowBlobs, StepTools
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    Maker,
    cancel,
    message,
    requested,
    responded,
    step_finished,
    step_started,
    tool_closed,
    tool_finished,
    tool_released,
    tool_started,
    turn_finished,
    turn_started,
)
from tests.helpers.threads import CLAIMED
from threadlog.clock import ManualClock
from threadlog.events.content import BlobRef
from threadlog.events.tool import FileChanged, ToolFinished, ToolReleased, ToolStarted
from threadlog.ids import ThreadId, WorkerId
from threadlog.limits import CLAIM_TTL_MS, OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES
from threadlog.ports.tools import FileChange, FileSide, ToolResult

BEFORE: tuple[Maker, ...] = tuple(m for m in CLAIMED if callable(m))
CALL: tuple[Maker, ...] = (*BEFORE, responded(calls=1), requested(0))
RAN = ["tool.started", "tool.finished"]


def calls(*makers: Maker, thread: ThreadId | None = None) -> tuple[Maker, ...]:
    """A turn whose model asked for one call a maker."""
    return (*BEFORE, responded(calls=len(makers)), *makers)


def outcomes(world: World) -> list[tuple[str, str | None]]:
    """Outcome and reason of every call, in the order in which they ended."""
    return [(f.outcome, f.reason) for f in world.bodies(ToolFinished)]


# -- claims


async def test_a_call_is_claimed_run_and_finished() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools):
        await world.go(*calls(requested(0, command="make test")))
        run = await tools.started()
        assert world.told() == ["tool.started"]
        assert (run.call.command, run.call.attempt) == ("make test", 1)
        assert run.call.idempotency_key == run.call.call_id
        run.finish()
        await world.until_told(*RAN)
        [finished] = world.bodies(ToolFinished)
        assert (finished.outcome, finished.output, finished.exit_code) == ("ok", "fine", 0)


async def test_nothing_is_started_before_the_claim_was_read_back() -> None:
    tools = StepTools()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.tool_runner(tools, log=log):
            log.faults.append("slow")
            await world.go(*CALL)
            await world.until(lambda: log.asked)
            await world.quiet()
            assert not tools.runs, "the append was not acknowledged"
            log.hold()
            log.hurry()
            await world.until_told("tool.started")
            assert not tools.runs, "the claim was not read back"
            log.let_go()
            await tools.started()


async def test_P10_a_claim_that_comes_back_too_late_starts_nothing() -> None:
    tools = StepTools()
    async with World() as world:
        log = FaultyLog(world.log)
        assert isinstance(world.clock, ManualClock)
        async with world.tool_runner(tools, log=log):
            log.faults.append("slow")
            await world.go(*CALL)
            await world.until(lambda: log.asked)
            log.hold()
            log.hurry()
            await world.until_told("tool.started")
            world.clock.advance(CLAIM_TTL_MS)
            log.let_go()
            run = await tools.started()
            await world.until_told("tool.started", "tool.released", "tool.started")
            assert run.call.attempt == 2
            assert world.bodies(ToolReleased)[0].reason == "late"


async def test_a_command_whose_setting_up_took_too_long_starts_nothing() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools) as runner:
        assert isinstance(world.clock, ManualClock)
        tools.set_up.clear()
        await world.go(*CALL)
        await world.until(lambda: tools.asked)
        world.clock.advance(CLAIM_TTL_MS)
        tools.set_up.set()
        run = await tools.started()
        await world.until_told("tool.started", "tool.released", "tool.started")
        assert world.bodies(ToolReleased)[0].reason == "late"
        assert [call.attempt for call in tools.asked] == [1, 2]
        assert [run.call.attempt for run in tools.runs] == [2]
        run.finish()
        await world.until(lambda: outcomes(world))
        await world.quiet()
        assert outcomes(world) == [("ok", None)]
        assert not runner.is_busy


@pytest.mark.parametrize("fault", ["lost", "late", "unacknowledged", "full", "doubled"])
async def test_whatever_becomes_of_an_append_an_unsafe_call_starts_once(fault: Fault) -> None:
    tools = StepTools()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.tool_runner(tools, log=log):
            log.faults.append(fault)
            await world.go(*CALL)
            run = await tools.started()
            await log.deliver_late()
            run.finish()
            await world.until(lambda: outcomes(world))
            await world.quiet()
            assert len(tools.runs) == 1
            claims = [e.event_id for a in log.asked for e in a if isinstance(e.body, ToolStarted)]
            assert len(set(claims)) == len(claims)


@pytest.mark.parametrize("fault", ["lost", "late", "unacknowledged", "full", "doubled"])
async def test_whatever_becomes_of_its_append_an_outcome_counts_once(fault: Fault) -> None:
    tools = StepTools()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.tool_runner(tools, log=log) as runner:
            await world.go(*CALL)
            run = await tools.started()
            log.faults.append(fault)
            run.finish()
            await world.until(lambda: outcomes(world))
            await log.deliver_late()
            await world.quiet()
            assert outcomes(world) == [("ok", None)]
            assert not runner.is_busy


async def test_a_cancel_that_comes_with_the_claim_leaves_nothing_behind() -> None:
    tools = StepTools()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.tool_runner(tools, log=log) as runner:
            log.faults.append("slow")
            await world.go(*CALL)
            await world.until(lambda: log.asked)
            log.hold()
            log.hurry()
            await world.until_told("tool.started")
            await world.go(cancel())
            log.let_go()
            await world.until_told("tool.released")
            assert world.bodies(ToolReleased)[0].reason == "stopping"
            assert not tools.runs
            assert not runner.is_busy


# -- which calls run together


async def test_pure_calls_run_together_and_an_unsafe_one_alone() -> None:
    tools = StepTools()
    read = "read a"
    async with World() as world, world.tool_runner(tools):
        await world.go(
            *calls(
                requested(0, effect="pure", command=read),
                requested(1, effect="pure", command=read),
                requested(2, command="make"),
                requested(3, effect="pure", command=read),
            )
        )
        first, second = await tools.started(), await tools.started()
        await world.quiet()
        assert len(tools.runs) == 2, "the unsafe one waits for both"
        first.finish()
        await world.quiet()
        assert len(tools.runs) == 2
        second.finish()
        third = await tools.started()
        await world.quiet()
        assert (third.call.command, len(tools.runs)) == ("make", 3), "the last one waits for it"
        third.finish()
        (await tools.started()).finish()
        await world.until(lambda: len(outcomes(world)) == 4)


async def test_a_refused_call_holds_nobody_up() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools):
        await world.go(*calls(requested(0, gate="refused"), requested(1)))
        run = await tools.started()
        assert run.call.call_id == world.state().turn.step.calls[1].call_id  # type: ignore[union-attr]  # open


async def test_calls_beyond_the_slots_wait_unclaimed_and_none_is_forgotten() -> None:
    """The thread that is first in the queue no longer needs its slot: the next one gets it."""
    tools = StepTools()
    first, second, third = thread_id(1), thread_id(2), thread_id(3)
    async with World() as world, world.tool_runner(tools, slots=1):
        await world.go(*CALL, thread=first)
        run = await tools.started()
        await world.go(*CALL, thread=second)
        await world.quiet()
        await world.go(*CALL, thread=third)
        await world.quiet()
        assert world.told() == [], "claimed only with a slot in hand"
        await world.go(cancel(), tool_closed(0), thread=second)
        run.finish()
        run = await tools.started()
        assert run.workspace.thread_id == third
        run.finish()
        await world.until(lambda: len(outcomes(world)) == 3)


# -- outcomes


async def test_a_long_output_is_kept_whole_and_read_on() -> None:
    tools = StepTools()
    output = b"".join(b"line %d\n" % n for n in range(1, 20_001))
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        run = await tools.started()
        run.finish(ToolResult("ok", output, len(output), exit_code=0))
        await world.until_told(*RAN)
        [finished] = world.bodies(ToolFinished)
        assert isinstance(finished.output_blob, BlobRef)
        assert world.blobs.contents[LOCAL, finished.output_blob.sha256] == output
        assert len(finished.output) < OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES + 300
        assert f"read @{finished.call_id} " in finished.output
        again = f"read @{finished.call_id} 1999:2001"
        end = (step_finished(), step_started(), responded(calls=1))
        await world.go(*end, requested(0, effect="pure", command=again))
        await world.until(lambda: len(outcomes(world)) == 2)
        text = world.bodies(ToolFinished)[1].output
        assert text == "1999|line 1999\n2000|line 2000\n2001|line 2001"
        assert len(tools.runs) == 1, "no process runs for it"


async def test_a_stored_output_of_another_thread_is_not_shown() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        (await tools.started()).finish(ToolResult("ok", b"secret", 6, exit_code=0))
        await world.until_told(*RAN)
        command = f"read @{world.bodies(ToolFinished)[0].call_id} 1:9"
        other = calls(requested(0, effect="pure", command=command))
        await world.go(*other, thread=thread_id(1))
        await world.until_told(*RAN)
        assert "no stored output" in world.bodies(ToolFinished)[1].output


async def test_a_workspace_that_cannot_be_used_is_an_outcome_and_is_tried_again() -> None:
    tools = StepTools(refusal="the folder belongs to root")
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        await world.until_told(*RAN)
        tools.refusal = None
        await world.go(step_finished(), step_started(), responded(calls=1), requested(0))
        (await tools.started()).finish()
        await world.until_told(*RAN)
        assert outcomes(world) == [("error", "refused"), ("ok", None)]
        assert world.bodies(ToolFinished)[0].output == "the folder belongs to root"


async def test_a_path_that_is_no_text_does_not_break_the_thread() -> None:
    tools = StepTools(refusal="no folder /tmp/\udcff")
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        await world.until(lambda: outcomes(world))
        assert world.bodies(ToolFinished)[0].output == "no folder /tmp/?"


async def test_a_runner_that_breaks_off_says_that_it_does_not_know() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools) as runner:
        await world.go(*CALL)
        (await tools.started()).outcome.set_exception(OSError("no descriptor is left"))
        await world.until_told(*RAN)
        assert outcomes(world) == [("unknown", "internal")]
        assert not runner.worker.broken


async def test_files_are_in_the_log_before_the_outcome_that_counts_them() -> None:
    tools = StepTools()
    old, new = FileSide("0" * 64, 3, b"old"), FileSide("1" * 64, 9_000_000, None)
    changes = (FileChange("a.txt", old, new), FileChange("b.txt", None, old))
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        run = await tools.started()
        run.finish(ToolResult("ok", b"", 0, exit_code=0, changes=changes))
        await world.until_told("tool.started", "file.changed", "file.changed", "tool.finished")
        assert world.bodies(ToolFinished)[0].files == 2
        first, second = world.bodies(FileChanged)
        assert (first.path, first.ordinal, second.path, second.ordinal) == ("a.txt", 1, "b.txt", 2)
        assert first.after == BlobRef(
            sha256="1" * 64, bytes=9_000_000, media_type="application/octet-stream"
        )
        assert second.before is None
        assert list(world.blobs.contents.values()) == [b"old"], "what is too large has its hash"
        events = [e for e in world.accepted() if e.type in ("file.changed", "tool.finished")]
        assert {e.workspace_id for e in events} == {run.workspace.workspace_id}


# -- stopping


async def test_a_cancel_of_the_turn_kills_what_runs() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        run = await tools.started()
        await world.go(cancel())
        await world.until_told("tool.finished")
        assert run.was_killed
        assert outcomes(world) == [("cancelled", "cancelled")]


async def test_a_cancel_of_one_call_leaves_the_others_running() -> None:
    tools = StepTools()
    pure = (requested(0, effect="pure"), requested(1, effect="pure"))
    async with World() as world, world.tool_runner(tools):
        await world.go(*calls(*pure))
        first, second = await tools.started(), await tools.started()
        await world.go(cancel(0))
        await world.until_told("tool.finished")
        assert (first.was_killed, second.was_killed) == (True, False)
        second.finish()
        await world.until(lambda: len(outcomes(world)) == 2)


async def test_an_interrupt_kills_what_runs() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        run = await tools.started()
        await world.go(message("interrupt", "stop that"))
        await world.until_told("tool.finished")
        assert run.was_killed


async def test_a_cancel_after_the_command_ended_keeps_its_outcome() -> None:
    tools = StepTools()
    async with World() as world:
        world.blobs = blobs = SlowBlobs()
        async with world.tool_runner(tools) as runner:
            await world.go(*CALL)
            output = b"x" * 100_000
            (await tools.started()).finish(ToolResult("ok", output, len(output), exit_code=0))
            await world.quiet()
            await world.go(cancel())
            await world.quiet()
            assert world.told() == []
            blobs.gate.set()
            await world.until_told("tool.finished")
            assert outcomes(world) == [("ok", None)]
            assert not runner.is_busy


async def test_P5_what_outlives_the_drain_is_killed_and_ends_unknown() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools) as runner:
        await world.go(*CALL)
        run = await tools.started()
        await runner.drain(0)
        assert run.was_killed
        assert world.told() == RAN
        assert outcomes(world) == [("unknown", "shutdown")]


# -- the dead


@pytest.mark.parametrize(("effect", "expected"), [("unsafe", []), ("pure", ["tool.started"])])
async def test_a_dead_runners_call_is_unknown_unless_it_may_be_repeated(
    effect: str, expected: list[str]
) -> None:
    tools = StepTools()
    call = requested(0, effect="pure" if effect == "pure" else "unsafe")
    async with World() as world:
        await world.go(*calls(call), tool_started(0, "t0"))
        async with world.tool_runner(tools):
            settled = "tool.released" if expected else "tool.finished"
            await world.until_told(settled, *expected)
            assert len(tools.runs) == len(expected)
            assert outcomes(world) == ([] if expected else [("unknown", "worker_gone")])


async def test_a_pure_call_whose_runners_died_three_times_is_unknown() -> None:
    tools = StepTools()
    died = (tool_started(0, "t0"), tool_released(0, settles=True))
    async with World() as world:
        await world.go(*calls(requested(0, effect="pure")), *died, *died, tool_started(0, "t0"))
        async with world.tool_runner(tools):
            await world.until_told("tool.finished")
            assert outcomes(world) == [("unknown", "worker_gone")]
            assert not tools.runs


async def test_two_runners_never_work_in_one_workspace() -> None:
    """While another one's call is open none is claimed; then this one goes on."""
    tools = StepTools()
    pure = (requested(0, effect="pure"), requested(1, effect="pure"))
    async with World() as world:
        await world.go(*calls(*pure), tool_started(0, "t0"))
        world.members.join(WorkerId("t0"))
        async with world.tool_runner(tools):
            await world.quiet()
            assert world.told() == [], "it does not even try"
            await world.go(tool_finished(0))
            await tools.started()
            await world.until_told("tool.started")


async def test_commands_of_a_thread_read_from_the_log_are_found() -> None:
    """A lane that was loaded has no commands in memory: each is read by its seq."""
    tools = StepTools()
    async with World() as world:
        await world.go(*calls(requested(0, command="one"), requested(1, command="two")))
        async with world.tool_runner(tools):
            run = await tools.started()
            assert run.call.command == "one"
            run.finish()
            assert (await tools.started()).call.command == "two"


async def test_a_new_turn_runs_in_the_same_lane() -> None:
    tools = StepTools()
    async with World() as world, world.tool_runner(tools):
        await world.go(*CALL)
        (await tools.started()).finish()
        await world.until_told(*RAN)
        await world.go(step_finished(), step_started(), responded(), step_finished())
        await world.go(turn_finished(), message(), turn_started(), step_started())
        await world.go(responded(calls=1), requested(0))
        (await tools.started()).finish()
        await world.until_told(*RAN)
