"""What no client holds up or fills: catching up, waits at a stop, large answers; and spellings."""

import asyncio
from collections.abc import Callable
from string import ascii_letters, digits
from typing import Any

import pytest

from tests.helpers.events import LOCAL
from tests.helpers.gateway_world import BASE, TOKEN, DictKeys, asking, gateway_ports
from tests.helpers.service_world import World
from threadlog.gateway.app import create_app
from threadlog.gateway.ports import GatewayPorts

EVENTS = 120


async def long_thread(ports: GatewayPorts) -> str:
    """A thread of many events."""
    async with asking(ports) as client:
        sent = (await client.post("/v1/threads", json={})).json()
        path = f"/v1/threads/{sent['thread_id']}"
        message = {"content": "x" * 2_000, "delivery": "next_turn"}
        for _ in range(EVENTS):
            await client.get(path, params={"receipt": sent["receipt"]})
            sent = (await client.post(f"{path}/messages", json=message)).json()
        await client.get(path, params={"receipt": sent["receipt"]})
        return str(sent["thread_id"])


async def streamed(ports: GatewayPorts, thread: str, then: Callable[[], None]) -> bytes:
    """All that a client reads from the beginning on; `then` is called once it has an event."""
    got: list[bytes] = []
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": f"/v1/threads/{thread}/stream",
        "raw_path": f"/v1/threads/{thread}/stream".encode(),
        "query_string": b"since=-1",
        "root_path": "",
        "headers": [
            (b"host", BASE.removeprefix("http://").encode()),
            (b"authorization", f"Bearer {TOKEN}".encode()),
        ],
    }

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        got.append(message.get("body", b""))
        if b"id: 0\n" in got[-1]:
            then()

    async with asyncio.timeout(10):
        await create_app(ports)(scope, receive, send)
    return b"".join(got)


@pytest.mark.parametrize("reason", ["reauthorise", "shutdown"])
async def test_F94_a_stream_that_catches_up_ends_with_its_key_and_its_gateway(
    reason: str,
) -> None:
    """It may take hours over its history: every piece may take as long as the write deadline."""
    async with World() as world:
        ports = gateway_ports(world)
        assert isinstance(ports.keys, DictKeys)
        thread = await long_thread(ports)
        then = ports.keys.tokens.clear if reason == "reauthorise" else ports.stopping.set
        said = await streamed(ports, thread, then)
        assert said.endswith(b'event: reconnect\ndata: {"reason":"%s"}\n\n' % reason.encode())
        assert 0 < said.count(b"\nid: ") < EVENTS // 2


async def test_a_stop_answers_who_waits_for_a_turn_with_what_is_in_the_log() -> None:
    async with World() as world:
        ports = gateway_ports(world)
        async with asking(ports) as client:
            waiting = asyncio.create_task(
                client.post("/v1/threads", params={"wait": 60}, json={"message": {"content": "x"}})
            )
            await world.until(lambda: "message.received" in world.told())
            ports.stopping.set()
            async with asyncio.timeout(5):
                answer = await waiting
            assert (answer.status_code, bool(answer.json()["receipt"])) == (202, True)


async def test_a_stop_does_not_wait_for_a_receipt() -> None:
    async with World() as world:
        ports = gateway_ports(world)
        async with asking(ports) as client:
            sent = (await client.post("/v1/threads", json={})).json()
            path = f"/v1/threads/{sent['thread_id']}"
            await client.get(path, params={"receipt": sent["receipt"]})
            world.projecting.cancel()
            message = {"content": "x", "delivery": "next_turn"}
            late = (await client.post(f"{path}/messages", json=message)).json()
            params = {"receipt": late["receipt"]}
            waiting = asyncio.create_task(client.get(path, params=params))
            await asyncio.sleep(0)
            ports.stopping.set()
            async with asyncio.timeout(5):
                assert (await waiting).status_code == 503
        world.projecting = asyncio.create_task(asyncio.sleep(3_600))


async def test_large_answers_that_nobody_has_read_are_bounded_for_each_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("threadlog.gateway.large.HELD_BYTES_TENANT_MAX", 1_500)
    async with World() as world:
        ports = gateway_ports(world)
        [ref] = await world.blobs.put(LOCAL, [(b"y" * 900, "text/plain")])
        app = create_app(ports)
        held = app._app.state.held  # type: ignore[attr-defined]  # the edge holds the application
        async with asking(ports, app=app) as client:
            sent = (await client.post("/v1/threads", json={})).json()
            path = f"/v1/threads/{sent['thread_id']}"
            await client.get(path, params={"receipt": sent["receipt"]})
            blob = f"{path}/blobs/{ref.sha256}"
            for _ in range(5):
                assert (await client.get(blob)).content == b"y" * 900
                assert (await client.get(f"{path}/blobs/{'0' * 64}")).status_code == 404
            assert (held.total, dict(held.by_tenant)) == (0, {}), "all room was given back"
            held.add(LOCAL, 700)
            refused = await client.get(blob)
            assert (refused.status_code, refused.json()["limit"]) == (429, "bytes")
            assert "retry-after" in refused.headers


@pytest.mark.parametrize(
    "address",
    ["/v1%2Finfo", "/v1/info%0A", "/%76%31/info", "/v1/info%00", "/v1/threads%2f", "/v1/inf%6F"],
)
async def test_an_address_has_one_spelling(address: str) -> None:
    async with World() as world, asking(gateway_ports(world)) as client:
        assert (await client.get(address)).status_code == 404
        assert (await client.get("/v1/info")).status_code == 200


async def test_C25_no_spelling_of_a_post_appends() -> None:
    async with World() as world, asking(gateway_ports(world)) as client:
        sent = (await client.post("/v1/threads", json={})).json()
        before = await world.log.end()
        for tail in ("%2Fmessages", "/messages%0A", "/messages%0a"):
            answer = await client.post(
                f"/v1/threads/{sent['thread_id']}{tail}", json={"content": "x"}
            )
            assert answer.status_code == 404, tail
        assert await world.log.end() == before


@pytest.mark.parametrize(
    "reference",
    [
        {"media_type": "x" * 300},
        {"media_type": "a\r\nX: y"},
        {"media_type": "text"},
    ],
)
async def test_a_reference_has_a_media_type_and_no_more(reference: dict[str, str]) -> None:
    blob = {"sha256": "ab" * 32, "bytes": 3, **reference}
    part = {"kind": "file", "name": "a b.txt", "blob": blob}
    async with World() as world, asking(gateway_ports(world)) as client:
        body = {"message": {"content": [part]}}
        assert (await client.post("/v1/threads", json=body)).status_code == 400
        blob["media_type"] = "text/plain; charset=utf-8"
        part["name"] = "a\x00b"
        assert (await client.post("/v1/threads", json=body)).status_code == 400
        part["name"] = "grüße.txt"
        answer = await client.post("/v1/threads", json=body)
        assert answer.status_code == 202, answer.text


async def test_a_page_token_has_one_spelling() -> None:
    async with World() as world, asking(gateway_ports(world)) as client:
        for n in range(2):
            sent = (
                await client.post("/v1/threads", json={}, headers={"Idempotency-Key": f"k{n}"})
            ).json()
            path = f"/v1/threads/{sent['thread_id']}"
            await client.get(path, params={"receipt": sent["receipt"]})
        token = (await client.get("/v1/threads", params={"limit": 1})).json()["next"]
        assert (await client.get("/v1/threads", params={"page": token})).status_code == 200
        # The last character has bits that say nothing.
        twins = [token[:-1] + last for last in f"{ascii_letters}{digits}-_" if last != token[-1]]
        for other in (f"{token}A", f"{token}AA", f"{token}=", token[:-1], *twins):
            answer = await client.get("/v1/threads", params={"page": other})
            assert answer.status_code == 400, other
