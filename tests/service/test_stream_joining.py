"""Joining a stream while something happens: each race of the live stream, one at a time.

Source: SURFACES 4, the order on joining.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tests.helpers.events import LOCAL, thread_id
from tests.helpers.gateway_world import TOKEN, asking, gateway_ports
from tests.helpers.raw_http import loopback
from tests.helpers.service_world import World
from tests.helpers.sse_client import SseFrame, SseStream, sse
from tests.helpers.thread_events import (
    configured,
    created,
    message,
    responded,
    step_started,
    turn_of,
    turn_started,
)
from tests.unit.telemetry.test_metrics import samples
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.gateway.app import create_app
from threadlog.gateway.meter import GatewayMeter, NoGatewayMeter
from threadlog.gateway.server import GatewayServer
from threadlog.ids import Seq, TenantId, ThreadId, TurnId
from threadlog.ports.notify import Frame, LiveDelta, Notify, SoFar
from threadlog.ports.views import StoredEvent, ThreadRow, Views
from threadlog.telemetry.gateway import HttpMeter
from threadlog.telemetry.metrics import Metrics

OPENED = (created(), configured(), message(), turn_started())
SOON_S = 5.0


@dataclass
class LateViews:
    """Views in which an event lands after a client has read its range, before it is followed."""

    world: World
    ranged: asyncio.Event = field(default_factory=asyncio.Event)
    rows: int = 0

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        self.rows += 1
        if self.rows > 1:
            await self.ranged.wait()
            await self.world.go(step_started())
            await self.world.views.wait(await self.world.log.end())
        return await self.world.views.thread(tenant, thread)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        views = self.world.views
        found = await views.events(tenant, thread, first=first, last=last, limit=limit)
        self.ranged.set()
        return found


@dataclass
class LandingViews:
    """Views in which an event lands while a client's range is on its way to it.

    Others have seen the event by then. A client begins with a small page, a follower does not.
    """

    world: World
    head: int = -1
    is_seen: asyncio.Event = field(default_factory=asyncio.Event)

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self.world.views.thread(tenant, thread)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        views = self.world.views
        found = await views.events(tenant, thread, first=first, last=last, limit=limit)
        if first == self.head + 1 and limit <= 4 and not self.is_seen.is_set():
            await self.world.go(step_started())
            await self.is_seen.wait()
        return found


@dataclass
class TellingViews:
    """Views that are slow to answer: what is told of a response comes before they have."""

    world: World
    is_telling: bool = False

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self.world.views.thread(tenant, thread)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        views = self.world.views
        found = await views.events(tenant, thread, first=first, last=last, limit=limit)
        if self.is_telling and found:
            self.is_telling = False
            tell(self.world, "a", "b", attempt=(turn_of(self.world.state()).turn_id, 1, 1))
            for _ in range(10):
                await asyncio.sleep(0)
        return found


class LateNotify:
    """As Redis: a listener is heard a moment later, and what is told until then is not its."""

    def __init__(self, inner: MemoryNotify, meanwhile: Callable[[], None]) -> None:
        self._inner = inner
        self._meanwhile = meanwhile

    def publish(self, tenant: TenantId, thread: ThreadId, frame: Frame) -> None:
        self._inner.publish(tenant, thread, frame)

    async def so_far(self, tenant: TenantId, thread: ThreadId) -> SoFar | None:
        return await self._inner.so_far(tenant, thread)

    def listen(self, tenant: TenantId, thread: ThreadId) -> "LateListener":
        return LateListener(lambda: self._inner.listen(tenant, thread), self._meanwhile)


class LateListener:
    """It hears nothing before `heard`."""

    def __init__(
        self, listen: Callable[[], AsyncIterator[Frame]], meanwhile: Callable[[], None]
    ) -> None:
        self._listen = listen
        self._meanwhile = meanwhile
        self._listening: AsyncIterator[Frame] | None = None

    async def heard(self) -> None:
        await asyncio.sleep(0.05)
        self._meanwhile()
        self._listening = self._listen()

    def __aiter__(self) -> "LateListener":
        return self

    async def __anext__(self) -> Frame:
        if self._listening is None:
            await asyncio.Event().wait()
        assert self._listening is not None
        return await anext(self._listening)


@asynccontextmanager
async def gateway(
    world: World,
    *,
    views: object = None,
    notify: Notify | None = None,
    meter: GatewayMeter | None = None,
) -> AsyncIterator[str]:
    """The address of a gateway over this world."""
    ports = replace(gateway_ports(world), meter=meter or NoGatewayMeter())
    ports = replace(ports, views=cast(Views, views or world.views), notify=notify or world.notify)
    listener = loopback()
    server = GatewayServer(create_app(ports), [listener], grace_s=1.0, stopping=ports.stopping)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await server.stop()


@asynccontextmanager
async def joined(address: str, since: int | None = None) -> AsyncIterator[SseStream]:
    """A client of the thread's stream."""
    params = {} if since is None else {"since": since}
    path = f"/v1/threads/{thread_id()}/stream"
    async with sse(address, path, TOKEN, params=params) as stream:
        assert stream.status == 200, stream.body
        yield stream


async def taken(stream: SseStream, is_last: Callable[[SseFrame], bool]) -> list[SseFrame]:
    """Frames up to the one that is asked for."""
    found = []
    async for frame in stream.frames(SOON_S):
        found.append(frame)
        if is_last(frame):
            return found
    raise AssertionError(f"the stream ended: {found}")


def shown(frames: Sequence[SseFrame]) -> list[Any]:
    """Seqs of events, and pieces of text with the number of the next one."""
    told: list[Any] = []
    for frame in frames:
        if not frame.event:
            told.append(int(frame.id or ""))
        elif frame.event in ("partial", "delta"):
            told.append((frame.event, frame.json()["n"], frame.json()["text"]))
    return told


def tell(
    world: World, *pieces: str, first: int = 0, attempt: tuple[TurnId, int, int] | None = None
) -> None:
    """These pieces of the open step's response are told, or of this attempt's."""
    turn = turn_of(world.state())
    turn_id, step, number = attempt or (turn.turn_id, turn.step.number, turn.step.attempt)
    for n, text in enumerate(pieces, first):
        delta = LiveDelta(turn_id, step, number, n, "text", text)
        world.notify.publish(LOCAL, thread_id(), delta)


async def settled(world: World) -> int:
    """The head, once the views have it."""
    await world.views.wait(await world.log.end())
    return world.state().head


async def test_F82_an_event_between_the_range_and_the_follower_is_not_missed() -> None:
    async with World() as world:
        await world.go(*OPENED)
        head = await settled(world)
        async with gateway(world, views=LateViews(world)) as at, joined(at, head) as stream:
            frames = await taken(stream, lambda frame: not frame.event)
        assert shown(frames) == [head + 1]


@dataclass
class HoleyViews:
    """Views that lack an event in the middle, as they never should."""

    world: World

    async def thread(self, tenant: TenantId, thread: ThreadId) -> ThreadRow | None:
        return await self.world.views.thread(tenant, thread)

    async def events(
        self, tenant: TenantId, thread: ThreadId, *, first: Seq, last: Seq, limit: int
    ) -> Sequence[StoredEvent]:
        views = self.world.views
        found = await views.events(tenant, thread, first=first, last=last, limit=limit)
        return [stored for stored in found if stored.seq != 1]


async def test_F103_an_event_that_the_views_lack_is_counted_as_a_gap() -> None:
    metrics = Metrics()
    async with World() as world:
        await world.go(*OPENED)
        head = await settled(world)
        views = HoleyViews(world)
        async with (
            gateway(world, views=views, meter=HttpMeter(metrics)) as at,
            joined(at, -1) as stream,
        ):
            frames = await taken(stream, lambda frame: frame.id == str(head))
        assert 1 not in shown(frames)
    assert samples(metrics)["threadlog_stream_resumes_total"][("gap",)] == 1


async def test_F82_an_event_while_the_range_is_read_is_not_missed() -> None:
    """Listening begins before the range is read."""
    async with World() as world:
        await world.go(*OPENED)
        views = LandingViews(world)
        async with gateway(world, views=views) as at, joined(at) as other:
            views.head = await settled(world)
            for _ in range(2):  # of the range, and of what is live
                await taken(other, lambda frame: frame.event == "fresh")
            async with joined(at, views.head) as stream:
                await taken(other, lambda frame: not frame.event)
                views.is_seen.set()
                frames = await taken(stream, lambda frame: not frame.event)
        assert shown(frames) == [views.head + 1]
        # Else it was only made good for, when the views said that there is more.
        told = [frame.json()["as_of_seq"] for frame in frames if frame.event == "fresh"]
        assert max(told) == views.head


async def test_F82_a_text_that_is_ahead_of_its_step_is_shown_behind_it() -> None:
    async with World() as world:
        await world.go(*OPENED)
        head = await settled(world)
        tell(world, "a", "b")
        async with gateway(world) as at, joined(at) as stream:
            for _ in range(2):  # of the range, and of what is live
                await taken(stream, lambda frame: frame.event == "fresh")
            tell(world, "c", first=2)
            await world.go(step_started())
            frames = await taken(stream, lambda frame: frame.event == "partial")
            tell(world, "d", first=3)
            frames += await taken(stream, lambda frame: frame.event == "delta")
        assert shown(frames) == [head + 1, ("partial", 3, "abc"), ("delta", 3, "d")]


async def test_F82_a_text_that_has_ended_is_not_shown_again() -> None:
    async with World() as world:
        await world.go(*OPENED, step_started())
        tell(world, "a", "b")
        await world.go(responded(text="ab"))
        head = await settled(world)
        async with gateway(world) as at, joined(at, head - 1) as stream:
            frames = await taken(stream, lambda frame: frame.event == "fresh")
            await world.go(message())
            frames += await taken(stream, lambda frame: frame.id == str(head + 1))
        assert shown(frames) == [head, head + 1]


async def test_F82_what_is_told_before_a_listener_is_heard_is_part_of_the_text_so_far() -> None:
    async with World() as world:
        await world.go(*OPENED, step_started())
        await settled(world)
        tell(world, "a")
        notify = LateNotify(world.notify, lambda: tell(world, "b", first=1))
        async with gateway(world, notify=notify) as at, joined(at) as stream:
            frames = await taken(stream, lambda frame: frame.event == "partial")
            tell(world, "c", first=2)
            frames += await taken(stream, lambda frame: frame.event == "delta")
        assert shown(frames) == [("partial", 2, "ab"), ("delta", 2, "c")]


async def test_who_waits_for_a_cursor_is_told_when_the_gateway_stops() -> None:
    """It would hold the stop up for all of its grace, and be cut without an answer."""
    async with World() as world:
        ports = gateway_ports(world)
        async with asking(ports) as client:
            sent = (await client.post("/v1/threads", json={})).json()
            path = f"/v1/threads/{sent['thread_id']}/stream"
            params = {"since": 99, "receipt": sent["receipt"]}
            waiting = asyncio.create_task(client.get(path, params=params))
            await asyncio.sleep(0)
            ports.stopping.set()
            async with asyncio.timeout(5):
                answer = await waiting
            assert (answer.status_code, answer.json()["code"]) == (503, "transient")
            assert "retry-after" in answer.headers


async def test_F82_pieces_that_came_while_events_were_read_stand_before_the_whole() -> None:
    """Else the text that a client has grown is not the one that the response ends with."""
    async with World() as world:
        await world.go(*OPENED, step_started())
        head = await settled(world)
        views = TellingViews(world)
        async with gateway(world, views=views) as at, joined(at, head) as stream:
            for _ in range(2):  # of the range, and of what is live
                await taken(stream, lambda frame: frame.event == "fresh")
            views.is_telling = True
            await world.go(responded())
            frames = await taken(stream, lambda frame: not frame.event)
        assert shown(frames) == [("delta", 0, "a"), ("delta", 1, "b"), head + 1]
