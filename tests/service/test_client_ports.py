"""One suite for every way to the services: in process, through the socket, over HTTP with a key.

What a command line does, it does by these ports alone: so it does the same every way.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.embedded import DEADLINE_S, MODEL, InstantTools, scripted
from tests.helpers.fakes import StepModel, cli, reply
from tests.helpers.ways import WAYS, Way, ways_to
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.errors import (
    ConflictError,
    MismatchError,
    NotFoundError,
    RejectedError,
    TurnOpenError,
    VoidError,
)
from threadlog.events.content import BlobRef, FilePart, ImagePart, TextPart, Usage
from threadlog.events.envelope import Event
from threadlog.events.thread import Limits, Workspace
from threadlog.events.tool import ToolFinished
from threadlog.events.turn import TurnFinished
from threadlog.ids import NO_POSITION, CallId, EventId, Seq, ThreadId, TurnId, derive
from threadlog.limits import INLINE_BYTES_MAX, PAGE_BYTES_MAX
from threadlog.ports.model import Delta
from threadlog.ports.notify import LiveDelta
from threadlog.ports.tools import ToolCall, ToolResult, WorkspaceRef
from threadlog.ports.views import StoredEvent
from threadlog.queries.reading import Reader

BLOB = BlobRef(sha256="ab" * 32, bytes=3, media_type="image/png")
NONE = ThreadId(derive("none"))
EVERYTHING = NewThread(
    ThreadSettings(
        model=MODEL,
        thinking="high",
        system_prompt="be brief",
        tools=("cli",),
        limits=Limits(output_tokens_max=9, call_timeout_ms=1_000, steps_max=3),
        workspace=Workspace(kind="attached", path="/srv/project"),
    ),
    "a title",
    NewMessage(
        (
            TextPart(text="grüße \u2028 \x00"),
            ImagePart(blob=BLOB),
            FilePart(name="a b.txt", blob=BLOB),
        )
    ),
)
HELLO = NewMessage((TextPart(text="hello"),))


def new(text: str = "go") -> NewThread:
    return NewThread(ThreadSettings(model=MODEL), message=NewMessage((TextPart(text=text),)))


def replies(*texts: str) -> Any:
    return scripted(
        *(json.dumps({"text": text, "usage": {"input": 3, "output": 1}}) for text in texts)
    )


def plain(stored: StoredEvent | None) -> tuple[Seq | None, str, bytes] | None:
    """What every way shows of an event: positions never leave a gateway."""
    return None if stored is None else (stored.seq, stored.event.event_id, stored.event.data)


async def events(reader: Reader, thread: ThreadId, first: int = 0) -> list[Any]:
    return [plain(stored) async for stored in reader.events(thread, first)]


async def open_turn(reader: Reader, thread: ThreadId) -> TurnId:
    """The turn that is open, once the views have it."""
    async with asyncio.timeout(DEADLINE_S):
        while (turn := (await reader.thread(thread)).open_turn) is None:
            await asyncio.sleep(0.01)
        return turn


async def event_of(reader: Reader, thread: ThreadId, kind: str) -> Event:
    """The first event of this type, once there is one."""
    async with asyncio.timeout(DEADLINE_S), aclosing(reader.follow(thread)) as items:  # type: ignore[type-var]  # a generator
        async for item in items:
            if isinstance(item, StoredEvent) and item.event.type == kind:
                return item.event
    raise AssertionError("it ended")


class EndlessTools(InstantTools):
    """Commands that run until they are told to stop."""

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        await super().run(call, workspace, may_start=may_start)
        await asyncio.Event().wait()
        raise AssertionError("it never ends by itself")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.mark.parametrize("other", ["socket", "http"])
async def test_what_travels_arrives_whole(short_dir: Path, other: Way) -> None:
    found: list[Any] = []
    for name, by in (("a", "in process"), ("b", other)):
        (short_dir / name).mkdir()
        async with ways_to(short_dir / name, StepModel()) as ways:
            commands: Any = ways.commands(by)  # type: ignore[arg-type]  # of the tuple above
            done = await commands.create_thread(EVERYTHING, key='a key, with "quotes" and \\')
            settings = ThreadSettings(tools=(), limits=Limits(steps_max=1))
            configured = await commands.configure(done.thread_id, settings, key="c")
            sent = await commands.send_message(done.thread_id, HELLO, key="m")
            stored = [s async for s in ways.runtime.reader.events(done.thread_id)]
            inputs = [
                (s.event.event_id, s.event.type, s.event.body.model_copy(update={"base_seq": 0}))
                for s in stored
                if s.event.type in ("thread.created", "thread.configured", "message.received")
            ]
            assert [done.event_id, configured.event_id, sent.event_id] == [i[0] for i in inputs[2:]]
            found.append((inputs, done.seq))
    assert found[0] == found[1]
    assert len(found[0][0]) == 5


async def test_the_same_key_is_the_same_input(short_dir: Path, way: Way) -> None:
    async with ways_to(short_dir, replies("done")) as ways:
        commands = ways.commands(way)
        first = await commands.create_thread(new(), key="k")
        again = await commands.create_thread(new(), key="k")
        assert (first.event_id, first.seq) == (again.event_id, again.seq)
        with pytest.raises(MismatchError):
            await commands.create_thread(new("something else"), key="k")
        with pytest.raises(RejectedError):
            await commands.create_thread(new(), key="x" * 257)


async def test_an_error_is_the_same_every_way(short_dir: Path, way: Way) -> None:
    model = StepModel()
    async with ways_to(short_dir, model) as ways:
        commands, reader = ways.commands(way), ways.reader(way)
        sent = await commands.create_thread(new(), key="k")
        await model.asked()
        turn = await open_turn(reader, sent.thread_id)
        with pytest.raises(TurnOpenError):
            await commands.send_message(sent.thread_id, replace(HELLO, delivery="reject"), key="r")
        with pytest.raises(NotFoundError):
            await commands.send_message(NONE, HELLO, key="m")
        with pytest.raises(NotFoundError):
            await reader.thread(NONE)
        with pytest.raises(RejectedError):
            await commands.send_message(
                sent.thread_id, replace(HELLO, delivery="next_step"), key="n"
            )
        with pytest.raises(ConflictError):
            await commands.cancel(sent.thread_id, TurnId(derive("none")), key="c")
        await commands.cancel(sent.thread_id, turn, key="d")
        with pytest.raises(VoidError):
            await commands.cancel(sent.thread_id, turn, key="e")


async def test_a_call_alone_is_cancelled(short_dir: Path, way: Way) -> None:
    model = StepModel()
    async with ways_to(short_dir, model, EndlessTools()) as ways:
        commands, reader = ways.commands(way), ways.reader(way)
        sent = await commands.create_thread(new(), key="k")
        (await model.asked()).answer(reply("", cli("ls")))
        requested = await event_of(reader, sent.thread_id, "tool.requested")
        turn, call = await open_turn(reader, sent.thread_id), CallId(requested.event_id)
        await commands.cancel(sent.thread_id, turn, call, key="c")
        finished = await event_of(reader, sent.thread_id, "tool.finished")
        assert isinstance(finished.body, ToolFinished)
        assert (finished.body.call_id, finished.body.outcome) == (call, "cancelled")
        (await model.asked()).answer(reply("so be it"))


async def test_a_turn_is_followed_piece_by_piece(short_dir: Path, way: Way) -> None:
    model = StepModel()
    async with ways_to(short_dir, model) as ways, asyncio.timeout(DEADLINE_S):
        sent = await ways.commands(way).create_thread(new(), key="k")
        exchange = await model.asked()
        shown: list[StoredEvent | LiveDelta] = []
        async with aclosing(ways.reader(way).follow(sent.thread_id)) as items:  # type: ignore[type-var]  # a generator
            async for item in items:
                shown.append(item)
                if isinstance(item, StoredEvent) and item.event.type == "step.started":
                    for text in ("all ", "is ", "well"):
                        exchange.on_delta(Delta("text", text))
                    exchange.answer(reply("all is well"))
                if isinstance(item, StoredEvent) and isinstance(item.event.body, TurnFinished):
                    break
        accepted = [item for item in shown if isinstance(item, StoredEvent)]
        assert [s.seq for s in accepted] == list(range(len(accepted)))
        assert list(map(plain, accepted)) == await events(ways.runtime.reader, sent.thread_id)
        assert "".join(i.text for i in shown if isinstance(i, LiveDelta)) == "all is well"


async def test_the_result_of_a_turn(short_dir: Path, way: Way) -> None:
    long = "x" * (INLINE_BYTES_MAX + 1)
    model = StepModel()
    async with ways_to(short_dir, model) as ways:
        commands, reader = ways.commands(way), ways.reader(way)
        sent = await commands.create_thread(new(), key="k")
        exchange = await model.asked()
        assert await reader.find_result(sent.thread_id, sent.event_id, sent.seq) is None
        waiting = asyncio.create_task(reader.turn_result(sent.thread_id, sent.event_id, sent.seq))
        exchange.answer(reply(long, usage=Usage(input=3, output=1)))
        result = await asyncio.wait_for(waiting, DEADLINE_S)
        assert (result.verdict, result.answer, result.steps) == ("completed", long, 1)
        assert result.usage is not None
        assert result.usage.input == 3
        known = await ways.runtime.reader.find_result(sent.thread_id, sent.event_id, sent.seq)
        assert result == known


async def test_every_read_shows_the_same(short_dir: Path, way: Way) -> None:
    async with ways_to(short_dir, replies(*"abcd")) as ways:
        here, there = ways.runtime.reader, ways.reader(way)
        threads = [await ways.runtime.turn(text) for text in ("one", "two", "three")]
        last = threads[-1].thread_id
        tenant = there.tenant
        for before in (None, 1):
            rows = [
                await r.views.threads(
                    tenant,
                    limit=2,
                    before=None
                    if before is None
                    else (await r.views.threads(tenant, limit=before))[-1].place,
                )
                for r in (here, there)
            ]
            assert [replace(r, position=NO_POSITION) for r in rows[0]] == [
                replace(r, position=NO_POSITION) for r in rows[1]
            ]
        everything = await events(here, last)
        assert await events(there, last) == everything
        assert await events(there, last, 3) == everything[3:]
        assert await events(there, last, 99) == []
        for first, end, limit in ((0, 3, 9), (2, 9**9, 2), (4, 4, 1), (99, 100, 5)):
            pages = [
                [
                    plain(s)
                    for s in await r.views.events(
                        tenant, last, first=Seq(first), last=Seq(end), limit=limit
                    )
                ]
                for r in (here, there)
            ]
            assert pages[0] == pages[1]
        for name in (everything[4][1], derive("none")):
            found = [plain(await r.views.find(tenant, last, EventId(name))) for r in (here, there)]
            assert found[0] == found[1]
        for limit in (2, 50):
            for direction in ("ancestors", "descendants"):
                causes = [
                    [
                        plain(s)
                        for s in await r.views.causes(
                            tenant,
                            last,
                            EventId(everything[4][1]),
                            direction,
                            limit=limit,
                        )
                    ]
                    for r in (here, there)
                ]
                assert causes[0] == causes[1]
                assert causes[0]
        for group in ((), ("model",), ("thread", "turn"), ("day", "model")):
            for only in (None, last):
                sums = [await r.views.usage(tenant, group, only) for r in (here, there)]
                assert list(sums[0]) == list(sums[1])
                assert sums[0]


async def test_void_events_are_shown_apart(short_dir: Path, way: Way) -> None:
    model = StepModel()
    async with ways_to(short_dir, model) as ways:
        commands, here, there = ways.commands(way), ways.runtime.reader, ways.reader(way)
        sent = await commands.create_thread(new(), key="k")
        await model.asked()
        turn = await open_turn(there, sent.thread_id)
        await commands.cancel(sent.thread_id, turn, key="d")
        with pytest.raises(VoidError):
            await commands.cancel(sent.thread_id, turn, key="e")
        voids = [await r.views.voids(r.tenant, sent.thread_id, limit=9) for r in (here, there)]
        assert [(plain(s), s.void) for s in voids[0]] == [(plain(s), s.void) for s in voids[1]]
        [void] = voids[0]
        found = await there.views.find(there.tenant, sent.thread_id, void.event.event_id)
        assert found is not None
        assert (found.seq, found.void) == (None, void.void)


async def test_a_thread_that_is_longer_than_a_page_is_whole(short_dir: Path, way: Way) -> None:
    text = "y" * (INLINE_BYTES_MAX - 1_024)
    async with ways_to(short_dir, StepModel()) as ways:
        commands = ways.commands(way)
        sent = await commands.create_thread(new(text), key="k")
        for n in range(2 * PAGE_BYTES_MAX // len(text)):
            await commands.send_message(
                sent.thread_id, NewMessage((TextPart(text=text),)), key=f"m{n}"
            )
        everything = await events(ways.runtime.reader, sent.thread_id)
        assert sum(len(data) for _, _, data in everything) > 2 * PAGE_BYTES_MAX
        assert await events(ways.reader(way), sent.thread_id) == everything


async def test_what_is_followed_from_beyond_the_head_begins_there(
    short_dir: Path, way: Way
) -> None:
    async with ways_to(short_dir, replies("a", "b")) as ways, asyncio.timeout(DEADLINE_S):
        first = await ways.runtime.turn("one")
        wanted = first.seq + 3
        following = asyncio.create_task(_first_event(ways.reader(way), first.thread_id, wanted))
        await ways.runtime.turn("two", first.thread_id)
        assert (await following).seq == wanted


async def _first_event(reader: Reader, thread: ThreadId, first: int) -> StoredEvent:
    async with aclosing(reader.follow(thread, first)) as items:  # type: ignore[type-var]  # a generator
        async for item in items:
            if isinstance(item, StoredEvent):
                return item
    raise AssertionError("it ended")
