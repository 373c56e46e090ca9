"""The planner's turns: retries, refused calls, limits, cancels, large texts."""

from dataclasses import replace

import pytest

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.fakes import Exchange, SlowBlobs, SlowViews, StepModel, cli, reply
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL,
    cancel,
    configured,
    created,
    message,
    tool_finished,
    tool_started,
    turn_started,
)
from threadlog.clock import ManualClock, SystemClock
from threadlog.events.content import BlobRef, ModelRef, TextPart, ThinkingPart, Usage
from threadlog.events.envelope import Body
from threadlog.events.step import (
    ModelAttemptFailed,
    ModelInterrupted,
    ModelResponded,
    StepFinished,
    StepStarted,
    StopReason,
)
from threadlog.events.thread import Limits
from threadlog.events.tool import ToolFinished, ToolRequested
from threadlog.events.turn import TurnFinished
from threadlog.limits import (
    CALLS_PER_STEP_MAX,
    COMMAND_BYTES_MAX,
    INLINE_BYTES_MAX,
    MODEL_ATTEMPTS_MAX,
    RETRY_CAP_MS,
    STEPS_PER_TURN_MAX,
)
from threadlog.ports.model import Delta, ModelReply

START = (created(), configured(model=MODEL), message())


def verdict(world: World) -> tuple[str, str | None]:
    """Verdict and cause of the last turn."""
    finished: TurnFinished = world.bodies(TurnFinished)[-1]
    return finished.verdict, finished.cause


async def ended(world: World) -> None:
    """The turn has ended and nothing follows."""
    await world.until(lambda: world.bodies(TurnFinished))
    await world.quiet()
    assert world.state().turn is None


# -- retries


async def test_an_attempt_that_failed_is_tried_again_within_its_step() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).fail(retry_after_ms=0)
        (await model.asked()).answer(reply("done"))
        await ended(world)
        retried = ["model.attempt_failed", "step.started"]
        end = ["model.responded", "step.finished", "turn.finished"]
        assert world.told() == ["turn.started", "step.started", *retried, *end]
        assert [s.attempt for s in world.bodies(StepStarted)] == [1, 2]
        assert world.bodies(StepFinished)[0].attempts == 2
        assert model.sent[0].body == model.sent[1].body


async def test_a_retry_keeps_its_attempt_and_due_time_over_a_restart() -> None:
    model = StepModel()
    async with World() as world:
        assert isinstance(world.clock, ManualClock)
        async with world.planner(model):
            await world.go(*START)
            (await model.asked()).fail("rate_limited", retry_after_ms=RETRY_CAP_MS + 1)
            await world.until_told("turn.started", "step.started", "model.attempt_failed")
        [failed] = world.bodies(ModelAttemptFailed)
        assert failed.delay_ms == RETRY_CAP_MS
        assert failed.due_at_ms == world.clock.now_ms() + RETRY_CAP_MS
        world.mark()
        world.clock.advance(RETRY_CAP_MS - 1)
        async with world.planner(model, "p2"):
            await world.quiet()
            assert world.told() == [], "it is not due"
        world.clock.advance(1)
        async with world.planner(model, "p3"):
            await model.asked()
            assert world.told() == ["step.started"]
            assert world.bodies(StepStarted)[-1].attempt == 2


async def test_a_retry_wakes_up_by_itself() -> None:
    model = StepModel()
    async with World() as world:
        world.clock = SystemClock()
        async with world.planner(model):
            await world.go(*START)
            (await model.asked()).fail(retry_after_ms=30)
            (await model.asked()).answer(reply("done"))
            await ended(world)
            assert world.bodies(ModelAttemptFailed)[0].delay_ms == 30


async def test_after_the_last_attempt_the_turn_ends_with_the_error() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        for _ in range(MODEL_ATTEMPTS_MAX):
            (await model.asked()).fail("overloaded", retry_after_ms=0)
        await ended(world)
        assert verdict(world) == ("error", "overloaded")
        assert len(model.sent) == MODEL_ATTEMPTS_MAX
        retryable = [f.retryable for f in world.bodies(ModelAttemptFailed)]
        assert retryable == [True] * (MODEL_ATTEMPTS_MAX - 1) + [False]


async def test_a_failure_for_good_is_not_tried_again() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).fail("unauthenticated", retryable=False)
        await ended(world)
        assert verdict(world) == ("error", "unauthenticated")


async def test_a_cancel_ends_a_turn_that_waits_for_its_retry() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).fail(retry_after_ms=RETRY_CAP_MS)
        await world.until(lambda: world.bodies(ModelAttemptFailed))
        await world.go(cancel())
        await world.until_told("step.finished", "turn.finished")
        assert world.state().verdict == "cancelled"


# -- cancels and steering


async def stream(exchange: Exchange, *pieces: str) -> None:
    for piece in pieces:
        exchange.on_delta(Delta("text", piece))


async def test_a_cancel_in_the_stream_keeps_what_had_come() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        exchange = await model.asked()
        exchange.on_delta(Delta("thinking", "hm"))
        await stream(exchange, "Hello ", "wor")
        await world.go(cancel())
        await world.until_told("model.interrupted", "step.finished", "turn.finished")
        assert exchange.was_stopped
        [interrupted] = world.bodies(ModelInterrupted)
        assert [part.text for part in interrupted.content] == ["hm", "Hello wor"]
        assert interrupted.cause == "cancel"
        assert verdict(world) == ("cancelled", "user:test")


async def test_a_cancel_while_the_reply_is_stored_loses_nothing() -> None:
    """The reply is there and billed: its blob is being stored, and a cancel waits for that."""
    model = StepModel()
    async with World() as world:
        world.blobs = blobs = SlowBlobs()
        async with world.planner(model):
            await world.go(*START)
            exchange = await model.asked()
            exchange.answer(reply("x" * INLINE_BYTES_MAX * 2, usage=Usage(input=7, output=9)))
            await world.quiet()
            await world.go(cancel())
            await world.quiet()
            assert world.told() == []
            blobs.gate.set()
            await world.until_told("model.responded", "step.finished", "turn.finished")
            assert world.state().verdict == "cancelled"
            assert world.bodies(StepFinished)[0].usage == Usage(input=7, output=9)


async def test_a_steering_message_joins_at_the_next_step() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        exchange = await model.asked()
        steer = await world.go(message("next_step", "to the left"))
        await world.quiet()
        assert not exchange.was_stopped
        exchange.answer(reply("first"))
        exchange = await model.asked()
        assert world.bodies(StepStarted)[-1].admits == (steer.event_id,)
        assert b"to the left" in exchange.body
        exchange.answer(reply("second"))
        await ended(world)
        assert verdict(world) == ("completed", None)


async def test_an_interrupt_stops_what_runs_and_is_delivered_first() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        exchange = await model.asked()
        await stream(exchange, "I think")
        steer = message("next_step", "later")
        interrupt = message("interrupt", "stop that")
        await world.go(steer, interrupt)
        exchange = await model.asked()
        await world.until_told("model.interrupted", "step.finished", "step.started")
        assert exchange.body.index(b"stop that") < exchange.body.index(b"later")
        assert b"I think" in exchange.body
        exchange.answer(reply("done"))
        await ended(world)
        assert verdict(world) == ("completed", None)


async def test_a_follow_up_waits_for_the_next_turn() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        exchange = await model.asked()
        await world.go(message(text="and then?"))
        exchange.answer(reply("done"))
        exchange = await model.asked()
        end = ["model.responded", "step.finished", "turn.finished"]
        assert world.told() == [*end, "turn.started", "step.started"]
        assert b"and then?" in exchange.body


# -- calls


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nope", '{"command":"true"}', "unknown_tool"),
        ("cli", "not json", "invalid_arguments"),
        ("cli", '{"command":"true","more":1}', "invalid_arguments"),
        ("cli", '{"command":"read"}', "usage"),
        ("cli", f'{{"command":"{"x" * (COMMAND_BYTES_MAX + 1)}"}}', "too_long"),
        ("cli", f'{{"command":"{"x" * (2 * INLINE_BYTES_MAX)}"}}', "too_long"),
    ],
)
async def test_a_call_that_cannot_start_gets_an_outcome_that_the_model_sees(
    name: str, arguments: str, reason: str
) -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).answer(reply("", (name, arguments)))
        exchange = await model.asked()
        outcome = ["model.responded", "tool.requested", "tool.finished"]
        next_step = ["step.finished", "step.started"]
        assert world.told() == ["turn.started", "step.started", *outcome, *next_step]
        [finished] = world.bodies(ToolFinished)
        assert (finished.outcome, finished.reason, finished.by) == (
            "not_started",
            reason,
            "planner",
        )
        assert f"not started: it was not run ({reason})".encode() in exchange.body


async def test_two_calls_with_one_id_of_the_provider_are_two_calls() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        answer = reply("", cli("true"))
        (await model.asked()).answer(replace(answer, calls=answer.calls * 2))
        await world.until(lambda: len(world.bodies(ToolRequested)) == 2)


async def test_calls_of_a_reply_cut_by_the_limit_are_refused_and_the_verdict_sticks() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).answer(reply("", cli("rm -r b"), stop="length"))
        (await model.asked()).answer(reply("done"))
        await ended(world)
        assert world.bodies(ToolFinished)[0].reason == "truncated"
        assert verdict(world) == ("max_tokens", None)


@pytest.mark.parametrize(("stop", "expected"), [("length", "max_tokens"), ("refusal", "blocked")])
async def test_a_stop_without_calls_ends_the_turn_with_its_verdict(
    stop: StopReason, expected: str
) -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).answer(reply("half a", stop=stop))
        await ended(world)
        assert verdict(world) == (expected, None)


async def test_a_model_that_calls_for_ever_ends_at_the_cap_of_steps() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        for _ in range(STEPS_PER_TURN_MAX):
            (await model.asked()).answer(reply("", ("nope", "{}")))
        await ended(world)
        assert verdict(world) == ("budget", "steps")
        assert world.bodies(TurnFinished)[0].steps == len(model.sent) == STEPS_PER_TURN_MAX


async def test_a_cancel_closes_the_calls_that_never_started_and_waits_for_the_one_that_did() -> (
    None
):
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).answer(reply("", cli("make"), cli("make test")))
        await world.until(lambda: len(world.bodies(ToolRequested)) == 2)
        await world.go(tool_started(0), cancel())
        await world.until_told("tool.finished")
        [closed] = world.bodies(ToolFinished)
        assert (closed.outcome, closed.reason) == ("not_started", "cancelled")
        await world.go(tool_finished(0, "cancelled"))
        await world.until_told("step.finished", "turn.finished")
        assert world.state().verdict == "cancelled"


async def test_a_turn_without_a_model_ends_at_once_and_does_not_spin() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(created(), message())
        await world.until_told("turn.started", "turn.finished")
        assert verdict(world) == ("error", "no_model")


# -- content


def kept(world: World, kind: type[Body]) -> bytes:
    """The first text of the first such event, from the blob store."""
    text = world.bodies(kind)[0].content[0].text
    assert isinstance(text, BlobRef)
    return world.blobs.contents[LOCAL, text.sha256]


@pytest.mark.parametrize(
    "answer",
    [
        reply(content=tuple(ThinkingPart(text="t", signature="s" * 60_000) for _ in range(10))),
        reply("", *(("cli", "{}") for _ in range(CALLS_PER_STEP_MAX + 1))),
    ],
    ids=["signatures over an event's bound", "more calls than a step takes"],
)
async def test_a_reply_that_the_log_cannot_take_fails_and_ends_the_turn(
    answer: ModelReply,
) -> None:
    """It is not asked again, and the thread goes on."""
    model = StepModel()
    async with World() as world, world.planner(model) as planner:
        await world.go(*START)
        (await model.asked()).answer(answer)
        await ended(world)
        assert world.state().verdict == "error"
        assert len(model.sent) == 1
        assert planner.worker.broken == set()
        await world.go(message(text="more"))
        (await model.asked()).answer(reply("done"))
        await ended(world)
        assert world.state().verdict == "completed"


async def test_a_large_text_lies_in_the_blob_store_and_is_sent_again_whole() -> None:
    model = StepModel()
    large = "0123456789" * INLINE_BYTES_MAX
    async with World() as world, world.planner(model):
        await world.go(*START)
        (await model.asked()).answer(reply(large))
        await ended(world)
        [event] = [e for e in world.accepted() if isinstance(e.body, ModelResponded)]
        assert len(event.data) < INLINE_BYTES_MAX
        assert kept(world, ModelResponded) == large.encode()
        await world.go(message(text="more"))
        await model.asked()
    again = StepModel()
    async with world, world.planner(again, "p2"):
        exchange = await again.asked()
        assert exchange.body == model.sent[-1].body, "read from the log, it is the same request"
        assert large.encode() in again.rendered[-1].blobs.values()


async def test_a_request_after_a_restart_is_the_same_as_without() -> None:
    """A planner that read the thread from the log asks byte for byte what the old one asked."""
    model, again = StepModel(), StepModel()
    async with World() as world:
        prompt = configured(model=MODEL, system_prompt="be brief")
        async with world.planner(model):
            await world.go(created(), prompt, message())
            (await model.asked()).answer(reply("", ("nope", "{}")))
            old = await model.asked()
        async with world.planner(again, "p2"):
            new = await again.asked()
            assert new.body == old.body


async def test_F19_model_prompt_tools_and_limits_change_at_the_next_step() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        first = await model.asked()
        other = ModelRef(provider="scripted", name="large")
        await world.go(
            configured(
                model=other,
                system_prompt="in French",
                tools=(),
                limits=Limits(output_tokens_max=99, steps_max=2),
            )
        )
        await world.quiet()
        assert not first.was_stopped, "what runs is not touched"
        first.answer(reply("", ("nope", "{}")))
        second = await model.asked()
        for changed in (b'"model":"large"', b"in French", b'"tools":[]', b"99"):
            assert changed in second.body
            assert changed not in first.body
        second.answer(reply("", ("nope", "{}")))
        await ended(world)
        assert verdict(world) == ("budget", "steps")


async def test_a_queue_that_is_there_at_the_start_becomes_a_turn() -> None:
    model = StepModel()
    async with World() as world:
        await world.go(*START)
        async with world.planner(model):
            (await model.asked()).answer(reply("done"))
            await ended(world)


async def test_a_lane_that_is_about_to_act_stays_in_memory() -> None:
    """Its content is being read when the next thread comes, and there is room for one alone."""
    model, other = StepModel(), thread_id(1)
    world = World()
    world.views = views = SlowViews(world.log, world.snapshots)
    world.lanes_max = 1
    async with world:
        await world.go(*START)
        async with world.planner(model):
            await world.quiet()
            await world.go(created(), configured(model=MODEL), thread=other)
            await world.quiet()
            views.gate.set()
            (await model.asked()).answer(reply("done"))
            await world.until(lambda: world.state().verdict == "completed")
            await world.go(message(), thread=other)
            (await model.asked()).answer(reply("done"))
            await world.until(lambda: world.state(other).verdict == "completed")


async def test_a_turn_that_was_just_opened_goes_on() -> None:
    model = StepModel()
    async with World() as world:
        await world.go(*START, turn_started())
        async with world.planner(model):
            (await model.asked()).answer(
                reply("done", content=(TextPart(text="a"), TextPart(text="b")))
            )
            await ended(world)
