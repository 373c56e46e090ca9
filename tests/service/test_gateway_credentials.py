"""Who may ask: one valid key in one place, with the scope that the route needs."""

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from tests.helpers.events import LOCAL
from tests.helpers.gateway_checks import problem_in
from tests.helpers.gateway_world import TOKEN, DictKeys, asking, credential, gateway_ports
from tests.helpers.service_world import World
from tests.helpers.tenants import NEW, SCOPE_OF, Route
from threadlog.adapters.keys.file import KeysFile
from threadlog.api.keys import DEFAULT_SCOPES, SCOPES
from threadlog.clock import ManualClock
from threadlog.gateway.ports import GatewayOptions
from threadlog.ids import derive

Headers = list[tuple[str, str]]
ROUTES = sorted(SCOPE_OF)
_MADE_UP = {"{thread}": derive(1), "{call}": derive(2), "{seq}": "0", "{sha256}": "0" * 64}
_COOKIE = "threadlog_key"


def ids_of(route: Route) -> str:
    return " ".join(route)


async def ask(
    client: httpx2.AsyncClient, route: Route, headers: Headers, body: bytes = b"{}"
) -> httpx2.Response:
    """The answer of this route, with made-up ids and these headers."""
    method, target = route
    for name, value in _MADE_UP.items():
        target = target.replace(name, value)
    content = None if method == "GET" else body
    kind = [] if content is None else [("Content-Type", "application/json")]
    return await client.request(method, target, content=content, headers=[*headers, *kind])


def bearer(token: str) -> Headers:
    return [("Authorization", f"Bearer {token}")]


@pytest.mark.parametrize("route", ROUTES, ids=ids_of)
async def test_F94_a_key_without_the_scope_is_refused_by_its_name(route: Route) -> None:
    scope = SCOPE_OF[route]
    keys = DictKeys()
    without = [each for each in SCOPES if each != scope]
    keys.tokens["without"] = credential("0" * 12, LOCAL, *without)
    if scope is not None:
        keys.tokens["alone"] = credential("1" * 12, LOCAL, scope)
    async with World() as world:
        ports = replace(gateway_ports(world), keys=keys)
        async with asking(ports, None) as client:
            answer = await ask(client, route, bearer("without"))
            if scope is None:
                assert answer.status_code < 300
                return
            problem = problem_in(answer.status_code, answer.headers, answer.content)
            assert (answer.status_code, problem["code"]) == (403, "scope_missing")
            assert scope in problem["detail"]
            unread = await ask(client, route, bearer("without"), b"{" * 100)
            assert unread.status_code == 403, "its body is not even looked at"
            assert await world.log.end() == 0
            enough = await ask(client, route, bearer("alone"))
            assert enough.status_code in (200, 202, 400, 404), enough.text


async def test_F94_the_voids_of_a_thread_need_a_scope_of_their_own() -> None:
    keys = DictKeys()
    keys.tokens["reads"] = credential("0" * 12, LOCAL, *(s for s in SCOPES if s != "ops:read"))
    async with (
        World() as world,
        asking(replace(gateway_ports(world), keys=keys), "reads") as client,
    ):
        thread = (await client.post("/v1/threads", json=NEW)).json()["thread_id"]
        await world.views.wait(await world.log.end())
        path = f"/v1/threads/{thread}/events"
        assert (await client.get(path)).status_code == 200
        answer = await client.get(path, params={"voids": 1})
        problem = problem_in(answer.status_code, answer.headers, answer.content)
        assert (answer.status_code, problem["code"]) == (403, "scope_missing")
        assert "ops:read" in problem["detail"]


def presented(keys: KeysFile, clock: ManualClock) -> dict[str, Headers]:
    """Headers with a key that is not valid now, or not the only one, by what is wrong with it."""
    _, good = keys.create(LOCAL, "good", DEFAULT_SCOPES, None)
    _, old = keys.create(LOCAL, "old", DEFAULT_SCOPES, clock.now_ms() + 1_000)
    record, revoked = keys.create(LOCAL, "revoked", DEFAULT_SCOPES, None)
    keys.revoke(record.id)
    clock.advance(10_000)
    unknown = good[:-72] + ("0" * 72)
    named = "Authorization"
    return {
        "missing": [],
        "expired": [(named, f"Bearer {old}")],
        "revoked": [(named, f"Bearer {revoked}")],
        "unknown": [(named, f"Bearer {unknown}")],
        "cut": [(named, f"Bearer {good[:-1]}")],
        "another scheme": [(named, f"Basic {good}")],
        "twice": [(named, f"Bearer {good}"), (named, f"Bearer {good}")],
        "a cookie, too": [(named, f"Bearer {good}"), ("Cookie", f"{_COOKIE}={good}")],
        "two cookies, the last bad": [("Cookie", f"{_COOKIE}={good}; {_COOKIE}=x")],
        "two cookies, the first bad": [("Cookie", f"{_COOKIE}=x; {_COOKIE}={good}")],
        "two headers with a cookie": [("Cookie", f"{_COOKIE}={good}"), ("Cookie", f"{_COOKIE}=x")],
        "a cookie in a second header": [
            (named, f"Bearer {good}"),
            ("Cookie", "a=b"),
            ("Cookie", f"{_COOKIE}={good}"),
        ],
        "a bad cookie": [("Cookie", f"{_COOKIE}=x")],
    }


async def test_F94_whatever_is_wrong_with_a_key_one_body_says_so(tmp_path: Path) -> None:
    clock = ManualClock()
    keys = KeysFile(tmp_path / "keys.json", clock)
    wrong = presented(keys, clock)
    bodies = set()
    async with World() as world:
        ports = replace(gateway_ports(world), keys=keys)
        async with asking(ports, None) as client:
            for route in ROUTES:
                for how, headers in wrong.items():
                    if "cookie" in how and route == ("POST", "/v1/sign-in"):
                        continue  # a cookie is what it gives, and counts for nothing there
                    answer = await ask(client, route, headers)
                    assert answer.status_code == 401, (route, how)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert "ratelimit" not in answer.headers, "nobody's requests are counted"
                    bodies.add(answer.content)
            assert len(bodies) == 1
            assert await world.log.end() == 0
            _, again = keys.create(LOCAL, "again", DEFAULT_SCOPES, None)
            clock.advance(10_000)
            for good in (bearer(again), [("Cookie", f"{_COOKIE}={again}")]):
                assert (await ask(client, ("GET", "/v1/info"), good)).status_code == 200


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (None, "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("https://ours.example", "localhost", 200),
        ("https://ours.example.evil.example", "localhost", 403),
        ("https://evil.example", "localhost", 403),
        ("null", "localhost", 403),
        ("", "localhost", 403),
        ("http://localhost:1", "localhost", 403),
        (None, "evil.example", 403),
        ("http://evil.example", "evil.example", 403),
    ],
)
async def test_F94_a_page_of_another_origin_is_refused_whatever_it_carries(
    origin: str | None, host: str, status: int
) -> None:
    options = GatewayOptions(version="1", origins=("https://ours.example",), hosts=("localhost",))
    headers = {"Host": host} if origin is None else {"Host": host, "Origin": origin}
    async with World() as world, asking(gateway_ports(world, options), TOKEN) as client:
        for method, target in (("GET", "/v1/info"), ("POST", "/v1/threads")):
            body = None if method == "GET" else NEW
            answer = await client.request(method, target, json=body, headers=headers)
            if status == 403:
                problem = problem_in(answer.status_code, answer.headers, answer.content)
                assert problem["code"] == "denied"
            else:
                assert answer.status_code in (200, 202)
        assert (await world.log.end() == 0) == (status == 403)
