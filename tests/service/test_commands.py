"""Commands: one idempotency key is one event, and accepted means durable and judged."""

import asyncio
from base64 import b64encode
from dataclasses import replace
from typing import cast

import pytest

from tests.helpers.events import LOCAL, OTHER
from tests.helpers.fakes import FaultyLog, StepModel, reply
from tests.helpers.service_world import World
from tests.helpers.thread_events import (
    MODEL,
    configured,
    responded,
    step_finished,
    step_started,
    turn_finished,
    turn_started,
)
from tests.helpers.wire_validators import validate_completions, validate_messages
from threadlog.adapters.model_api import anthropic_wire, openai_wire
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import (
    ConflictError,
    MismatchError,
    NotFoundError,
    RejectedError,
    TransientError,
    TurnOpenError,
    ViewsBehindError,
    ViewsRebuildingError,
    VoidError,
)
from threadlog.events.content import BlobRef, FilePart, ImagePart, TextPart
from threadlog.events.input import MessageReceived
from threadlog.events.thread import ThreadConfigured
from threadlog.ids import TenantId, ThreadId, TurnId, derive
from threadlog.limits import INLINE_BYTES_MAX, INPUT_WINDOW
from threadlog.ports.log import Log
from threadlog.ports.views import Views

HELLO = NewMessage((TextPart(text="hello"),))
MORE = NewMessage((TextPart(text="more"),), delivery="reject")
THREAD = NewThread(ThreadSettings(model=MODEL), message=HELLO)


def commands(world: World, log: Log | None = None, tenant: TenantId = LOCAL) -> Commands:
    return Commands(
        log or world.log, world.views, world.blobs, world.clock, tenant=tenant, actor="user:ann"
    )


async def new_thread(world: World, new: NewThread = THREAD) -> ThreadId:
    """A thread of these commands."""
    return (await commands(world).create_thread(new, key="new")).thread_id


async def open_turn(world: World) -> tuple[ThreadId, TurnId]:
    """A thread in whose turn a request is under way."""
    thread = await new_thread(world)
    await world.go(turn_started(), step_started(), thread=thread)
    turn = world.state(thread).turn
    assert turn is not None
    await world.views.wait(await world.log.end())
    return thread, turn.turn_id


async def test_a_thread_is_made_with_its_settings_and_message() -> None:
    async with World() as world:
        done = await commands(world).create_thread(THREAD, key="k")
        assert world.told() == ["thread.created", "thread.configured", "message.received"]
        created, settings, message = world.accepted()
        assert (done.event_id, done.seq) == (message.event_id, 2)
        assert (created.caused_by, settings.caused_by, message.caused_by) == (
            None,
            created.event_id,
            None,
        )
        assert {e.actor for e in world.accepted()} == {"user:ann"}


async def test_F03_one_key_is_one_event() -> None:
    async with World() as world:
        first = await commands(world).create_thread(THREAD, key="k")
        assert await commands(world).create_thread(THREAD, key="k") == first
        sent = await commands(world).send_message(first.thread_id, HELLO, key="m")
        assert await commands(world).send_message(first.thread_id, HELLO, key="m") == sent
        assert len(world.bodies(MessageReceived)) == 2


async def test_F03_one_key_at_the_same_time_is_one_event() -> None:
    async with World() as world:
        thread = await new_thread(world)
        sends = [commands(world).send_message(thread, HELLO, key="m") for _ in range(5)]
        assert len({done.seq for done in await asyncio.gather(*sends)}) == 1
        made = [commands(world).create_thread(THREAD, key="k") for _ in range(5)]
        assert len({done.event_id for done in await asyncio.gather(*made)}) == 1
        assert len(world.bodies(MessageReceived)) == 3


@pytest.mark.parametrize(
    "other",
    [
        NewThread(ThreadSettings(model=MODEL), message=MORE),
        NewThread(ThreadSettings(system_prompt="x"), message=HELLO),
        NewThread(ThreadSettings(model=MODEL), message=HELLO, title="x"),
        NewThread(ThreadSettings(model=MODEL)),
    ],
)
async def test_a_key_of_another_thread_is_refused(other: NewThread) -> None:
    async with World() as world:
        await commands(world).create_thread(THREAD, key="k")
        with pytest.raises(MismatchError):
            await commands(world).create_thread(other, key="k")


async def test_a_key_of_a_thread_without_a_message_is_refused_with_one() -> None:
    async with World() as world:
        await commands(world).create_thread(NewThread(ThreadSettings(model=MODEL)), key="k")
        with pytest.raises(MismatchError):
            await commands(world).create_thread(THREAD, key="k")
        assert not [e for e, _ in world.judged if e.type == "message.received"]


async def test_a_key_of_another_body_is_refused() -> None:
    async with World() as world:
        thread = await new_thread(world)
        await commands(world).send_message(thread, HELLO, key="m")
        other = NewMessage((TextPart(text="other"),))
        with pytest.raises(MismatchError):
            await commands(world).send_message(thread, other, key="m")
        sends = [commands(world).send_message(thread, m, key="n") for m in (HELLO, other)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(o).__name__ for o in outcomes] == ["Accepted", "MismatchError"]


async def test_a_repeat_is_answered_also_when_its_first_try_is_unknown() -> None:
    async with World() as world:
        log = FaultyLog(world.log)
        log.faults.extend(["unacknowledged", None, "lost"])
        with pytest.raises(TransientError):
            await commands(world, log).create_thread(THREAD, key="k")
        done = await commands(world, log).create_thread(THREAD, key="k")
        with pytest.raises(TransientError):
            await commands(world, log).send_message(done.thread_id, HELLO, key="m")
        await commands(world, log).send_message(done.thread_id, HELLO, key="m")
        assert len(world.bodies(MessageReceived)) == 2


async def test_law_9_a_command_is_accepted_only_after_its_event_is_durable_and_judged() -> None:
    async with World() as world:
        log = FaultyLog(world.log)
        log.faults.append("slow")
        waiting = asyncio.create_task(commands(world, log).create_thread(THREAD, key="k"))
        await world.until(lambda: log.asked)
        await world.quiet()
        assert not waiting.done()
        log.hurry()
        done = await waiting
        assert world.accepted()[done.seq].event_id == done.event_id


# -- what a thread does not take


async def test_reject_is_refused_while_a_turn_is_open_and_nothing_is_appended() -> None:
    async with World() as world:
        thread, _ = await open_turn(world)
        with pytest.raises(TurnOpenError):
            await commands(world).send_message(thread, MORE, key="m")
        assert world.told() == []
        await world.go(responded(), step_finished(), turn_finished(), thread=thread)
        await world.views.wait(await world.log.end())
        await commands(world).send_message(thread, MORE, key="m")


async def test_of_two_at_once_one_is_refused_by_the_fold() -> None:
    async with World() as world:
        thread = await new_thread(world, replace(THREAD, message=None))
        sends = [commands(world).send_message(thread, MORE, key=key) for key in ("a", "b")]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert sorted(type(o).__name__ for o in outcomes) == ["Accepted", "TurnOpenError"]
        winner = "a" if not isinstance(outcomes[0], Exception) else "b"
        again = await commands(world).send_message(thread, MORE, key=winner)
        assert again in outcomes, "its own repeat is no second message"


async def test_a_delivery_that_is_not_there_yet_is_refused() -> None:
    async with World() as world:
        thread = await new_thread(world)
        steer = replace(HELLO, delivery="next_step")
        with pytest.raises(RejectedError):
            await commands(world).send_message(thread, steer, key="m")
        with pytest.raises(RejectedError):
            await commands(world).create_thread(replace(THREAD, message=steer), key="k")


async def test_a_cancel_is_accepted_once_and_refused_where_nothing_is_open() -> None:
    async with World() as world:
        thread, turn = await open_turn(world)
        first = await commands(world).cancel(thread, turn, key="c")
        assert await commands(world).cancel(thread, turn, key="c") == first
        for key, named in (("d", turn), ("e", TurnId(derive("no such turn")))):
            with pytest.raises(ConflictError):
                await commands(world).cancel(thread, named, key=key)
        assert world.told() == [
            "cancel.requested",
            "cancel.requested!already_cancelled",
            "cancel.requested!wrong_turn",
        ]


async def test_a_void_cancel_stays_void_under_its_key() -> None:
    async with World() as world:
        thread = await new_thread(world)
        turn = TurnId(derive("none"))
        for _ in range(2):
            with pytest.raises(VoidError, match="no_turn"):
                await commands(world).cancel(thread, turn, key="c")
        assert world.told()[-1] == "cancel.requested!no_turn"


async def test_an_input_that_was_looked_up_too_long_ago_is_looked_up_again() -> None:
    async with World() as world:
        thread = await new_thread(world)
        log = FaultyLog(world.log)
        log.faults.append("slow")
        sending = asyncio.create_task(commands(world, log).send_message(thread, HELLO, key="m"))
        await world.until(lambda: log.asked)
        await world.go(*(configured(key=str(n)) for n in range(INPUT_WINDOW + 1)), thread=thread)
        log.hurry()
        done = await sending
        assert world.told() == ["message.received!stale", "message.received"]
        assert done.seq == world.state(thread).head


async def test_a_submitted_input_that_was_judged_stale_is_looked_up_again() -> None:
    """202 must not hide that an input was void: it is sent again with the head of now."""
    async with World() as world:
        thread = await new_thread(world)
        log = FaultyLog(world.log)
        log.faults.append("slow")
        submitted = commands(world, log).submitted
        sending = asyncio.create_task(submitted.send_message(thread, HELLO, key="m"))
        await world.until(lambda: log.asked)
        await world.go(*(configured(key=str(n)) for n in range(INPUT_WINDOW + 1)), thread=thread)
        log.hurry()
        done = await sending
        assert world.told() == ["message.received!stale", "message.received"]
        assert isinstance(done, Accepted)
        assert done.seq == world.state(thread).head


class _Losing:
    """Views that answer until an input was appended, and are away then."""

    def __init__(self, world: World) -> None:
        self._views = world.views

    def __getattr__(self, name: str) -> object:
        return getattr(self._views, name)

    async def reached(self, *_: object) -> None:
        raise ViewsRebuildingError("the views are away")


async def test_F03_what_is_in_the_log_is_accepted_though_nobody_can_judge_it() -> None:
    """Else a client without a key would send it a second time."""
    async with World() as world:
        thread = await new_thread(world)
        world.mark()
        losing = Commands(
            world.log,
            cast(Views, _Losing(world)),
            world.blobs,
            world.clock,
            tenant=LOCAL,
            actor="user:ann",
        )
        settings = ThreadSettings(thinking="low")
        done = await losing.submitted.configure(thread, settings, key="c")
        assert not isinstance(done, Accepted)
        assert world.told() == ["thread.configured"]
        # Where it may be judged stale, the caller is told that nobody knows.
        others = (configured(key=str(n)) for n in range(INPUT_WINDOW + 1))
        await world.log.append([other(world.state(thread)) for other in others])
        with pytest.raises(ViewsBehindError):
            await losing.submitted.send_message(thread, HELLO, key="m")


async def test_settings_are_in_force_from_the_next_step_on() -> None:
    async with World() as world:
        thread = await new_thread(world)
        settings = ThreadSettings(system_prompt="p" * INLINE_BYTES_MAX * 2)
        await commands(world).configure(thread, settings, key="c")
        body = world.bodies(ThreadConfigured)[-1]
        assert isinstance(body.system_prompt, BlobRef)
        assert world.state(thread).config.model == MODEL


async def test_law_10_a_thread_of_another_tenant_is_not_there() -> None:
    async with World() as world:
        thread, turn = await open_turn(world)
        strange = commands(world, tenant=OTHER)
        with pytest.raises(NotFoundError):
            await strange.send_message(thread, HELLO, key="m")
        with pytest.raises(NotFoundError):
            await strange.configure(thread, ThreadSettings(), key="m")
        with pytest.raises(NotFoundError):
            await strange.cancel(thread, turn, key="m")
        assert world.told() == []
        await strange.create_thread(THREAD, key="new")
        tenants = {e.tenant_id for e in world.accepted() if e.thread_id != thread}
        assert tenants == {OTHER}


# -- content


async def test_F20_text_image_and_file_reach_both_providers() -> None:
    """From the command to the request: by reference in the log, whole on the wire."""
    picture, paper = b"\x89PNG picture", b"%PDF-1.7 paper"
    model = StepModel()
    async with World() as world, world.planner(model):
        put = await world.blobs.put(
            LOCAL, [(picture, "image/png"), (paper, "application/pdf"), (b"notes", "text/plain")]
        )
        parts = (
            TextPart(text="look " + "at this " * (INLINE_BYTES_MAX // 2)),
            ImagePart(blob=put[0]),
            FilePart(name="paper.pdf", blob=put[1]),
            FilePart(name="notes.txt", blob=put[2]),
        )
        new = replace(THREAD, message=NewMessage(parts))
        await commands(world).create_thread(new, key="k")
        (await model.asked()).answer(reply("seen"))
        [message] = [e for e in world.accepted() if isinstance(e.body, MessageReceived)]
        assert len(message.data) < INLINE_BYTES_MAX, "contents lie in the blob store"
        [request] = model.rendered
        assert {picture, paper, b"notes"} < set(request.blobs.values())
        openai, anthropic = openai_wire.render(request), anthropic_wire.render(request)
        validate_completions(openai)
        validate_messages(anthropic)
        for body in (openai, anthropic):
            for whole in (b64encode(picture), b64encode(paper), b"notes", b"at this at this"):
                assert whole in body
            assert b"unavailable" not in body


async def test_half_a_character_is_refused_before_it_is_an_event() -> None:
    async with World() as world:
        settings = ThreadSettings(system_prompt="be \udcff")
        with pytest.raises(RejectedError, match="the system prompt is not UTF-8"):
            await commands(world).create_thread(NewThread(settings), key="k")
        message = NewMessage((TextPart(text="\ud800"),))
        with pytest.raises(RejectedError, match="the message is not UTF-8"):
            await commands(world).create_thread(NewThread(message=message), key="k")
        assert await world.log.end() == 0
