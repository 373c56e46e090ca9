"""What clients make a gateway hold: bodies that never end, answers that nobody reads, scans."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.helpers.events import LOCAL
from tests.helpers.gateway_checks import MODEL, Live, deaf, live
from tests.helpers.gateway_world import OTHER_TOKEN, TOKEN
from tests.helpers.raw_http import until

LARGE = 80_000
BOUND = 400_000
HEAD = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def small(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Live]:
    """A gateway that holds little for each tenant."""
    monkeypatch.setattr("threadlog.gateway.large.HELD_BYTES_TENANT_MAX", BOUND)
    async with live() as gateway:
        yield gateway


async def is_over(gateway: Live, method: str, target: str, body: bytes | None = None) -> bool:
    """Whether this request of the tenant is one too many; another one's is none."""
    kind = [("Content-Type", "application/json")]
    answer = await gateway.ask(method, target, body, kind)
    if answer.status != 429:
        return False
    told = json.loads(answer.body)
    assert (told["code"], told["limit"]) == ("quota_exceeded", "bytes")
    assert int(answer.headers["retry-after"]) >= 1
    other = await gateway.ask("GET", "/v1/threads", token=OTHER_TOKEN)
    assert other.status == 200, "another tenant has its own room"
    return True


async def test_F86_bodies_that_never_end_are_bounded_for_each_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with small(monkeypatch) as gateway:
        body = json.dumps({"title": "a" * LARGE}).encode()
        head = f"POST /v1/threads HTTP/1.1\r\n{HEAD}Content-Length: {len(body) + 1}\r\n\r\n"
        clients = [
            await deaf(gateway.port, head.encode() + body) for _ in range(BOUND // len(body))
        ]
        await until(lambda: gateway.held.by_tenant[LOCAL] == len(clients) * len(body))
        before = await gateway.end()
        assert await is_over(gateway, "POST", "/v1/threads", body)
        assert await gateway.end() == before
        for client in clients:
            client.close()
        await until(lambda: not gateway.held.total)
        assert not await is_over(gateway, "POST", "/v1/threads", b"{}")
        await until(lambda: not gateway.held.total)


async def test_F86_a_body_counts_as_long_as_its_request_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with small(monkeypatch) as gateway:
        asked = {"settings": {"model": MODEL}, "message": {"content": "x" * LARGE}}
        body = json.dumps(asked).encode()
        head = f"POST /v1/threads?wait=60 HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n"
        client = await deaf(gateway.port, head.encode() + body)
        await until(lambda: bool(gateway.waits))
        assert gateway.held.by_tenant[LOCAL] == len(body)
        client.close()
        await until(lambda: not gateway.held.total)


async def test_F86_pages_that_nobody_reads_are_bounded_for_each_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system takes some of a page; what it does not take lies in the gateway."""
    async with small(monkeypatch) as gateway:
        thread = await gateway.thread()
        for _ in range(4):
            said = json.dumps({"content": "\x01" * 60_000, "delivery": "next_turn"}).encode()
            kind = [("Content-Type", "application/json")]
            sent = await gateway.ask("POST", f"/v1/threads/{thread}/messages", said, kind)
            receipt = json.loads(sent.body)["receipt"]
            await gateway.ask("GET", f"/v1/threads/{thread}?receipt={receipt}")
        page = f"/v1/threads/{thread}/events?types=message.received&limit=1"
        clients = [await deaf(gateway.port, f"GET {page} HTTP/1.1\r\n{HEAD}\r\n".encode())]
        await until(lambda: gateway.held.total > 5 * 60_000)
        assert await is_over(gateway, "GET", page)
        assert not await is_over(gateway, "GET", f"/v1/threads/{thread}")
        clients[0].close()
        await until(lambda: not gateway.held.total)
        assert not await is_over(gateway, "GET", page)


async def test_F86_every_large_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadlog.gateway.large.SMALL_ANSWER_BYTES", 40)
    async with small(monkeypatch) as gateway:
        thread = await gateway.thread()
        one = f"/v1/threads/{thread}"
        paths = ["/v1/threads", one, f"{one}/events", f"{one}/queue", "/v1/usage", "/v1/info"]
        gateway.held.add(LOCAL, BOUND)
        assert [await is_over(gateway, "GET", path) for path in paths] == [True] * len(paths)
        gateway.held.add(LOCAL, -BOUND)
        assert not any([await is_over(gateway, "GET", path) for path in paths])
        await until(lambda: not gateway.held.total)


@pytest.mark.parametrize("way", ["since=-1", "before=1000"])
async def test_F86_a_filter_that_fits_nothing_looks_at_so_many_bytes_for_a_page(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadlog.gateway.events.SCANNED_BYTES_MAX", 150_000)
    async with live() as gateway:
        thread = await gateway.thread()
        kind = [("Content-Type", "application/json")]
        said = json.dumps({"content": "x" * 50_000, "delivery": "next_turn"}).encode()
        path = f"/v1/threads/{thread}/messages"
        sent = [await gateway.ask("POST", path, said, kind) for _ in range(8)]
        receipt = json.loads(sent[-1].body)["receipt"]
        name, at = way.split("=")
        pages = found = 0
        while True:
            query = f"{name}={at}&types=thread.created&limit=1&receipt={receipt}"
            page = json.loads(
                (await gateway.ask("GET", f"/v1/threads/{thread}/events?{query}")).body
            )
            pages, found = pages + 1, found + len(page["events"])
            if not page["has_more"]:
                break
            assert page["next"] != at
            at = page["next"]
        assert (pages, found) == (3 if name == "before" else 4, 1)
