"""What is another tenant's answers as what is nobody's: in every route, byte for byte."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import httpx2
import pytest

from tests.helpers.gateway_checks import Json, problem_in, routes_of
from tests.helpers.gateway_world import OTHER_TOKEN, TOKEN, asking, gateway_ports
from tests.helpers.service_world import World
from tests.helpers.tenants import (
    NAMELESS,
    NEW,
    OPEN,
    ROWS,
    SCOPE_OF,
    Names,
    Row,
    Two,
    two_tenants,
)
from threadlog.gateway.app import create_app
from threadlog.gateway.meter import NoGatewayMeter
from threadlog.gateway.ports import GatewayPorts

MATRIX = [(*route, row) for route, rows in ROWS.items() for row in rows]
CHANGING = ("date", "ratelimit", "ratelimit-policy")


class Counting(NoGatewayMeter):
    """Where a tenant was claimed."""

    def __init__(self) -> None:
        self.claimed: list[str] = []

    def stranger(self, where: str) -> None:
        self.claimed.append(where)


@dataclass(slots=True)
class Asked:
    """OTHER asks, in a world where LOCAL has a thread."""

    world: World
    client: httpx2.AsyncClient
    two: Two
    meter: Counting = field(default_factory=Counting)

    async def ask(
        self,
        method: str,
        row: Row,
        names: Names,
        *,
        token: str = OTHER_TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        """The answer to what the row says, with these names."""
        given = {"Authorization": f"Bearer {token}", **(headers or {})}
        body = names.body(row)
        if body is not None:
            given["Content-Type"] = "application/json"
        target = names.text(row.target)
        return await self.client.request(method, target, content=body, headers=given)


def counting_ports(world: World) -> tuple[GatewayPorts, Counting]:
    meter = Counting()
    return replace(gateway_ports(world), meter=meter), meter


@asynccontextmanager
async def asked() -> AsyncIterator[Asked]:
    async with World() as world:
        ports, meter = counting_ports(world)
        async with asking(ports, None) as client:
            bearer = {"Authorization": f"Bearer {OTHER_TOKEN}"}
            made = (await client.post("/v1/threads", json=NEW, headers=bearer)).json()
            await world.views.wait(await world.log.end())
            two = await two_tenants(world, made["thread_id"])
            yield Asked(world, client, two, meter)


def told(answer: httpx2.Response) -> tuple[int, bytes, dict[str, str]]:
    """All that could tell two answers apart, but for the time and what is left of a quota."""
    headers = {k: v for k, v in answer.headers.items() if k not in CHANGING}
    return answer.status_code, answer.content, headers


async def test_F94_every_route_has_its_row() -> None:
    async with World() as world:
        found = routes_of(create_app(gateway_ports(world)))
    assert len(found) == len(set(found))
    assert set(found) == {*ROWS, *NAMELESS, *OPEN}, "a new route: say what it may name of a tenant"
    assert set(SCOPE_OF) == {*ROWS, *NAMELESS}


@pytest.mark.parametrize(
    ("method", "path", "row"), MATRIX, ids=[f"{m} {p} {r.what}" for m, p, r in MATRIX]
)
async def test_F94_what_is_foreign_answers_as_what_is_absent(
    method: str, path: str, row: Row
) -> None:
    async with asked() as gateway:
        two, before = gateway.two, await gateway.world.log.end()
        theirs = await gateway.ask(method, row, two.theirs)
        nobodys = await gateway.ask(method, row, two.nobodys)
        assert told(theirs) == told(nobodys), path
        assert theirs.status_code == row.status
        problem_in(theirs.status_code, theirs.headers, theirs.content)
        foreign = [e for e in gateway.world.log.entries[before:] if e.key.endswith(two.foreign)]
        assert not foreign
        assert row.appends == (await gateway.world.log.end() > before)
        assert "secret" not in theirs.text
        if row.what == "thread" and row.status_own is not None:
            mine = await gateway.ask(method, row, two.theirs, token=TOKEN)
            assert mine.status_code == row.status_own, "the same is there for its own tenant"


async def test_F94_a_blob_of_another_tenant_in_a_message_is_not_to_be_had() -> None:
    async with asked() as gateway:
        own, theirs = gateway.two.theirs.own, gateway.two.theirs.blob
        blob = {"sha256": theirs, "bytes": 8, "media_type": "text/plain"}
        parts = [{"kind": "file", "name": "a", "blob": blob}]
        row = Row("", "/v1/threads/<own>/messages", {"content": parts, "delivery": "next_turn"})
        assert (await gateway.ask("POST", row, gateway.two.theirs)).status_code == 202
        row = Row("", f"/v1/threads/{own}/blobs/{theirs}")
        assert (await gateway.ask("GET", row, gateway.two.theirs)).status_code == 404


async def test_F94_one_key_in_two_tenants_makes_two_threads() -> None:
    async with World() as world, asking(gateway_ports(world), None) as client:
        made = []
        for token in (TOKEN, OTHER_TOKEN):
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "same"}
            answer = await client.post("/v1/threads", json=NEW, headers=headers)
            assert answer.status_code == 202
            made.append(answer.json()["thread_id"])
        assert made[0] != made[1]
        keys = {record.key for record in world.log.entries}
        assert keys == {f"local/{made[0]}", f"other/{made[1]}"}


async def test_F94_lists_and_sums_hold_nothing_of_another_tenant() -> None:
    async with asked() as gateway:
        two = gateway.two
        for target in ("/v1/threads", "/v1/usage?by=thread", "/v1/info", "/v1/models"):
            answer = await gateway.ask("GET", Row("", target), two.theirs)
            assert answer.status_code == 200
            assert two.foreign not in answer.text
        threads = await gateway.ask("GET", Row("", "/v1/threads"), two.theirs)
        assert [t["thread_id"] for t in threads.json()["threads"]] == [two.theirs.own]


@pytest.mark.parametrize("name", ["tenant", "tenant_id"])
async def test_F94_a_tenant_in_a_body_or_a_query_is_refused_and_counted(name: str) -> None:
    async with asked() as gateway:
        two, before = gateway.two, await gateway.world.log.end()
        bodies = [(m, p, r) for m, p, r in MATRIX if r.body is not None and r.what == "thread"]
        own = [(m, replace(r, target=r.target.replace("<thread>", "<own>"))) for m, _, r in bodies]
        for method, row in [*own, ("POST", Row("", "/v1/threads", NEW))]:
            assert row.body is not None
            claiming = replace(row, body={**row.body, name: "local"})
            answer = await gateway.ask(method, claiming, two.theirs)
            problem = problem_in(answer.status_code, answer.headers, answer.content)
            assert (answer.status_code, problem["code"]) == (400, "invalid_request")
            assert gateway.meter.claimed.pop() == "body"
        for route in {*ROWS, *NAMELESS}:
            target = route[1].replace("{thread}", "<own>").replace("{call}", "<call>")
            target = target.replace("{seq}", "0").replace("{sha256}", "<own_blob>")
            body: Json | None = None if route[0] == "GET" else {}
            row = Row("", f"{target}?{name}=local", body)
            answer = await gateway.ask(route[0], row, two.theirs)
            assert answer.status_code == 400, route
            assert gateway.meter.claimed.pop() == "query"
        assert not gateway.meter.claimed
        assert await gateway.world.log.end() == before


@pytest.mark.parametrize(
    "header", ["X-Tenant", "X-Tenant-Id", "X-Org-Id", "ce-tenantid", "ce_tenantid", "Tenant"]
)
async def test_F94_A4_a_tenant_in_a_header_is_ignored_and_counted(header: str) -> None:
    async with asked() as gateway:
        two = gateway.two
        claim = {header: "local"}
        row = Row("", "/v1/threads/<thread>")
        assert told(await gateway.ask("GET", row, two.theirs, headers=claim)) == told(
            await gateway.ask("GET", row, two.nobodys)
        )
        made = await gateway.ask("POST", Row("", "/v1/threads", NEW), two.theirs, headers=claim)
        assert made.status_code == 202
        assert gateway.world.log.entries[-1].key == f"other/{made.json()['thread_id']}"
        assert gateway.meter.claimed == ["header", "header"]


async def test_F86_no_get_changes_anything() -> None:
    async with asked() as gateway:
        two, before = gateway.two, await gateway.world.log.end()
        blobs = dict(gateway.world.blobs.contents)
        for method, path in {*ROWS, *NAMELESS, *OPEN}:
            if method != "GET":
                continue
            target = path.replace("{thread}", two.foreign).replace("{seq}", "4")
            target = target.replace("{sha256}", two.theirs.blob)
            target += "?until=turn" if path.endswith("/stream") else ""
            if path.endswith("/stream"):
                target = target.replace(two.foreign, two.theirs.own)
            token = OTHER_TOKEN if path.endswith("/stream") else TOKEN
            answer = await gateway.ask("GET", Row("", target), two.theirs, token=token)
            assert answer.status_code == 200, (path, answer.text)
        assert await gateway.world.log.end() == before
        assert gateway.world.blobs.contents == blobs


async def test_F86_a_page_token_is_bound_to_its_tenant() -> None:
    """The same place, signed for another tenant: as any text that nobody signed."""
    async with asked() as gateway:
        two = gateway.two
        row = Row("", "/v1/threads?page=<page>")
        mine = await gateway.ask("GET", row, two.theirs, token=TOKEN)
        assert mine.status_code == 200
        bent = replace(two.theirs, page=two.theirs.page[:-1] + "A")
        forged = await gateway.ask("GET", row, bent, token=TOKEN)
        assert (forged.status_code, json.loads(forged.content)["code"]) == (400, "cursor_invalid")
