"""What a client may send, and what becomes of it before an application sees it."""

import asyncio
import json
import logging
import random
import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.raw_http import (
    Client,
    Small,
    get,
    post,
    serving,
    until,
)
from threadlog.bootstrap.sockets import listen
from threadlog.gateway.peers import ConnectionBounds
from threadlog.gateway.server import GatewayServer

CORPUS = sorted(Path("tests/fault/corpus/http").glob("*.json"))
QUICK = ConnectionBounds(head_s=0.3, keep_alive_s=0.6, body_s=0.4, write_s=0.5, close_s=1.0)
SLOW = ConnectionBounds(close_s=1.0)


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that a client does is an error in the log."""
    yield
    records = [r for phase in ("setup", "call") for r in caplog.get_records(phase)]
    assert not [r.getMessage() for r in records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
async def test_C19_C21_C26_every_case_of_the_corpus(path: Path) -> None:
    case = json.loads(path.read_text())
    assert case["id"] == path.stem
    async with serving(SLOW) as served:
        answer = await served.ask(case["send"].encode("latin-1"))
        assert (answer.status, answer.code) == (case["status"], case["code"]), case["why"]
        assert answer.headers["connection"] == "close"
        assert (await served.ask(get(more="Connection: close\r\n"))).body == b"hello"


async def test_C26_an_id_of_5000_characters_reaches_the_application() -> None:
    async with serving() as served:
        path = "/v1/threads/" + "a" * 5_000
        answer = await served.ask(get(path, "Connection: close\r\n"))
        assert (answer.status, answer.body) == (404, b"none")
        assert served.app.entered == [path]


async def test_C21_what_is_within_the_bounds_is_taken() -> None:
    async with serving() as served:
        for more in ("A: b\r\n" * 98, f"A: {'b' * 32_000}\r\n"):
            assert (await served.ask(get("/hello", more + "Connection: close\r\n"))).status == 200


async def test_it_is_all_the_same_on_a_unix_socket(short_dir: Path) -> None:
    server = GatewayServer(Small(), [listen(short_dir / "s.sock")], grace_s=0.2, bounds=QUICK)
    try:
        for data, status in ((get("/none"), 404), (b"GET /\r\n", 400), (b"GET ", 408)):
            client = Client(*await asyncio.open_unix_connection(str(short_dir / "s.sock")))
            await client.send(data)
            assert (await client.answer()).status == status
            assert await client.rest() == b""
            client.close()
    finally:
        await server.stop()


@pytest.mark.parametrize("step", [1, 7])
async def test_a_head_in_pieces_is_the_same_head(step: int) -> None:
    data = post("/body", b"abc", "Connection: close\r\n")
    async with serving() as served:
        client = await served.connect()
        for start in range(0, len(data), step):
            await client.send(data[start : start + step])
            await asyncio.sleep(0)
        assert (await client.answer()).body == b"3"
        client.close()


# Slow


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with serving(QUICK) as served:
        silent, half = await served.connect(), await served.connect()
        await half.send(b"GET /hello HT")
        assert await silent.rest() == b""
        answer = await half.answer()
        assert (answer.status, answer.code) == (408, "body_timeout")
        assert await half.rest() == b""


async def test_the_next_head_has_its_time_from_its_first_byte() -> None:
    async with serving(QUICK) as served:
        client = await served.connect()
        for _ in range(2):
            await client.send(get())
            assert (await client.answer()).status == 200
            # Longer than a head may take, and shorter than a connection may rest.
            await asyncio.sleep(0.4)
        await client.send(b"GET")
        assert (await client.answer()).status == 408
        client.close()


async def test_a_connection_that_rests_is_closed() -> None:
    async with serving(QUICK) as served:
        client = await served.connect()
        await client.send(get())
        assert (await client.answer()).status == 200
        assert await client.rest() == b""


async def test_C20_a_body_that_drips_is_cut_and_its_task_ends() -> None:
    async with serving(QUICK) as served:
        client = await served.connect()
        await client.send(post("/body", b"")[:-4].replace(b": 0", b": 99") + b"\r\n\r\n")
        for _ in range(3):
            await client.send(b"a")
            await asyncio.sleep(0.05)
        answer = await client.answer()
        assert (answer.status, answer.code) == (408, "body_timeout")
        assert await client.rest() == b""
        await until(lambda: served.app.left)
        assert served.app.left == ["/body LeftEarlyError"]


async def test_a_body_that_was_not_wanted_is_not_read_for_ever() -> None:
    async with serving(replace(QUICK, body_s=9.0)) as served:
        client = await served.connect()
        await client.send(post("/refuse", b"")[:-4].replace(b": 0", b": 99999999") + b"\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert await client.rest() == b""


async def test_an_answer_is_not_lost_while_the_body_still_comes() -> None:
    async with serving() as served:
        answer = await served.ask(post("/refuse", b"x" * 1_500_000))
        assert (answer.status, answer.body) == (413, b"too long")


# How requests come


async def test_requests_may_come_before_the_answers() -> None:
    async with serving() as served:
        client = await served.connect()
        await client.send(get() + post("/body", b"abc") + get("/none") + post("/body", b"defg"))
        bodies = [(await client.answer()).body for _ in range(4)]
        assert bodies == [b"hello", b"3", b"none", b"4"]
        await client.send(get() + b"nonsense\r\n")
        assert (await client.answer()).body == b"hello"
        assert (await client.answer()).status == 400
        assert await client.rest() == b""


async def test_a_body_in_many_chunks_is_whole_and_what_follows_is_answered() -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (n, b"a" * n) for n in range(1, 1_000))
    head = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as served:
        client = await served.connect()
        await client.send(head + chunks + b"0\r\n\r\n" + get())
        assert (await client.answer()).body == str(sum(range(1_000))).encode()
        assert (await client.answer()).body == b"hello"
        client.close()


async def test_head_says_the_length_and_sends_nothing() -> None:
    async with serving() as served:
        client = await served.connect()
        await client.send(b"HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n" + get())
        answer = await client.answer(has_body=False)
        assert (answer.status, answer.headers["content-length"]) == (200, "5")
        assert (await client.answer()).body == b"hello"
        client.close()


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with serving() as served:
        client = await served.connect()
        whole = post("/body", b"abc", "Expect: 100-continue\r\n")
        await client.send(whole[:-3])
        assert (await client.head())[0] == 100
        await client.send(whole[-3:])
        assert (await client.answer()).body == b"3"
        client.close()


@pytest.mark.parametrize("more", ["Upgrade: h2c\r\nConnection: Upgrade\r\n", ""])
async def test_what_asks_for_another_protocol_gets_this_one(more: str) -> None:
    async with serving() as served:
        client = await served.connect()
        method = b"GET /hello" if more else b"CONNECT x:1"
        await client.send(method + b" HTTP/1.1\r\nHost: x\r\n" + more.encode() + b"\r\n" + get())
        assert (await client.answer()).status == (200 if more else 404)
        assert (await client.answer()).body == b"hello"
        client.close()


async def test_an_old_client_is_answered_and_closed() -> None:
    async with serving() as served:
        assert (await served.ask(b"GET /hello HTTP/1.0\r\n\r\n")).body == b"hello"


# How clients leave


async def test_one_that_has_said_everything_still_gets_its_answer() -> None:
    async with serving() as served:
        client = await served.connect()
        await client.send(get("/late"))
        client.writer.write_eof()
        assert (await client.answer()).body == b"late"
        assert await client.rest() == b""


async def test_a_stream_is_told_when_its_client_leaves() -> None:
    async with serving() as served:
        client = await served.connect()
        await client.send(get("/listen"))
        assert (await client.head())[0] == 200
        client.writer.write_eof()
        await until(lambda: served.app.left)
        assert served.app.left == ["/listen done"]
        client.close()


@pytest.mark.parametrize(
    "data", [b"", b"GET /he", get("/wait"), post("/body", b"abc")[:-1], get("/stream"), b"\x16\x03"]
)
@pytest.mark.parametrize("is_reset", [True, False])
async def test_whoever_goes_in_the_middle_hurts_nobody(data: bytes, is_reset: bool) -> None:
    async with serving(QUICK) as served:
        client = await served.connect()
        if is_reset:
            of_client = client.writer.get_extra_info("socket")
            of_client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.send(data)
        if data.endswith((b"\r\n\r\n", b"ab")):
            await until(lambda: served.app.entered)
        client.close()
        assert (await served.ask(get(more="Connection: close\r\n"))).body == b"hello"
        served.app.may_end.set()
        await until(lambda: len(served.app.left) == len(served.app.entered))


async def test_a_stream_whose_write_fails_ends_and_lets_others_have_their_turn() -> None:
    async with serving() as served:
        client = socket.create_connection(("127.0.0.1", served.port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        served.app.on_begun = client.close
        client.sendall(get("/reset"))
        await until(lambda: served.app.left)
        assert served.app.left == ["/reset ConnectionResetError"]


# Whatever else comes

SEEDS = [
    get(),
    get("/none", "A: b\r\nB: c\r\n"),
    post("/body", b"abcdef"),
    b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    get() + post("/body", b"abc", "Expect: 100-continue\r\n") + get("/none"),
]
PIECES = [b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\x00", b"\xff", b"HTTP/1.1", b"\r\n\r\n"]
PIECES += [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"0", b"-", b"ffffffff"]


def mutated(drawn: random.Random) -> bytes:
    """One of the seeds with a few bytes changed, taken out, put in or said twice."""
    data = bytearray(drawn.choice(SEEDS))
    for _ in range(drawn.randint(1, 6)):
        start = drawn.randrange(len(data) + 1)
        end = min(len(data), start + drawn.randint(0, 8))
        match drawn.randrange(4):
            case 0:
                data[start:end] = drawn.randbytes(end - start)
            case 1:
                del data[start:end]
            case 2:
                data[start:start] = drawn.choice(PIECES)
            case _:
                data[start:start] = data[start:end] * drawn.randint(1, 3)
    return bytes(data)


async def test_400_mutated_requests_are_refused_or_answered_and_never_hang() -> None:
    drawn = random.Random(5)
    statuses: set[int] = set()

    async def one(data: bytes) -> None:
        client = await served.connect()
        await client.send(data)
        client.writer.write_eof()
        for line in re.findall(rb"HTTP/1\.1 (\d{3}) ", await client.rest()):
            statuses.add(int(line))

    async with serving(QUICK) as served:
        for _ in range(8):
            await asyncio.gather(*(one(mutated(drawn)) for _ in range(50)))
        assert (await served.ask(get(more="Connection: close\r\n"))).body == b"hello"
    assert {200, 400, 404} <= statuses <= {100, 200, 400, 404, 408, 414, 431}
