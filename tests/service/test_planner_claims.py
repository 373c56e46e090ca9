"""The planner's claims: none is acted on before it was read back, valid and in time."""

import pytest

from tests.helpers.events import thread_id
from tests.helpers.fakes import Fault, FaultyLog, StepModel, TickingClock, reply
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL,
    cancel,
    configured,
    created,
    message,
    responded,
    step_finished,
    step_released,
    step_started,
    turn_finished,
    turn_started,
    unknown,
)
from threadlog.clock import ManualClock
from threadlog.events.step import ModelAttemptFailed, StepReleased, StepStarted
from threadlog.ids import WorkerId
from threadlog.limits import CLAIM_TTL_MS
from threadlog.ports.model import ModelRequest

START = (created(), configured(model=MODEL), message())
END = ["model.responded", "step.finished", "turn.finished"]
REFUSED = ("nope", "{}")
"""A call that starts nothing: the step ends at once, and the next one is claimed with it."""
UNKNOWN = unknown(critical=True)


def claims_asked(log: FaultyLog) -> list[str]:
    """The ids of the claims that were appended, in the order of the appends."""
    return [e.event_id for events in log.asked for e in events if isinstance(e.body, StepStarted)]


async def test_a_turn_starts_claims_and_ends_with_the_answer() -> None:
    model = StepModel()
    async with World() as world, world.planner(model):
        await world.go(*START)
        exchange = await model.asked()
        assert world.told() == ["turn.started", "step.started"]
        exchange.answer(reply("done"))
        await world.until_told("turn.started", "step.started", *END)
        assert world.state().verdict == "completed"


async def test_nothing_is_sent_before_the_claim_was_read_back() -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            log.faults.append("slow")
            await world.go(*START)
            await world.until(lambda: log.asked)
            await world.quiet()
            assert not model.sent, "the append was not acknowledged"
            log.hold()
            log.hurry()
            await world.until_told("turn.started", "step.started")
            assert not model.sent, "the claim was not read back"
            log.let_go()
            await model.asked()


async def test_a_claim_that_an_input_voided_is_decided_again() -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            log.faults.append("slow")
            await world.go(*START)
            await world.until(lambda: log.asked)
            await world.go(configured(system_prompt="be brief"))
            log.hurry()
            (await model.asked()).answer(reply("done"))
            claims = ["turn.started", "step.started!input_since", "step.started"]
            await world.until_told(*claims, *END)
            assert len(model.sent) == 1
            assert b"be brief" in model.sent[0].body


async def test_P10_a_claim_that_comes_back_too_late_is_released_and_its_effect_not_started() -> (
    None
):
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        assert isinstance(world.clock, ManualClock)
        async with world.planner(model, log=log):
            await world.go(created(), configured(model=MODEL))
            await world.quiet()
            log.faults.append("slow")
            await world.go(message())
            await world.until(lambda: log.asked)
            log.hold()
            log.hurry()
            await world.until_told("turn.started", "step.started")
            world.clock.advance(CLAIM_TTL_MS)
            log.let_go()
            (await model.asked()).answer(reply("done"))
            start = ["turn.started", "step.started", "step.released", "step.started"]
            await world.until_told(*start, *END)
            [released] = world.bodies(StepReleased)
            assert (released.reason, released.attempt) == ("late", 1)
            assert len(model.sent) == 1


async def test_the_time_of_a_claim_is_looked_at_last_thing_before_its_effect() -> None:
    model = StepModel()
    async with World() as world:
        # The looks: at the append, at the start, last thing before the effect.
        world.clock = TickingClock(0, CLAIM_TTL_MS - 1, CLAIM_TTL_MS)
        async with world.planner(model):
            await world.go(*START)
            await model.asked()
            start = ["turn.started", "step.started", "step.released", "step.started"]
            await world.until_told(*start)
            assert world.bodies(StepReleased)[0].reason == "late"
            assert len(model.sent) == 1


@pytest.mark.parametrize("fault", ["lost", "late", "unacknowledged", "full"])
async def test_a_claim_whose_append_failed_is_released_and_never_appended_again(
    fault: Fault,
) -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            log.faults.append(fault)
            await world.go(*START)
            exchange = await model.asked()
            await log.deliver_late()
            exchange.answer(reply("done"))
            await world.until(lambda: world.state().verdict == "completed")
            assert len(model.sent) == 1
            assert len(set(claims_asked(log))) == len(claims_asked(log)) == 2
            assert [c.attempt for c in world.bodies(StepStarted)][-1] == 2
            assert world.bodies(StepReleased)[0].reason == "unacknowledged"


async def test_a_claim_that_is_in_the_log_twice_starts_its_effect_once() -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            log.faults.append("doubled")
            await world.go(*START)
            (await model.asked()).answer(reply("done"))
            copies = ["turn.started!turn_open", "step.started!claimed"]
            await world.until_told("turn.started", "step.started", *copies, *END)
            assert len(model.sent) == 1


@pytest.mark.parametrize("comes_in", ["before", "between", "after"])
async def test_an_append_that_comes_late_with_what_led_to_its_claim_starts_nothing(
    comes_in: str,
) -> None:
    """The claim was planned together with the response before it; its release must wait for that.

    `comes_in`: before, while, or after the planner appends the same again.
    """
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            await world.go(*START)
            exchange = await model.asked()
            log.faults.extend(["late", "slow"] if comes_in == "between" else ["late"])
            exchange.answer(reply("", REFUSED))
            await world.until(lambda: len(log.asked) == (3 if comes_in == "between" else 2))
            if comes_in != "after":
                await log.deliver_late()
            log.hurry()
            exchange = await model.asked()
            await log.deliver_late()
            await world.quiet()
            assert len(model.sent) == 2
            asked = claims_asked(log)
            assert len(set(asked)) == len(asked)
            exchange.answer(reply("done"))
            await world.until(lambda: world.state().verdict == "completed")
            assert len(model.sent) == 2


async def test_a_claim_that_comes_after_the_next_one_was_lost_is_given_up() -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            log.faults.extend(["late", "lost"])
            await world.go(*START)
            await world.until(lambda: len(log.asked) == 2)
            await log.deliver_late()
            (await model.asked()).answer(reply("done"))
            await world.until(lambda: world.state().verdict == "completed")
            assert len(model.sent) == 1
            assert len(set(claims_asked(log))) == len(claims_asked(log)) == 3


@pytest.mark.parametrize("batches", [1, 2])
async def test_a_cancel_that_comes_with_the_claim_leaves_nothing_behind(batches: int) -> None:
    """In the next batch: the effect's task is cancelled before it began, and must wake the lane."""
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            await world.go(created(), configured(model=MODEL))
            await world.quiet()
            log.faults.append("slow")
            await world.go(message())
            await world.until(lambda: log.asked)
            log.hold()
            if batches == 1:  # the reader holds another batch: what comes now is the next one
                await world.log.append([created()(world.state(thread_id(1)))])
                await world.quiet()
            log.hurry()
            await world.until(lambda: world.bodies(StepStarted))
            await world.quiet()
            await world.go(cancel())
            log.let_go()
            await world.until_told("step.released", "step.finished", "turn.finished")
            assert world.bodies(StepReleased)[0].reason == "stopping"
            assert world.state().verdict == "cancelled"
            assert not model.sent


async def test_a_claim_that_was_settled_before_it_was_seen_starts_nothing() -> None:
    """Somebody took this planner for dead: its claim and the end of it come in one batch."""
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log):
            await world.go(created(), configured(model=MODEL))
            await world.quiet()
            log.faults.append("slow")
            await world.go(message())
            await world.until(lambda: log.asked)
            log.hold()
            await world.log.append([created()(world.state(thread_id(1)))])
            await world.quiet()
            log.hurry()
            await world.until(lambda: world.bodies(StepStarted))
            await world.quiet()
            await world.go(step_released(settles=True))
            log.let_go()
            (await model.asked()).answer(reply("done"))
            await world.until_told("step.started", *END)
            assert len(model.sent) == 1


async def test_of_a_dead_planner_the_claim_is_settled_and_the_request_asked_again() -> None:
    model = StepModel()
    async with World() as world:
        await world.go(*START, turn_started(), step_started("p0"))
        async with world.planner(model):
            (await model.asked()).answer(reply("done"))
            await world.until_told("step.released", "step.started", *END)
            [released] = world.bodies(StepReleased)
            assert (released.by, released.reason) == ("settlement", "worker_gone")


async def test_the_claim_of_a_living_planner_is_left_alone() -> None:
    model = StepModel()
    async with World() as world:
        world.members.join(WorkerId("p0"))
        await world.go(*START, turn_started(), step_started("p0"))
        async with world.planner(model):
            await world.quiet()
            assert world.told() == []
            await world.go(responded())
            await world.until_told("step.finished", "turn.finished")
            assert not model.sent


async def test_a_step_whose_planners_died_three_times_is_not_tried_again() -> None:
    model = StepModel()
    async with World() as world:
        died = (step_started("p0"), step_released(settles=True))
        await world.go(*START, turn_started(), *died, *died, step_started("p0"))
        async with world.planner(model):
            await world.until_told("step.released", "step.finished", "turn.finished")
            assert world.state().verdict == "error"
            assert not model.sent


async def test_a_drained_planner_lets_its_request_end() -> None:
    model = StepModel()
    async with World() as world, world.planner(model) as planner:
        await world.go(*START)
        exchange = await model.asked()
        exchange.answer(reply("done"))
        await planner.drain(5_000)
        assert world.told() == ["turn.started", "step.started", *END]


async def test_P5_a_drained_planner_says_what_became_of_a_request_that_it_cut_off() -> None:
    model = StepModel()
    async with World() as world, world.planner(model) as planner:
        await world.go(*START)
        exchange = await model.asked()
        await planner.drain(0)
        assert exchange.was_stopped
        assert world.told() == ["turn.started", "step.started", "model.attempt_failed"]
        [failed] = world.bodies(ModelAttemptFailed)
        assert (failed.error_class, failed.retryable) == ("shutdown", True)
        await world.go(message(text="more"))
        await world.quiet()
        assert world.told() == [], "a drained planner claims nothing"


async def test_a_claim_that_comes_back_to_a_drained_planner_is_released() -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log) as planner:
            log.faults.append("slow")
            await world.go(*START)
            await world.until(lambda: log.asked)
            planner.is_draining = True
            log.hurry()
            await world.until_told("turn.started", "step.started", "step.released")
            assert world.bodies(StepReleased)[0].reason == "shutdown"
            assert not model.sent


class BrokenModel(StepModel):
    """Cannot render what a person of this text sent."""

    def render(self, request: ModelRequest) -> bytes:
        if "break" in str(request.messages):
            raise ValueError("a bug of ours")
        return super().render(request)


async def test_an_error_in_one_thread_stops_that_thread_and_no_other_one() -> None:
    model = BrokenModel()
    other = thread_id(1)
    async with World() as world, world.planner(model) as planner:
        await world.go(created(), configured(model=MODEL), message(text="break"))
        await world.go(*START, thread=other)
        (await model.asked()).answer(reply("done"))
        await world.until(lambda: world.state(other).verdict == "completed")
        assert world.state().turn is None
        assert planner.worker.broken == {thread_id()}
        assert not planner.is_busy, "nobody waits for a thread that nothing moves"


async def test_an_append_that_no_log_takes_stops_its_thread_and_keeps_nobody() -> None:
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        async with world.planner(model, log=log) as planner:
            log.faults.append("refused")
            await world.go(*START)
            await world.until(lambda: planner.worker.broken)
            assert not planner.is_busy


async def test_an_adapter_that_breaks_its_word_fails_the_attempt_for_good() -> None:
    model = StepModel()
    async with World() as world, world.planner(model) as planner:
        await world.go(*START)
        (await model.asked()).outcome.set_exception(KeyError("choices"))
        ends = ["model.attempt_failed", "step.finished", "turn.finished"]
        await world.until_told("turn.started", "step.started", *ends)
        assert (world.state().verdict, planner.worker.broken) == ("error", set())


async def test_F09_a_critical_unknown_event_stops_its_thread_without_a_storm() -> None:
    """The outcome of what ran is appended once: a reader that knows the type may accept it."""
    model = StepModel()
    async with World() as world, world.planner(model) as planner:
        await world.go(*START)
        exchange = await model.asked()
        await world.log.append([UNKNOWN(world.state())])
        exchange.answer(reply("done"))
        halted = ["note.added!halted", "model.responded!halted"]
        await world.until_told("turn.started", "step.started", *halted)
        assert not planner.is_busy


async def test_a_turn_that_ended_elsewhere_is_left_alone() -> None:
    model = StepModel()
    world_of = (*START, turn_started(), step_started("p0"), responded())
    async with World() as world:
        await world.go(*world_of, step_finished(), turn_finished())
        async with world.planner(model):
            await world.quiet()
            assert world.told() == []
