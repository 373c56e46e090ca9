"""What every answer of a gateway must be, and a gateway on TCP that is asked byte by byte."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.helpers.gateway_world import TOKEN, gateway_ports
from tests.helpers.raw_http import Answer, Client, loopback
from tests.helpers.service_world import World
from threadlog.api.problems import PROBLEM_TYPE, PROBLEMS
from threadlog.gateway.app import create_app
from threadlog.gateway.edge import Edge
from threadlog.gateway.large import Held
from threadlog.gateway.ports import GatewayOptions, GatewayPorts
from threadlog.gateway.server import GatewayServer
from threadlog.ids import TenantId
from threadlog.ports.views import Views

MODEL = {"provider": "scripted", "name": "small"}
Json = dict[str, Any]
_MEMBERS = {"type", "title", "status", "detail", "instance", "code", "retryable", "trace_id"}
_OPTIONAL = {"limit", "oldest_seq", "head_seq"}


def problem_in(status: int, headers: Mapping[str, str], body: bytes) -> Json:
    """The problem that this answer is, which is whole and fits the table of problems."""
    assert headers["content-type"] == PROBLEM_TYPE
    problem: Json = json.loads(body)
    assert {*_MEMBERS, "errors"} <= set(problem) <= {*_MEMBERS, *_OPTIONAL, "errors"}
    code = problem["code"]
    assert code in PROBLEMS
    assert problem["type"] == f"urn:threadlog:problem:{code}"
    assert problem["status"] == status
    assert problem["retryable"] == PROBLEMS[code].retryable
    assert problem["title"]
    assert problem["detail"]
    assert all(set(each) == {"field", "message"} for each in problem["errors"])
    return problem


def routes_of(app: object) -> list[tuple[str, str]]:
    """(method, path) of every route that this application has."""
    assert isinstance(app, Edge)
    inner = app._app
    assert isinstance(inner, FastAPI)
    return sorted((m, r.path) for r in _flat(inner.routes) for m in r.methods or () if m != "HEAD")


def _flat(routes: Sequence[object]) -> Iterator[APIRoute]:
    """The framework keeps the routes of a router that was included behind one of its own."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        else:
            yield from _flat(vars(route)["original_router"].routes)


@dataclass(slots=True)
class Live:
    """A gateway that serves on TCP, over memory adapters."""

    world: World
    ports: GatewayPorts
    port: int
    waits: Counter[TenantId]
    """Requests that wait, by tenant."""
    streams: Counter[TenantId]
    held: Held

    async def raw(self, data: bytes) -> Answer:
        """What comes back for these bytes, on a connection of their own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        client = Client(reader, writer)
        try:
            await client.send(data)
            return await client.answer()
        finally:
            client.close()

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        *,
        token: str | None = TOKEN,
    ) -> Answer:
        """The answer to one request, whose target and headers are sent as they are."""
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", "Connection: close"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")
        return await self.raw(head + (body or b""))

    async def thread(self, token: str = TOKEN, **more: Any) -> str:
        """A thread that the tenant of this token has, and that is to be seen."""
        kind = [("Content-Type", "application/json")]
        body = json.dumps({"settings": {"model": MODEL}, **more}).encode()
        made = await self.ask("POST", "/v1/threads", body, kind, token=token)
        assert made.status == 202, made
        answer = json.loads(made.body)
        path = f"/v1/threads/{answer['thread_id']}?receipt={answer['receipt']}"
        seen = await self.ask("GET", path, token=token)
        assert seen.status == 200, seen
        return str(answer["thread_id"])

    async def end(self) -> int:
        """How far the log goes."""
        return await self.world.log.end()


async def deaf(port: int, data: bytes, buffer_bytes: int = 4_096) -> socket.socket:
    """A client that has sent these bytes and reads nothing; the system takes so much for it."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    client.setblocking(False)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, data)
    return client


@asynccontextmanager
async def live(
    options: GatewayOptions | None = None, *, views: Views | None = None
) -> AsyncIterator[Live]:
    """A gateway on a port of loopback. `views`: others than those of its world."""
    async with World() as world:
        ports = gateway_ports(world, options)
        ports = ports if views is None else replace(ports, views=views)
        listener = loopback()
        port = listener.getsockname()[1]
        app = create_app(ports)
        assert isinstance(app, Edge)
        state = app._app.state  # type: ignore[attr-defined]  # the edge holds the application
        server = GatewayServer(app, [listener], grace_s=1.0, stopping=ports.stopping)
        try:
            yield Live(world, ports, port, state.waits, state.streams, state.held)
        finally:
            await server.stop()


@dataclass(slots=True)
class Stall:
    """The longest time for which the loop did nothing else."""

    longest_ms: float = 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Stall]:
    """Measures the loop while the block runs; what the test itself computes is in it, too."""
    found, loop = Stall(), asyncio.get_running_loop()

    async def watch() -> None:
        before = loop.time()
        while True:
            await asyncio.sleep(0.001)
            now = loop.time()
            found.longest_ms = max(found.longest_ms, (now - before) * 1_000 - 1)
            before = now

    watching = asyncio.create_task(watch())
    try:
        yield found
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
