"""Clients that do not read, too many of them, and a server that stops."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.gateway_checks import deaf
from tests.helpers.raw_http import Client, get, post, serving, until
from threadlog.gateway.connection import GatewayConnection
from threadlog.gateway.peers import ConnectionBounds
from threadlog.limits import (
    BODY_HELD_BYTES,
    CLIENT_GONE_MS,
    KIB,
    STREAM_WRITE_MS,
    WRITE_PIECE_BYTES,
)

CLIENTS = 500
QUICK = ConnectionBounds(head_s=5.0, keep_alive_s=5.0, body_s=5.0, write_s=0.5, close_s=1.0)


def resident_kib() -> int:
    """What the process holds in memory now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[GatewayConnection]:
    """Every connection that the server took."""
    taken: list[GatewayConnection] = []
    made = GatewayConnection.connection_made

    def noted(self: GatewayConnection, transport: asyncio.Transport) -> None:
        taken.append(self)
        made(self, transport)

    monkeypatch.setattr(GatewayConnection, "connection_made", noted)
    return taken


async def test_500_clients_that_never_read_cost_little_and_are_cut(
    held: list[GatewayConnection], caplog: pytest.LogCaptureFixture
) -> None:
    before_kib = resident_kib()
    async with serving(replace(QUICK, write_s=3.0)) as served:
        clients = await asyncio.gather(*(deaf(served.port, get("/stream")) for _ in range(CLIENTS)))
        await until(lambda: all(c.flow.write_paused for c in held) and len(held) == CLIENTS)
        for connection in held:
            assert 0 < connection.transport.get_write_buffer_size() <= WRITE_PIECE_BYTES + 16
        assert resident_kib() - before_kib < 96 * 1_024
        began = asyncio.get_running_loop().time()
        await until(lambda: len(served.app.left) == CLIENTS)
        assert asyncio.get_running_loop().time() - began < 4.0
        assert set(served.app.left) == {"/stream ConnectionResetError"}
        assert all(c.transport.get_write_buffer_size() == 0 for c in held)
        for client in clients:
            client.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


async def test_an_answer_that_nobody_reads_does_not_keep_its_connection(
    held: list[GatewayConnection],
) -> None:
    async with serving(QUICK) as served:
        client = await deaf(served.port, get("/big"))
        await until(lambda: served.app.left)
        await until(held[0].transport.is_closing)
        assert held[0].transport.get_write_buffer_size() == 0
        client.close()


async def test_a_reader_that_is_slow_but_reads_gets_everything() -> None:
    async with serving(QUICK) as served:
        client = await served.connect()
        await client.send(get("/big", "Connection: close\r\n"))
        _, headers = await client.head()
        left = int(headers["content-length"])
        while left:
            left -= len(await client.reader.read(262_144))
            await asyncio.sleep(0.02)
        assert await client.rest() == b""


async def test_a_reader_that_is_slow_and_steady_is_not_taken_for_gone() -> None:
    """100 KB/s through a small window: the system never sees a whole segment taken."""
    loop, write_s = asyncio.get_running_loop(), 1.5
    bounds = replace(QUICK, write_s=write_s, gone_s=write_s * CLIENT_GONE_MS / STREAM_WRITE_MS)
    async with serving(bounds) as served:
        client = await deaf(served.port, get("/stream"), 32_768)
        ends_s = loop.time() + 2 * write_s
        while loop.time() < ends_s:
            assert await loop.sock_recv(client, 4_096)
            await asyncio.sleep(0.04)
        assert not served.app.left
        client.close()


async def test_a_body_that_nobody_takes_stays_where_it_is(held: list[GatewayConnection]) -> None:
    async with serving(QUICK) as served:
        client = await served.connect()
        client.writer.write(post("/hold", b"x" * 16_000_000))
        await until(lambda: bool(held) and held[0].flow.read_paused)
        await until(lambda: served.app.entered)
        cycle = held[0].cycle
        assert cycle is not None
        # One read of the system is what may come beyond the bound.
        assert BODY_HELD_BYTES < len(cycle.body) <= BODY_HELD_BYTES + 256 * KIB
        served.app.may_end.set()


# Too many


async def status_of(client: Client) -> int | None:
    """Status of the answer; None: it was cut without one."""
    try:
        return (await client.answer()).status
    except (ConnectionError, asyncio.IncompleteReadError):
        return None


async def test_the_connection_that_rested_longest_makes_room() -> None:
    async with serving(replace(QUICK, connections_max=2)) as served:
        first, second = await served.connect(), await served.connect()
        for client in (first, second):
            await client.send(get())
            assert (await client.answer()).status == 200
        third = await served.connect()
        assert await first.rest() == b""
        for client in (third, second):
            await client.send(get())
            assert (await client.answer()).status == 200


async def test_one_too_many_is_told_to_come_again() -> None:
    async with serving(replace(QUICK, connections_max=2)) as served:
        busy = [await served.connect() for _ in range(2)]
        for client in busy:
            await client.send(get("/wait"))
        await until(lambda: len(served.app.entered) == 2)
        more = await served.connect()
        answer = await more.answer()
        assert (answer.status, answer.code) == (503, "overloaded")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
        assert await more.rest() == b""
        served.app.may_end.set()
        for client in busy:
            assert (await client.answer()).body == b"waited"
            client.close()
        await until(lambda: len(served.app.left) == 2)
        again = await served.connect()
        await again.send(get())
        assert (await again.answer()).status == 200


async def test_a_flood_above_the_bound_is_cut_and_leaves_room_behind_it() -> None:
    async with serving(replace(QUICK, connections_max=2)) as served:
        busy = [await served.connect() for _ in range(2)]
        flood = [await served.connect() for _ in range(200)]
        found = [await status_of(client) for client in flood]
        assert set(found) == {503, None}
        for client in (*busy, *flood):
            client.close()
        async with asyncio.timeout(5.0):
            while True:
                client = await served.connect()
                await client.send(get())
                if await status_of(client) == 200:
                    break


# The stop


async def test_a_stop_answers_what_was_taken_and_takes_nothing_more() -> None:
    async with serving(QUICK, 5.0) as served:
        busy, body, idle = [await served.connect() for _ in range(3)]
        await idle.send(get())
        assert (await idle.answer()).status == 200
        await busy.send(get("/wait"))
        whole = post("/body", b"abc")
        await body.send(whole[:-1])
        await until(lambda: len(served.app.entered) == 3)
        assert not served.server.stopping.is_set()
        stopping = asyncio.create_task(served.server.stop())
        assert await idle.rest() == b""
        assert served.server.is_stopping
        with pytest.raises(ConnectionError):
            await served.connect()
        await body.send(whole[-1:])
        served.app.may_end.set()
        for client, said in ((busy, b"waited"), (body, b"3")):
            answer = await client.answer()
            assert (answer.body, answer.headers["connection"]) == (said, "close")
            assert await client.rest() == b""
        await asyncio.wait_for(stopping, 1.0)


async def test_a_stop_cuts_what_has_no_end() -> None:
    async with serving(QUICK, 0.3) as served:
        clients = [await served.connect() for _ in range(4)]
        for client, path in zip(clients, ("/wait", "/listen", "/stream", "/big"), strict=True):
            await client.send(get(path))
        await until(lambda: len(served.app.entered) == 4)
        async with asyncio.timeout(1.3):
            await asyncio.gather(served.server.stop(), served.server.stop())
        for client in clients:
            await client.gone()
        assert "/wait CancelledError" in served.app.left


async def test_a_stop_before_the_first_connection_is_a_stop() -> None:
    async with serving(QUICK, 5.0) as served:
        async with asyncio.timeout(1.0):
            await served.server.stop()
        with pytest.raises(ConnectionError):
            await served.connect()


# Bugs of the application


@pytest.mark.parametrize("path", ["/bug", "/silent"])
async def test_an_application_that_fails_is_a_problem_and_is_logged(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(QUICK) as served:
        answer = await served.ask(get(path))
        assert (answer.status, answer.code) == (500, "internal")
        assert b"a bug" not in answer.body
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


async def test_clients_are_told_apart_from_one_another() -> None:
    """Many at once, each with its own answer."""

    async def one(size: int) -> None:
        client: Client = await served.connect()
        for _ in range(3):
            await client.send(post("/body", b"x" * size))
            assert (await client.answer()).body == str(size).encode()
        client.close()

    async with serving(QUICK) as served:
        await asyncio.gather(*(one(size) for size in range(0, 200_000, 2_000)))
