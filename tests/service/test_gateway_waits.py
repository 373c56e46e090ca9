"""Requests that wait or have no end: how many a tenant may have, and what ends them."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.helpers.gateway_checks import MODEL, Live, deaf, live
from tests.helpers.gateway_world import OTHER_TOKEN, TOKEN, DictKeys
from tests.helpers.raw_http import Answer, Client, until
from threadlog.gateway.connection import GatewayConnection
from threadlog.gateway.ports import GatewayOptions

GO = {"settings": {"model": MODEL}, "message": {"content": "go"}}
SOON_S = 5.0


async def asked(gateway: Live, method: str, target: str, body: object = None) -> Client:
    """A client that has sent a request of the tenant `local`, and still holds its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=2**22)
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    client = Client(reader, writer)
    await client.send(head.encode() + data)
    return client


async def soon(client: Client) -> Answer:
    """Its answer, long before the end of what it waits for."""
    async with asyncio.timeout(SOON_S):
        return await client.answer()


@asynccontextmanager
async def full(bound: int = 2) -> AsyncIterator[tuple[Live, str, list[Client]]]:
    """A gateway in which a tenant waits for as many turns as it may; nobody runs them."""
    async with live(GatewayOptions(version="1", waits_per_tenant=bound)) as gateway:
        thread = await gateway.thread()
        clients = [await asked(gateway, "POST", "/v1/threads?wait=60", GO) for _ in range(bound)]
        await until(lambda: sum(gateway.waits.values()) == bound)
        yield gateway, thread, clients
        for client in clients:
            client.close()


async def test_F86_a_tenant_has_so_many_requests_that_wait() -> None:
    """Each holds a connection, whose number is bounded for all tenants together."""
    async with full() as (gateway, thread, _):
        before = await gateway.end()
        behind = f"/v1/threads/{thread}/events?since=5000"
        late = f"/v1/threads/{thread}?receipt={'A' * 44}"
        for method, target, body in [
            ("POST", "/v1/threads?wait=60", GO),
            ("POST", f"/v1/threads/{thread}/messages?wait=60", GO["message"]),
            ("GET", behind, None),
            ("GET", late, None),
            ("GET", f"/v1/threads/{thread}/stream?since=5000", None),
        ]:
            client = await asked(gateway, method, target, body)
            refused = await soon(client)
            told = json.loads(refused.body)
            assert (refused.status, told["code"], told["limit"]) == (429, "quota_exceeded", "waits")
            assert int(refused.headers["retry-after"]) >= 1
            client.close()
        assert await gateway.end() == before, "nothing is appended for whom there is no room"
        other = await gateway.ask("GET", behind, token=OTHER_TOKEN)
        assert other.status == 404, "another tenant has its own room"


async def test_F86_who_leaves_gives_its_wait_back() -> None:
    async with full() as (gateway, _, clients):
        for client in clients:
            client.close()
        async with asyncio.timeout(SOON_S):
            await until(lambda: not gateway.waits)


async def test_who_sends_nothing_more_is_told_soon_what_is_known() -> None:
    async with full() as (_, _, clients):
        for client in clients:
            client.writer.write_eof()
        for answer in [await soon(client) for client in clients]:
            assert answer.status == 202
            assert json.loads(answer.body)["receipt"]


async def test_a_request_that_was_sent_ahead_waits_no_longer_than_its_client() -> None:
    async with live() as gateway:
        body = json.dumps(GO).encode()
        head = (
            f"POST /v1/threads?wait=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
            f"\r\nContent-Type: application/json\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        ).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        client = Client(reader, writer)
        await client.send((head + body) * 3)
        client.writer.write_eof()
        assert [(await soon(client)).status for _ in range(3)] == [202, 202, 202]
        client.close()


async def test_F94_a_wait_ends_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the answer of a turn says is content; that the message is in the log is none."""
    monkeypatch.setattr("threadlog.gateway.waiting.STREAM_AUTH_MS", 50)
    async with live() as gateway:
        thread = await gateway.thread()
        keys = gateway.ports.keys
        assert isinstance(keys, DictKeys)
        waiting = [
            await asked(gateway, "POST", "/v1/threads?wait=60", GO),
            await asked(gateway, "GET", f"/v1/threads/{thread}/events?since=5000"),
        ]
        await until(lambda: sum(gateway.waits.values()) == len(waiting))
        del keys.tokens[TOKEN]
        accepted, refused = [await soon(client) for client in waiting]
        assert (accepted.status, "answer" in json.loads(accepted.body)) == (202, False)
        assert (refused.status, json.loads(refused.body)["code"]) == (401, "unauthenticated")
        for client in waiting:
            client.close()


async def _rest(client: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(client, 4_096):
        pass


async def test_F94_a_stream_that_is_read_slowly_ends_with_its_key_in_the_middle_of_a_page(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever does not read is not told, and gets nothing of what was not sent yet."""
    monkeypatch.setattr("threadlog.gateway.streams.STREAM_AUTH_MS", 100)
    stuck: list[GatewayConnection] = []
    pause = GatewayConnection.pause_writing

    def noted(self: GatewayConnection) -> None:
        stuck.append(self)
        pause(self)

    monkeypatch.setattr(GatewayConnection, "pause_writing", noted)
    async with live() as gateway:
        thread = await gateway.thread()
        said = json.dumps({"content": "\x01" * 60_000, "delivery": "next_turn"}).encode()
        kind = [("Content-Type", "application/json")]
        path = f"/v1/threads/{thread}/messages"
        sent = [await gateway.ask("POST", path, said, kind) for _ in range(4)]
        receipt = json.loads(sent[-1].body)["receipt"]
        target = f"/v1/threads/{thread}/stream?since=-1&receipt={receipt}"
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        client = await deaf(gateway.port, head.encode())
        await until(lambda: bool(stuck) and stuck[-1].flow.write_paused)
        keys = gateway.ports.keys
        assert isinstance(keys, DictKeys)
        del keys.tokens[TOKEN]
        async with asyncio.timeout(SOON_S):
            await until(lambda: not sum(gateway.streams.values()))
            with pytest.raises(ConnectionResetError):
                await _rest(client)
        client.close()
    assert not [record.getMessage() for record in caplog.records]
