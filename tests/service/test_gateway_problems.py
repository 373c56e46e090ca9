"""Whatever goes wrong is told as a problem document, and tells nothing of the inside."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.helpers.gateway_checks import Json, live, problem_in, routes_of
from tests.helpers.gateway_world import OTHER_TOKEN, TOKEN, asking, gateway_ports
from tests.helpers.raw_http import DEADLINE_S
from tests.helpers.service_world import World
from tests.helpers.tenants import NEW, OPEN, ROWS
from threadlog.adapters.memory.views import MemoryViews
from threadlog.errors import (
    CorruptError,
    HistoryTruncatedError,
    LogUnavailableError,
    ThreadlogError,
    ViewsRebuildingError,
)
from threadlog.events.envelope import Event
from threadlog.gateway.app import create_app
from threadlog.gateway.ports import GatewayOptions, GatewayPorts
from threadlog.ids import derive
from threadlog.ports.log import Appender, Receipt
from threadlog.ports.views import ThreadRow

SECRET = "kAnArY of the inside"
TRACE = "0af7651916cd43dd8448eb211c80319c"


class BrokenLog:
    """Implements `ports.log.Appender`: every append ends in this error."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.asked = 0
        self.behind: Appender | None = None

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        assert self.behind is not None
        return await self.behind.append(events)


class BrokenViews(MemoryViews):
    """Every read of a thread ends in this error."""

    error: Exception = ViewsRebuildingError("they are made again")

    async def thread(self, *_: Any) -> ThreadRow | None:
        raise self.error

    async def threads(self, *_: Any, **__: Any) -> Any:
        raise self.error

    async def find(self, *_: Any) -> Any:
        raise self.error

    async def usage(self, *_: Any) -> Any:
        raise self.error


def broken_views(world: World, error: Exception) -> GatewayPorts:
    views = BrokenViews(world.log, world.snapshots)
    views.error = error
    return replace(gateway_ports(world), views=views)


def whole(answer: httpx2.Response) -> Json:
    """The problem that the answer is; it says nothing of the inside."""
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    return problem_in(answer.status_code, answer.headers, answer.content)


def target_of(path: str) -> str:
    made = path.replace("{thread}", derive(1)).replace("{call}", derive(2))
    return made.replace("{seq}", "0").replace("{sha256}", "0" * 64)


@asynccontextmanager
async def a_client(options: GatewayOptions) -> AsyncIterator[httpx2.AsyncClient]:
    async with World() as world, asking(gateway_ports(world, options)) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/threads/", "/v2/threads", "/docs", "/openapi.json", "/v1/x"]
)
async def test_F86_an_unknown_path_is_a_problem(path: str) -> None:
    async with a_client(GatewayOptions(version="1")) as client:
        for method in ("GET", "POST", "DELETE"):
            problem = whole(await client.request(method, path))
            assert (problem["status"], problem["code"]) == (404, "not_found")


async def test_F86_another_method_is_a_problem() -> None:
    async with World() as world:
        ports = gateway_ports(world)
        known = routes_of(create_app(ports))
        async with asking(ports) as client:
            for path in {path for _, path in known}:
                of_path = {m for m, p in known if p == path}
                for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - of_path:
                    answer = await client.request(method, target_of(path))
                    problem = whole(answer)
                    assert (problem["status"], problem["code"]) == (405, "method_not_allowed")
                    allowed = {each.strip() for each in answer.headers["allow"].split(",")}
                    assert allowed - {"HEAD"} == of_path, path


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RuntimeError(SECRET), 500, "internal"),
        (KeyError(SECRET), 500, "internal"),
        (AssertionError(SECRET), 500, "internal"),
        (CorruptError("a record is wrong"), 500, "corrupt"),
        (HistoryTruncatedError("it is gone"), 503, "history_truncated"),
        (ViewsRebuildingError("again"), 503, "views_rebuilding"),
    ],
)
async def test_F86_a_bug_is_a_problem_that_says_nothing_of_it(
    error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with World() as world, asking(broken_views(world, error)) as client:
        for (method, path), _ in ROWS.items():
            body = {"queue": "keep"} if path.endswith("{thread}/cancel") else {}
            body = {"content": "x"} if path.endswith("messages") else body
            query = {"by": "thread"} if path.endswith("usage") else {}
            sent = None if method == "GET" else body
            answer = await client.request(method, target_of(path), json=sent, params=query)
            problem = whole(answer)
            assert (problem["status"], problem["code"]) == (status, code), path
            assert ("retry-after" in answer.headers) == problem["retryable"]
        assert await world.log.end() == 0
    if status == 500:
        assert [r for r in caplog.records if r.name == "threadlog.gateway"], "it is in our log"


async def test_F86_a_bug_is_logged_once_and_its_connection_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = BrokenViews.__new__(BrokenViews)
    broken.error = RuntimeError("a bug")
    async with (
        live(views=broken) as gateway,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}") as client,
    ):
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        problem = whole(await client.get("/v1/threads"))
        assert (problem["status"], problem["code"]) == (500, "internal")
        assert (await client.get("/v1/info")).status_code == 200
    assert [r.getMessage() for r in caplog.records] == ["a request broke off"]


@pytest.mark.parametrize("how", ["half", "whole", "reset"])
async def test_F86_the_end_of_a_stream_is_no_error_however_the_client_goes(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with live() as gateway:
        head = f"GET /v1/threads/{await gateway.thread()}/stream HTTP/1.1\r\nHost: localhost\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        async with asyncio.timeout(DEADLINE_S):
            await reader.readuntil(b"fresh")
            if how == "half":
                writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await reader.read()
        if how == "reset":
            writer.transport.abort()
        writer.close()
    assert not [record.getMessage() for record in caplog.records]


async def test_F81_with_the_broker_away_nothing_is_kept_aside() -> None:
    log = BrokenLog(LogUnavailableError("no broker answers"))
    async with World() as world:
        log.behind = world.log
        async with asking(replace(gateway_ports(world), log=log)) as client:
            headers = {"Idempotency-Key": "k"}
            answer = await client.post("/v1/threads", json=NEW, headers=headers)
            problem = whole(answer)
            assert (problem["status"], problem["code"]) == (503, "log_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
            assert log.asked == 1, "the client tries again, not the gateway"
            log.error = None
            await world.quiet()
            assert await world.log.end() == 0, "nothing was kept for later"
            again = await client.post("/v1/threads", json=NEW, headers=headers)
            assert again.status_code == 202
            assert [event.type for event in world.accepted()].count("thread.created") == 1


async def test_F81_while_the_views_are_rebuilt_reads_say_so_and_threads_are_made() -> None:
    async with World() as world:
        ports = broken_views(world, ViewsRebuildingError("they are made again"))
        async with asking(ports) as client:
            for path in (
                "/v1/threads",
                f"/v1/threads/{derive(1)}",
                f"/v1/threads/{derive(1)}/events",
            ):
                problem = whole(await client.get(path))
                assert (problem["status"], problem["code"]) == (503, "views_rebuilding")
            made = await client.post("/v1/threads", json={**NEW, "message": {"content": "go"}})
            assert made.status_code == 202, made.text
            assert [e.type for e in world.accepted()][-1] == "message.received"
            assert (await client.get("/v1/info")).status_code == 200


async def test_F86_a_quota_says_which_and_for_how_long() -> None:
    options = GatewayOptions(version="1", requests_per_minute=5)
    async with a_client(options) as client:
        for left in (4, 3, 2, 1, 0):
            answer = await client.get("/v1/info")
            assert answer.status_code == 200
            assert answer.headers["ratelimit-policy"] == '"requests";q=5;w=60'
            policy, remaining, resets = answer.headers["ratelimit"].split(";")
            assert (policy, remaining) == ('"requests"', f"r={left}")
            assert 0 <= int(resets.removeprefix("t=")) <= 60
        answer = await client.post("/v1/threads", json=NEW)
        problem = whole(answer)
        assert (problem["status"], problem["code"]) == (429, "quota_exceeded")
        assert problem["limit"] == "requests"
        assert answer.headers["ratelimit-policy"] == '"requests";q=5;w=60'
        resets = answer.headers["ratelimit"].removeprefix('"requests";r=0;t=')
        assert int(answer.headers["retry-after"]) == max(1, int(resets))
        other = await client.get("/v1/info", headers={"Authorization": f"Bearer {OTHER_TOKEN}"})
        assert other.status_code == 200, "another tenant has its own"
        assert (await client.get("/healthz")).status_code == 200


async def test_F86_a_tenant_has_so_many_streams() -> None:
    options = GatewayOptions(version="1", streams_per_tenant=0)
    async with World() as world, asking(gateway_ports(world, options)) as client:
        thread = (await client.post("/v1/threads", json=NEW)).json()["thread_id"]
        await world.views.wait(await world.log.end())
        answer = await client.get(f"/v1/threads/{thread}/stream")
        problem = whole(answer)
        assert (problem["status"], problem["code"]) == (429, "quota_exceeded")
        assert problem["limit"] == "streams"
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("method", "target", "body", "field"),
    [
        ("POST", "/v1/threads", {"title": 1}, "body.title"),
        ("POST", "/v1/threads", {"settings": {"limits": {"turn_steps_max": "1"}}}, None),
        ("POST", "/v1/threads", {"message": {}}, "body.message.content"),
        ("POST", "/v1/threads", {"message": {"content": []}}, "body.message.content"),
        ("POST", "/v1/threads", {"x": 1}, "body"),
        ("POST", "/v1/threads?wait=61", NEW, "query.wait"),
        ("GET", "/v1/threads?limit=0", None, "query.limit"),
        ("GET", "/v1/threads?limit=501", None, "query.limit"),
        ("GET", "/v1/threads?status=gone", None, "query.status"),
    ],
)
async def test_F86_what_does_not_fit_is_named(
    method: str, target: str, body: Json | None, field: str | None
) -> None:
    """FastAPI's own 422 never appears."""
    async with a_client(GatewayOptions(version="1")) as client:
        problem = whole(await client.request(method, target, json=body))
        assert (problem["status"], problem["code"]) == (400, "invalid_request")
        assert problem["errors"]
        assert field in (None, problem["errors"][0]["field"])


async def test_F86_a_problem_names_the_trace_that_the_request_came_with() -> None:
    parent = f"00-{TRACE}-b7ad6b7169203331-01"
    async with a_client(GatewayOptions(version="1")) as client:
        problem = whole(await client.get("/v1/x", headers={"traceparent": parent}))
        assert problem["trace_id"] == TRACE
        assert problem["instance"] == f"urn:threadlog:trace:{TRACE}"
        for bent in ("x", f"{parent}\t", parent.upper(), f"00-{TRACE}-x-01"):
            problem = whole(await client.get("/v1/x", headers={"traceparent": bent}))
            assert (problem["trace_id"], problem["instance"]) == (None, None)


async def test_F86_what_every_answer_carries() -> None:
    async with World() as world:
        ports = gateway_ports(world)
        async with asking(ports, TOKEN) as client:
            for method, path in routes_of(create_app(ports)):
                if (method, path) in OPEN:
                    continue
                sent: Json | None = None if method == "GET" else {}
                answer = await client.request(method, target_of(path), json=sent)
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert "no-store" in answer.headers["cache-control"], path
                assert "server" not in answer.headers


def test_every_error_of_ours_has_a_place_in_this_file() -> None:
    """The families are told apart by class, so that a new one is no silent 500."""
    assert {cls.__name__ for cls in ThreadlogError.__subclasses__()} == {
        "RejectedError",
        "ConflictError",
        "TransientError",
        "CorruptError",
        "ModelError",
    }
