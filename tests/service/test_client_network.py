"""The client and servers that misbehave: what is sent again, what is not, who gets the key."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.embedded import DEADLINE_S, MODEL, scripted
from tests.helpers.events import LOCAL, OTHER
from tests.helpers.fakes import StepModel, reply
from tests.helpers.gateway_world import READ_TOKEN, TOKEN, credential
from tests.helpers.ways import ways_to
from threadlog.api.problems import PROBLEM_TYPE, problem_of
from threadlog.client import connection, reads
from threadlog.client.connection import Connection
from threadlog.client.http import HttpCommands
from threadlog.client.reader import HttpReader
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.errors import (
    ConflictError,
    CorruptError,
    InFlightError,
    LockedError,
    NotFoundError,
    QuotaError,
    RefusedError,
    RejectedError,
    ScopeMissingError,
    ThreadlogError,
    TransientError,
    TurnOpenError,
    UnauthenticatedError,
    ViewsBehindError,
    VoidError,
)
from threadlog.events.content import TextPart
from threadlog.ids import ThreadId, derive
from threadlog.limits import CLIENT_TRIES_MAX
from threadlog.ports.model import Delta
from threadlog.ports.notify import LiveDelta
from threadlog.ports.views import StoredEvent

KEY = "threadlog-key"
THREAD, EVENT = derive("thread"), derive("event")
ACCEPTED = {"thread_id": THREAD, "event_id": EVENT, "receipt": "A" * 32}
NEW = NewThread(ThreadSettings(model=MODEL), message=NewMessage((TextPart(text="go"),)))


@dataclass(frozen=True)
class Request:
    line: str
    headers: dict[str, str]


@dataclass
class Answer:
    """What a server says. `status` 0: it closes without a word."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def wire(self) -> bytes:
        head = {"Content-Length": str(len(self.body)), "Connection": "close", **self.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        return f"HTTP/1.1 {self.status} X\r\n{lines}\r\n".encode() + self.body


def problem(error: ThreadlogError, **headers: str) -> Answer:
    body = problem_of(error)
    more = {"Content-Type": PROBLEM_TYPE, **{n.replace("_", "-"): v for n, v in headers.items()}}
    return Answer(body.status, body.model_dump_json().encode(), more)


def ok(document: object) -> Answer:
    return Answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


@dataclass
class Server:
    """A server that answers the requests in turn, the last answer again and again."""

    answers: list[Answer]
    base: str = ""
    seen: list[Request] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
            headers = {n.lower(): v for n, v in (each.split(": ", 1) for each in lines)}
            await reader.readexactly(int(headers.get("content-length", "0")))
            self.seen.append(Request(line.rsplit(" ", 1)[0], headers))
            answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
            if answer.status:
                writer.write(answer.wire())
                await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[Server]:
    served = Server(list(answers))
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield served


@asynccontextmanager
async def commands_to(
    server: Server, waited: list[float] | None = None
) -> AsyncIterator[HttpCommands]:
    """Commands that wait for nobody; `waited` holds how long they would have."""

    async def at_once(seconds: float) -> None:
        if waited is not None:
            waited.append(seconds)

    commands = HttpCommands(Connection(server.base, KEY, pause=at_once))
    try:
        yield commands
    finally:
        await commands.close()


def judged(seq: int | None, void: str | None = None) -> Answer:
    """The thread, with this verdict on the receipt."""
    verdict = {"event_id": EVENT, "seq": seq, "void": void}
    return ok(_THREAD | {"receipt": verdict})


_THREAD: dict[str, object] = (
    {
        "thread_id": THREAD, "title": "", "status": "idle", "head": 2, "turns": 0,
        "open_turn": None, "queued": 0, "verdict": None, "model": None,
        "created_at": "", "updated_at": "",
        "usage": {
            "steps": 0, "input": 0, "output": 0, "cache_read": 0, "cache_write": 0,
            "reasoning": 0, "cost_micros": None,
        },
        "as_of_seq": 2, "behind_ms": 0, "receipt": None,
    }
)  # fmt: skip
VERDICT = judged(2)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0),
        problem(TransientError("away")),
        problem(InFlightError("wait")),
        problem(QuotaError("too many", limit="requests"), Retry_After="3"),
        Answer(502, b"<html>bad gateway</html>", {"Content-Type": "text/html"}),
    ],
    ids=["closed", "503", "409 in flight", "429", "502"],
)
async def test_what_may_pass_is_sent_again_with_the_same_key(answer: Answer) -> None:
    answers, waited = (answer, answer, ok(ACCEPTED), VERDICT), list[float]()
    async with serving(*answers) as server, commands_to(server, waited) as to:
        assert (await to.create_thread(NEW, key="k 1")).seq == 2
        posts = [r for r in server.seen if r.line.startswith("POST")]
        assert [r.headers["idempotency-key"] for r in posts] == ['"k 1"'] * 3
        assert len(waited) == 2
        if answer.status == 429:
            assert min(waited) >= 3


@pytest.mark.parametrize(
    ("answer", "error", "tries"),
    [
        (problem(TransientError("away")), TransientError, CLIENT_TRIES_MAX),
        (problem(InFlightError("wait")), InFlightError, CLIENT_TRIES_MAX),
        (problem(QuotaError("much", limit="requests"), Retry_After="60"), QuotaError, 1),
        (problem(LockedError("another")), LockedError, 1),
        (problem(RejectedError("no")), RejectedError, 1),
        (problem(UnauthenticatedError("no")), UnauthenticatedError, 1),
        (Answer(401), UnauthenticatedError, 1),
        (Answer(404), RejectedError, 1),
        (Answer(413), RejectedError, 1),
        (Answer(200, b"hello"), TransientError, 1),
        (Answer(500, b"{", {"Content-Type": PROBLEM_TYPE}), TransientError, CLIENT_TRIES_MAX),
    ],
)
async def test_it_ends_with_the_error_after_so_many_tries(
    answer: Answer, error: type[ThreadlogError], tries: int
) -> None:
    async with serving(answer) as server, commands_to(server) as to:
        with pytest.raises(error) as caught:
            await to.create_thread(NEW, key="k")
        assert type(caught.value) is error
        assert len(server.seen) == tries
        assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("void", "error", "posts"),
    [
        ("turn_open", TurnOpenError, 1),
        ("stopped", CorruptError, 1),
        ("not_open", VoidError, 1),
        ("stale", ConflictError, 4),
    ],
)
async def test_what_the_fold_says_later_is_the_error_of_the_command(
    void: str, error: type[ThreadlogError], posts: int
) -> None:
    answers = (ok(ACCEPTED), judged(None, void)) * 4
    async with serving(*answers) as server, commands_to(server) as to:
        with pytest.raises(error) as caught:
            await to.create_thread(NEW, key="k")
        assert type(caught.value) is error
        sent = [r.headers["idempotency-key"] for r in server.seen if r.line.startswith("POST")]
        assert sent == ['"k"'] * posts


async def test_what_was_judged_stale_is_sent_again() -> None:
    answers = (ok(ACCEPTED), judged(None, "stale"), ok(ACCEPTED), VERDICT)
    async with serving(*answers) as server, commands_to(server) as to:
        assert (await to.create_thread(NEW, key="k")).seq == 2


async def test_the_verdict_is_waited_for_and_nothing_sent_twice() -> None:
    behind = problem(ViewsBehindError("not yet"))
    async with serving(ok(ACCEPTED), behind, Answer(0), VERDICT) as server:
        async with commands_to(server) as to:
            assert (await to.create_thread(NEW, key="k")).seq == 2
        assert [r.line.partition(" ")[0] for r in server.seen] == ["POST", "GET", "GET", "GET"]
        assert f"receipt={ACCEPTED['receipt']}" in server.seen[-1].line


@pytest.mark.parametrize("answer", [Answer(0), problem(TransientError("away"))])
async def test_what_has_no_key_is_sent_once(answer: Answer) -> None:
    async with serving(answer) as server, commands_to(server) as to:
        with pytest.raises(TransientError):
            await to.info()
        assert len(server.seen) == 1


async def test_the_key_goes_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(ok({})) as other:
        elsewhere = Answer(307, b"", {"Location": f"{other.base}/v1/threads"})
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other.base)
        async with serving(elsewhere) as server, commands_to(server) as to:
            with pytest.raises(RefusedError, match="elsewhere"):
                await to.create_thread(NEW, key="k")
            assert [r.headers["authorization"] for r in server.seen] == [f"Bearer {KEY}"]
        assert other.seen == []


async def test_a_gateway_that_names_no_thread_is_not_followed_there() -> None:
    odd = {**ACCEPTED, "thread_id": "../../v1/keys"}
    async with serving(ok(odd)) as server, commands_to(server) as to:
        with pytest.raises(TransientError, match="oddly"):
            await to.create_thread(NEW, key="k")
        assert len(server.seen) == 1


async def test_half_a_pair_of_surrogates_is_refused_here() -> None:
    async with serving(ok(ACCEPTED)) as server, commands_to(server) as to:
        with pytest.raises(RejectedError, match="UTF-8"):
            await to.create_thread(NewThread(ThreadSettings(system_prompt="\ud800")), key="k")
        for key in ("", "x" * 257, "a\nb", "schlüssel"):
            with pytest.raises(RejectedError, match="idempotency"):
                await to.create_thread(NEW, key=key)
        assert server.seen == []


async def test_an_answer_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CLIENT_BODY_BYTES_MAX", 1_000)
    async with serving(Answer(200, b"x" * 1_001)) as server, commands_to(server) as to:
        with pytest.raises(TransientError, match="without an end"):
            await to.info()


EVENTS_ODDLY: dict[str, bytes] = {
    "another document": b"[]",
    "no end": b'{"events":[',
    "no events": b'{"events":[1,2],"has_more":false,"as_of_seq":1}',
    "half an event": b'{"events":[{"seq":0}],"has_more":false,"as_of_seq":1}',
    "very deep": b'{"events":[' + b"[" * 100_000,
    "no text": b'{"events":["\xff"]}',
}


@pytest.mark.parametrize("name", EVENTS_ODDLY)
async def test_a_page_that_is_none_is_an_error_of_ours(name: str) -> None:
    async with serving(VERDICT, Answer(200, EVENTS_ODDLY[name])) as server:
        way = Connection(server.base, KEY)
        reader = HttpReader(way, LOCAL)
        with pytest.raises(ThreadlogError):
            _ = [e async for e in reader.events(ThreadId(THREAD))]
        await way.close()


# -- a real gateway


async def test_a_key_may_do_what_its_scopes_say(short_dir: Path) -> None:
    async with ways_to(short_dir, scripted('{"text":"done"}')) as ways:
        turn = await ways.runtime.turn("one")
        reader = ways.reader("http", READ_TOKEN)
        assert (await reader.thread(turn.thread_id)).head == turn.seq
        with pytest.raises(ScopeMissingError, match="ops:read"):
            await reader.views.voids(LOCAL, turn.thread_id, limit=1)
        with pytest.raises(ScopeMissingError, match="threads:write"):
            await ways.commands("http", READ_TOKEN).create_thread(NEW, key="k")
        ways.keys.tokens["another"] = credential("dddddddddddd", OTHER, "threads:read")
        with pytest.raises(NotFoundError):
            await ways.reader("http", "another").thread(turn.thread_id)
        with pytest.raises(UnauthenticatedError):
            await ways.reader("http", "nobody's").thread(turn.thread_id)


async def test_threads_are_listed_whatever_the_pages(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "READ_EVENTS_MAX", 2)
    async with ways_to(short_dir, StepModel()) as ways:
        made = [
            (await ways.runtime.commands.create_thread(NewThread(), key=f"{n}")).thread_id
            for n in range(7)
        ]
        views = ways.reader("http").views
        rows = await views.threads(LOCAL, limit=6)
        assert [row.thread_id for row in rows] == made[:0:-1]
        # Behind a place with a token, and behind one that only another client has seen.
        rest = [row.thread_id for row in await views.threads(LOCAL, limit=9, before=rows[3].place)]
        assert rest == made[2::-1]
        other = ways.reader("http").views
        assert await other.threads(LOCAL, limit=9, before=rows[3].place) == await views.threads(
            LOCAL, limit=9, before=rows[3].place
        )


async def test_nobody_there_is_an_error_by_the_way_one_came(short_dir: Path) -> None:
    async with ways_to(short_dir, StepModel()) as ways:
        by_socket, by_http = ways.commands("socket"), ways.commands("http")
        await ways.stop_serving()
        with pytest.raises(LockedError):
            await by_socket.create_thread(NEW, key="k")
        with pytest.raises(TransientError) as caught:
            await by_http.create_thread(NEW, key="k")
        assert not isinstance(caught.value, LockedError)


async def test_a_stream_survives_the_gateway_and_not_its_key(short_dir: Path) -> None:
    model = StepModel()
    async with ways_to(short_dir, model) as ways, asyncio.timeout(DEADLINE_S):
        sent = await ways.runtime.commands.create_thread(NEW, key="k")
        exchange = await model.asked()
        found: list[StoredEvent | LiveDelta] = []
        reader = ways.reader("socket")
        following = asyncio.create_task(_collect(reader, sent.thread_id, found))
        await _until(lambda: len(found) >= 5)
        exchange.on_delta(Delta("text", "all "))
        await _until(lambda: _said(found) == "all ")
        await ways.stop_serving()
        exchange.on_delta(Delta("text", "is "))
        ways.serve()
        # Joined again in the middle of the response: what was missed comes first.
        await _until(lambda: _said(found) == "all is ")
        exchange.on_delta(Delta("text", "well"))
        await _until(lambda: _said(found) == "all is well")
        exchange.answer(reply("all is well"))
        result = await ways.reader("http").turn_result(sent.thread_id, sent.event_id, sent.seq)
        await _until(lambda: isinstance(found[-1], StoredEvent) and found[-1].seq == result.seq)
        seqs = [item.seq for item in found if isinstance(item, StoredEvent)]
        assert seqs == list(range(result.seq + 1))
        del ways.keys.tokens[TOKEN]
        with pytest.raises(UnauthenticatedError):
            await following


async def _collect(reader: object, thread: ThreadId, found: list[StoredEvent | LiveDelta]) -> None:
    assert isinstance(reader, HttpReader)
    async with aclosing(reader.follow(thread)) as items:  # type: ignore[type-var]  # a generator
        async for item in items:
            found.append(item)


def _said(found: list[StoredEvent | LiveDelta]) -> str:
    return "".join(item.text for item in found if isinstance(item, LiveDelta))


async def _until(is_so: Callable[[], object]) -> None:
    """Bound by whoever calls."""
    while not is_so():
        await asyncio.sleep(0.01)
