"""The gateway over its socket: what went in at one end is what the in-process commands append."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from tests.helpers.events import LOCAL
from tests.helpers.service_world import World
from tests.helpers.thread_events import MODEL
from threadlog.api.problems import PROBLEM_TYPE
from threadlog.bootstrap.sockets import listen
from threadlog.client.http import HttpCommands
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import (
    ConflictError,
    LockedError,
    MismatchError,
    NotFoundError,
    RejectedError,
    TurnOpenError,
)
from threadlog.events.content import BlobRef, FilePart, ImagePart, TextPart
from threadlog.events.thread import Limits, Workspace
from threadlog.gateway.app import create_app
from threadlog.gateway.server import GatewayServer
from threadlog.ids import ThreadId, TurnId, derive
from threadlog.limits import MESSAGE_BYTES_MAX

BLOB = BlobRef(sha256="ab" * 32, bytes=3, media_type="image/png")
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
HELLO = NewMessage((TextPart(text="hello"),), "reject")


@asynccontextmanager
async def served(world: World, folder: Path) -> AsyncIterator[HttpCommands]:
    """Commands that travel through a socket."""
    commands = Commands(
        world.log, world.views, world.blobs, world.clock, tenant=LOCAL, actor="user:ann"
    )
    server = GatewayServer(commands, listen(folder / "s.sock"), "1", {})
    client = HttpCommands(folder / "s.sock")
    try:
        yield client
    finally:
        await client.close()
        await server.stop()


async def test_what_travels_through_the_socket_arrives_whole(short_dir: Path) -> None:
    direct, remote = World(), World()
    async with direct, remote, served(remote, short_dir) as client:
        commands = Commands(
            direct.log, direct.views, direct.blobs, direct.clock, tenant=LOCAL, actor="user:ann"
        )
        results = []
        for port in (commands, client):
            done = await port.create_thread(EVERYTHING, key="k")
            settings = ThreadSettings(tools=(), limits=Limits(steps_max=1))
            configured = await port.configure(done.thread_id, settings, key="c")
            sent = await port.send_message(done.thread_id, EVERYTHING.message, key="m")  # type: ignore[arg-type]  # it has one
            results.append((done, configured, sent))
        assert results[0] == results[1]
        assert [e.data for e in direct.accepted()] == [e.data for e in remote.accepted()]
        assert [e.event_id for e in direct.accepted()] == [e.event_id for e in remote.accepted()]


async def test_an_error_is_of_the_same_class_at_the_other_end(short_dir: Path) -> None:
    turn = TurnId(derive("none"))
    async with World() as world, served(world, short_dir) as client:
        thread = (await client.create_thread(EVERYTHING, key="k")).thread_id
        with pytest.raises(TurnOpenError):
            await client.send_message(thread, HELLO, key="m")
        with pytest.raises(MismatchError):
            await client.create_thread(NewThread(), key="k")
        with pytest.raises(NotFoundError):
            await client.send_message(ThreadId(derive("none")), HELLO, key="m")
        with pytest.raises(ConflictError):
            await client.cancel(thread, turn, key="c")
        with pytest.raises(RejectedError):
            await client.send_message(thread, replace(HELLO, delivery="next_step"), key="n")


async def test_a_gateway_that_stops_answers_what_it_took(short_dir: Path) -> None:
    async with World() as world:
        commands = Commands(
            world.log, world.views, world.blobs, world.clock, tenant=LOCAL, actor="user:ann"
        )
        path = short_dir / "s.sock"
        server = GatewayServer(commands, listen(path), "1", {})
        client = HttpCommands(path)
        sending = asyncio.create_task(client.create_thread(EVERYTHING, key="k"))
        await world.until(world.told)
        await server.stop()
        done = await sending
        assert done.thread_id in world.states
        with pytest.raises(LockedError):
            await client.create_thread(EVERYTHING, key="k")
        await client.close()


async def problem(
    transport: httpx2.AsyncBaseTransport,
    method: str,
    path: str,
    content: AsyncIterator[bytes] | bytes = b"",
    content_type: str = "application/json",
) -> tuple[int, str]:
    """(status, code) of the problem that the gateway answers with."""
    async with httpx2.AsyncClient(transport=transport, base_url="http://threadlog") as http:
        headers = {"Idempotency-Key": "k", "Content-Type": content_type}
        response = await http.request(method, path, content=content, headers=headers)
    assert response.headers["content-type"] == PROBLEM_TYPE
    document = json.loads(response.content)
    assert document["status"] == response.status_code
    assert document["type"] == f"urn:threadlog:problem:{document['code']}"
    assert document["retryable"] is False
    return response.status_code, document["code"]


def wire(folder: Path) -> httpx2.AsyncHTTPTransport:
    """The way to the gateway that is served in `folder`."""
    return httpx2.AsyncHTTPTransport(uds=str(folder / "s.sock"))


TOO_LONG = 2 * MESSAGE_BYTES_MAX + 1


async def test_a_body_that_is_too_long_is_refused_whether_it_says_so_or_not(
    short_dir: Path,
) -> None:
    async def unsaid(size: int) -> AsyncIterator[bytes]:
        yield b" " * size

    refused = (413, "body_too_large")
    async with World() as world, served(world, short_dir):
        for body in (b" " * TOO_LONG, unsaid(TOO_LONG)):
            assert await problem(wire(short_dir), "POST", "/v1/threads", body) == refused
        for body in (b" " * (TOO_LONG - 1), unsaid(TOO_LONG - 1)):
            assert await problem(wire(short_dir), "POST", "/v1/threads", body) != refused


async def test_a_body_without_an_end_is_read_no_further_than_its_bound() -> None:
    read_bytes = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read_bytes
        while read_bytes < 10 * TOO_LONG:
            read_bytes += 65_536
            yield b" " * 65_536

    async with World() as world:
        commands = Commands(
            world.log, world.views, world.blobs, world.clock, tenant=LOCAL, actor="user:ann"
        )
        here = httpx2.ASGITransport(create_app(commands, "1", {}))
        assert await problem(here, "POST", "/v1/threads", endless()) == (413, "body_too_large")
    assert TOO_LONG <= read_bytes < TOO_LONG + 2 * 65_536


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", b'{"message":{"content":[{"kind":"text","text":"\\ud800"}]}}'),
        ("", b'{"settings":{"system_prompt":"\\ud800"}}'),
        ("", b'{"title":"\\ud800"}'),
        ("/00000000-0000-0000-0000-000000000000/cancel", b'{"turn_id":"nope"}'),
        ("", b'{"settings":{"workspace":{"kind":"managed","path":"/tmp"}}}'),
        ("", b'{"tenant_id":"other"}'),
    ],
)
async def test_what_could_not_be_an_event_is_refused(
    short_dir: Path, path: str, body: bytes
) -> None:
    async with World() as world, served(world, short_dir):
        found = await problem(wire(short_dir), "POST", f"/v1/threads{path}", body)
        assert found == (400, "invalid_request")
        assert await world.log.end() == 0


async def test_what_no_route_takes_is_a_problem_too(short_dir: Path) -> None:
    async with World() as world, served(world, short_dir):
        assert await problem(wire(short_dir), "GET", "/v2/nothing") == (404, "not_found")
        found = await problem(wire(short_dir), "DELETE", "/healthz")
        assert found == (405, "method_not_allowed")
        found = await problem(wire(short_dir), "POST", "/v1/threads", b"{}", "text/plain")
        assert found == (400, "invalid_request")
