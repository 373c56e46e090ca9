"""A test a law, for the laws that the runtime keeps; those of the pure core are in `unit`."""

import hashlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.helpers.embedded import Embedded, InstantTools, embedded, scripted
from tests.helpers.events import LOCAL, OTHER
from tests.helpers.fakes import FaultyLog, StepModel, StepTools, cli, reply
from tests.helpers.gateway_world import OTHER_TOKEN, asking, gateway_ports
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    configured,
    created,
    message,
    requested,
    responded,
    step_started,
    turn_started,
)
from threadlog.events.envelope import Event
from threadlog.events.step import ModelResponded, StepStarted
from threadlog.events.tool import Effect, ToolFinished, ToolStarted
from threadlog.ids import Position, ThreadId, WorkerId, derive
from threadlog.runtime.load import Loader
from threadlog.runtime.prompts import rebuild
from threadlog.thread.fold import fold
from threadlog.thread.snapshot import encode_state, state_hash

START = (created(), configured(model=MODEL), message())
CALL = '{"calls":["make test"],"usage":{"input":3,"output":2}}'
DONE = '{"text":"done","usage":{"input":5,"output":1}}'
VIEWS = ("judgements", "threads", "snapshots", "usage_facts", "dead_letters")


async def seen(runtime: Embedded, thread: ThreadId) -> tuple[object, ...]:
    """What readers and services make of the thread: row, judgements, usage, hash of the state."""
    ports = runtime.services.ports
    await ports.partition.wait(await ports.log.end())
    loader = Loader(ports.views, ports.snapshots)
    loaded = await loader.load(LOCAL, thread, Position(await ports.log.end() + 1))
    return (
        await runtime.reader.thread(thread),
        [(s.position, s.seq, s.event.event_id) async for s in runtime.reader.events(thread)],
        await ports.views.usage(LOCAL, ["turn", "model"]),
        state_hash(encode_state(loaded.state)),
    )


async def test_law_1_everything_but_the_log_may_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    replies = (*[CALL, DONE] * 20, DONE)
    async with embedded(path, scripted(*replies)) as runtime:
        thread = (await runtime.turn("first")).thread_id
        for _ in range(19):
            await runtime.turn("more", thread)
        before = await seen(runtime, thread)
    plain = sqlite3.connect(path)
    for table in VIEWS:
        deleted = plain.execute(f"DELETE FROM {table}").rowcount
        assert deleted or table == "dead_letters"
    plain.execute("UPDATE watermark SET position = 0")
    plain.commit()
    plain.close()
    async with embedded(path, scripted(*replies)) as runtime:
        assert await seen(runtime, thread) == before
        result = await runtime.turn("and now?", thread)
        assert (result.verdict, result.answer) == ("completed", "done")


async def test_F04_no_model_call_before_its_claim_was_acknowledged() -> None:
    """Read back alone is not enough: both are wanted."""
    model = StepModel()
    async with World() as world:
        log = FaultyLog(world.log)
        log.faults.append("unsaid")
        async with world.planner(model, log=log):
            await world.go(*START)
            await world.until(lambda: world.bodies(StepStarted))
            await world.quiet()
            assert not model.sent, "the claim was read back, and not acknowledged"
            log.hurry()
            await model.asked()


async def test_F04_no_model_call_and_no_tool_body_before_its_claim_was_read_back() -> None:
    model, tools = StepModel(), StepTools()
    async with World() as world:
        planner_log, runner_log = FaultyLog(world.log), FaultyLog(world.log)
        for log in (planner_log, runner_log):
            log.faults.extend(["lost", "slow"])
        async with (
            world.planner(model, log=planner_log),
            world.tool_runner(tools, log=runner_log),
        ):
            await world.go(*START)
            await world.until(lambda: len(planner_log.asked) == 2)
            await world.quiet()
            assert not model.sent, "an append failed, the next one is not acknowledged"
            planner_log.hold()
            planner_log.hurry()
            await world.until(lambda: world.bodies(StepStarted))
            await world.quiet()
            assert not model.sent, "the claim was not read back"
            planner_log.let_go()
            (await model.asked()).answer(reply("", cli("make")))
            await world.until(lambda: len(runner_log.asked) == 2)
            await world.quiet()
            assert not tools.runs, "an append failed, the next one is not acknowledged"
            runner_log.hold()
            runner_log.hurry()
            await world.until(lambda: world.bodies(ToolStarted))
            await world.quiet()
            assert not tools.runs, "the claim was not read back"
            runner_log.let_go()
            await tools.started()


async def test_law_3_a_claim_of_another_worker_starts_nothing() -> None:
    """Not even one of an earlier life of this very service: the table of claims is in memory."""
    model, tools = StepModel(), StepTools()
    async with World() as world:
        world.members.join(WorkerId("p0"))
        world.members.join(WorkerId("t0"))
        async with world.planner(model), world.tool_runner(tools):
            await world.go(created(), configured(model=MODEL))
            log = [message(), turn_started(), step_started("p0")]
            await append_at_once(world, *log)
            await world.quiet()
            assert not model.sent
            await append_at_once(world, responded(calls=1), requested(0))
            (await tools.started()).finish()
            await model.asked()
            own = {e.worker for e in world.accepted() if isinstance(e.body, ToolStarted)}
            assert own == {"t1"}


async def append_at_once(world: World, *makers: Maker) -> None:
    """All events in one append, so that no service acts between them."""
    events = []
    state = world.state()
    for maker in makers:
        event = maker(state)
        events.append(event)
        state = fold(state, event)
    await world.log.append(events)


@pytest.mark.parametrize("effect", ["unsafe", "pure", "idempotent"])
async def test_law_4_an_attempt_whose_worker_died_is_never_started_again(effect: Effect) -> None:
    first, second = StepTools(), StepTools()
    call = requested(0, effect=effect)
    async with World() as world:
        await world.go(*START, turn_started(), step_started(), responded(calls=1), call)
        async with world.tool_runner(first, "t1"):
            await first.started()
        async with world.tool_runner(second, "t2"):
            if effect == "unsafe":
                await world.until(lambda: world.bodies(ToolFinished))
                assert world.bodies(ToolFinished)[0].outcome == "unknown"
                assert not second.runs
            else:
                (await second.started()).finish()
                await world.until(lambda: world.bodies(ToolFinished))
        attempts = [run.call.attempt for run in first.runs + second.runs]
        assert attempts == ([1] if effect == "unsafe" else [1, 2])


async def test_law_6_a_step_costs_the_same_at_any_age_and_its_request_is_made_again(
    tmp_path: Path,
) -> None:
    model = scripted(*[CALL] * 30, DONE)
    async with embedded(tmp_path / "log.db", model) as runtime:
        result = await runtime.turn("x" * 1_000)
        assert result.steps == 31
        judged = await runtime.judged(result.thread_id)
        accepted = [event for event, judgement in judged if judgement.void is None]
        claims = [event for event in accepted if isinstance(event.body, StepStarted)]
        assert len(claims) == 31
        sizes = [len(claim.data) for claim in claims]
        assert max(sizes) - min(sizes) <= 8, "but for the digits of counters"
        manifests = [c.body.manifest for c in claims if isinstance(c.body, StepStarted)]
        assert manifests[-1].request_bytes > manifests[0].request_bytes * 4, "the requests grew"
        for claim, manifest in zip(claims, manifests, strict=True):
            again = await rebuild(each_of(accepted), claim, model, runtime.services.ports.blobs)
            assert hashlib.sha256(again).hexdigest() == manifest.request_sha256
            assert len(again) == manifest.request_bytes


async def each_of(events: list[Event]) -> AsyncIterator[Event]:
    for event in events:
        yield event


async def test_law_10_no_body_path_or_header_says_a_tenant() -> None:
    async with World() as world, asking(gateway_ports(world)) as client:
        part = {"kind": "text", "text": "hello"}
        good = {"message": {"content": [part], "delivery": "next_turn"}}
        strange = (
            {**good, "tenant_id": "other"},
            {**good, "tenant": "other"},
            {"message": {**good["message"], "tenant_id": "other"}},
            {"settings": {"tenant_id": "other"}},
        )
        for n, body in enumerate(strange):
            headers = {"Idempotency-Key": f"k{n}"}
            answer = await client.post("/v1/threads", json=body, headers=headers)
            assert answer.status_code == 400, answer.text
            assert "other" not in answer.text, "what was sent is not repeated"
        assert world.told() == [], "nothing was appended"
        headers = {"Idempotency-Key": "k", "X-Tenant": "other", "ce_tenantid": "other"}
        answer = await client.post("/v1/threads", json=good, headers=headers)
        assert answer.status_code == 202, answer.text
        assert {event.tenant_id for event in world.accepted()} == {LOCAL}
        missing = ThreadId(derive("no thread"))
        bodies = [
            (await client.post(f"/v1/threads/{t}/messages", json=good["message"], headers=h))
            for t, h in ((missing, headers), (f"{missing}/other", headers))
        ]
        assert [b.status_code for b in bodies] == [404, 404]
        # The tenant is the credential's: the same request with another's key is another thread.
        headers["Authorization"] = f"Bearer {OTHER_TOKEN}"
        answer = await client.post("/v1/threads", json=good, headers=headers)
        assert answer.status_code == 202, answer.text
        records = [record.event for record in world.log.entries]
        assert {event.tenant_id for event in records if event is not None} == {LOCAL, OTHER}


async def test_F11_one_turn_end_to_end_on_sqlite_in_one_process(tmp_path: Path) -> None:
    tools = InstantTools()
    async with embedded(tmp_path / "log.db", scripted(CALL, DONE), tools) as runtime:
        result = await runtime.turn("repair it")
        assert (result.verdict, result.answer, result.steps) == ("completed", "done", 2)
        judged = await runtime.judged(result.thread_id)
        assert [j.void for _, j in judged] == [None] * len(judged)
        assert [event.type for event, _ in judged] == [
            "thread.created",
            "thread.configured",
            "message.received",
            "turn.started",
            "step.started",
            "model.responded",
            "tool.requested",
            "tool.started",
            "tool.finished",
            "step.finished",
            "step.started",
            "model.responded",
            "step.finished",
            "turn.finished",
        ]
        ids = {event.event_id for event, _ in judged}
        roots = [event.type for event, _ in judged if event.caused_by not in ids]
        assert roots == ["thread.created", "message.received"], "every other one has its cause"
        answered = [e.body for e, _ in judged if isinstance(e.body, ModelResponded)]
        assert len(answered) == 2
        assert len(tools.effects) == 1
        usage = await runtime.services.ports.views.usage(LOCAL, ["thread"])
        assert (usage[0].totals.input, usage[0].totals.output) == (8, 3)
        assert await runtime.services.is_resting()
