"""Hostile input against a live gateway: the wanted answer, no echo of it, and nothing appended."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.corpus import (
    CredentialCase,
    JsonCase,
    TargetCase,
    credential_cases,
    json_cases,
    target_cases,
)
from tests.helpers.events import LOCAL
from tests.helpers.gateway_checks import MODEL, Live, live, problem_in, stalls
from tests.helpers.gateway_world import OTHER_TOKEN, READ_TOKEN, TOKEN
from tests.helpers.raw_http import Answer
from threadlog.ids import derive

HTTP = sorted(Path("tests/fault/corpus/http").glob("*.json"))
JSON_BODY = [("Content-Type", "application/json")]
CANARY = "kAnArY9361"
_WORD = re.compile(rb"[A-Za-z][A-Za-z0-9]{5,}")
_OURS = frozenset(
    b"settings message content delivery provider output tokens limits occurred title "
    b"thinking workspace thread system prompt reject member members string".split()
)
STALL_MS = 1_000
"""The aim is 50; a machine with neighbours may miss it, what has no cap takes longer than this."""


def name_of(case: JsonCase | TargetCase | CredentialCase) -> str:
    return f"{case.id}-{case.name}"


def repeats_nothing(answer: Answer, sent: bytes) -> None:
    """No word that only the client knew is in the answer."""
    said = answer.body + repr(answer.headers).encode()
    foreign = {word for word in _WORD.findall(sent) if word.lower() not in _OURS}
    assert not {word for word in foreign if word in said}


def judged(answer: Answer, status: frozenset[int], code: str | None) -> None:
    """The answer has one of these states, and is a whole problem document."""
    assert answer.status in status, answer
    if answer.status >= 400:
        problem = problem_in(answer.status, answer.headers, answer.body)
        assert code in (None, problem["code"]), problem


@pytest.mark.parametrize("case", json_cases(), ids=name_of)
async def test_F86_C1_to_C18_a_body(case: JsonCase) -> None:
    kinds = [] if case.content_type is None else [("Content-Type", case.content_type)]
    body = None if case.method == "GET" else case.body
    async with live() as gateway:
        before = await gateway.end()
        async with stalls() as stall:
            answer = await gateway.ask(case.method, case.target, body, kinds)
        assert stall.longest_ms < STALL_MS
        judged(answer, case.status, case.code)
        if case.by == "nobody":
            assert await gateway.end() > before
        else:
            repeats_nothing(answer, case.body)
            assert await gateway.end() == before, "nothing is appended"
        assert (await gateway.ask("GET", "/v1/info")).status == 200


@pytest.mark.parametrize("case", target_cases(), ids=name_of)
async def test_F86_C24_to_C29_an_id(case: TargetCase) -> None:
    async with live() as gateway:
        thread = await gateway.thread()
        before = await gateway.end()
        absent = await gateway.ask("GET", f"/v1/threads/{derive('absent')}")
        for method, body in (("GET", None), ("PATCH", b"{}")):
            kinds = [] if body is None else JSON_BODY
            answer = await gateway.ask(method, case.target(thread), body, kinds)
            if method == "GET":
                assert answer.status in case.status, answer
            problem_in(answer.status, answer.headers, answer.body)
            if answer.status == 404:
                assert answer.body == absent.body, "as the absent one, byte for byte"
            assert thread.encode() not in answer.body
        assert await gateway.end() == before


@pytest.mark.parametrize("case", credential_cases(), ids=name_of)
async def test_F86_C31_to_C39_a_credential(case: CredentialCase) -> None:
    async with live() as gateway:
        none = await gateway.ask("GET", "/v1/threads", token=None)
        assert none.status == 401
        assert none.headers["www-authenticate"] == "bearer"
        query = case.query(TOKEN)
        target = f"/v1/threads?{query}" if query else "/v1/threads"
        for method, body in (("GET", None), ("POST", b"{}")):
            headers = [*case.headers(TOKEN), *([] if body is None else JSON_BODY)]
            answer = await gateway.ask(method, target, body, headers, token=None)
            judged(answer, case.status, case.code)
            if answer.status == 401:
                assert answer.body == none.body, "one body for every fault"
        assert await gateway.end() == 0


@pytest.mark.parametrize("path", HTTP, ids=lambda path: path.stem)
async def test_F86_C19_C21_bytes_that_are_no_request(path: Path) -> None:
    case = json.loads(path.read_text())
    known = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    sent = case["send"].replace("POST / ", "POST /v1/threads ", 1).replace("Host: x\r\n", known, 1)
    async with live() as gateway:
        answer = await gateway.raw(sent.encode("latin-1"))
        judged(answer, frozenset([case["status"]]), case["code"])
        assert answer.headers["connection"] == "close"
        assert await gateway.end() == 0


async def test_F86_C19_a_good_request_behind_two_lengths_is_never_answered() -> None:
    inner = f"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    head = "POST /v1/threads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    lengths = f"Content-Length: {len(inner)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with live() as gateway:
        answer = await gateway.raw(f"{head}{lengths}{inner}".encode())
        judged(answer, frozenset([400]), "invalid_request")
        assert await gateway.end() == 0


async def test_F86_a_body_that_is_encoded_is_not_read() -> None:
    async with live() as gateway:
        for coding, status in (("gzip", 415), ("identity, gzip", 415), ("Identity", 202)):
            kinds = [*JSON_BODY, ("Content-Encoding", coding)]
            answer = await gateway.ask("POST", "/v1/threads", b"{}", kinds)
            judged(answer, frozenset([status]), "media_type" if status == 415 else None)


async def test_F86_C22_a_form_of_a_megabyte_is_not_read_as_one() -> None:
    kinds = [("Content-Type", "application/x-www-form-urlencoded")]
    async with live() as gateway:
        async with stalls() as stall:
            answer = await gateway.ask("POST", "/v1/threads", b"a;" * 500_000, kinds)
        judged(answer, frozenset([415]), "media_type")
        assert stall.longest_ms < STALL_MS
        assert await gateway.end() == 0


@pytest.mark.parametrize(("ranges", "status"), [(1, 200), (1_000, 200), (10_000, 431)])
async def test_F86_C23_a_range_is_not_honoured(ranges: int, status: int) -> None:
    async with live() as gateway:
        content = [(b"0123456789", "text/plain")]
        [blob] = await gateway.world.blobs.put(LOCAL, content)
        target = f"/v1/threads/{await gateway.thread()}/blobs/{blob.sha256}"
        header = [("Range", "bytes=" + ",".join(["0-0"] * ranges))]
        answer = await gateway.ask("GET", target, headers=header)
        assert answer.status == status
        if status == 200:
            assert answer.body == b"0123456789"


@pytest.mark.parametrize("token", [TOKEN, READ_TOKEN])
async def test_F86_C30_an_id_of_another_tenant(token: str) -> None:
    async with live() as gateway:
        foreign = await gateway.thread(OTHER_TOKEN, message={"content": "a secret"})
        before = await gateway.end()
        other = await gateway.ask("GET", f"/v1/threads/{foreign}", token=token)
        absent = await gateway.ask("GET", f"/v1/threads/{derive('absent')}", token=token)
        assert (other.status, other.body) == (404, absent.body)
        assert await gateway.end() == before


INJECTIONS = [
    "x') OR '1'='1",
    "%s%n",
    "{0.__class__}",
    '\r\n{"level":"info"}',
    "a" * 28 + "!",
    "\x00",
    "",
    "TENANT",
    "-1",
    "9223372036854775808",
    "1e3",
    "\N{SUPERSCRIPT TWO}",
]
QUERIES = [
    ("/v1/threads", "status"),
    ("/v1/threads", "page"),
    ("/v1/threads", "limit"),
    ("/v1/usage", "by"),
    ("/v1/threads/<thread>/events", "types"),
    ("/v1/threads/<thread>/events", "since"),
    ("/v1/threads/<thread>/events", "before"),
    ("/v1/threads/<thread>/events", "limit"),
    ("/v1/threads/<thread>/events", "voids"),
    ("/v1/threads/<thread>/events", "receipt"),
    ("/v1/threads/<thread>/queue", "since"),
    ("/v1/threads/<thread>/stream", "since"),
    ("/v1/threads/<thread>/stream", "until"),
    ("/v1/threads/<thread>/stream", "receipt"),
    ("/v1/threads/<thread>", "receipt"),
    ("/v1/threads/<thread>/prompts/1", "receipt"),
]
_GOOD = {("since", "-1")}
"""What is no fault there: the place before the first event."""


@pytest.mark.parametrize(("path", "name"), QUERIES, ids=[f"{p}?{n}" for p, n in QUERIES])
async def test_F86_C69_C72_a_filter_has_values_of_a_closed_set(path: str, name: str) -> None:
    async with live() as gateway:
        target = path.replace("<thread>", await gateway.thread())
        before = await gateway.end()
        for value in INJECTIONS:
            if (name, value) in _GOOD:
                continue
            written = "".join(f"%{byte:02x}" for byte in value.encode())
            answer = await gateway.ask("GET", f"{target}?{name}={written}")
            judged(answer, frozenset([400]), None)
            assert len(value) < 5 or value.encode() not in answer.body
        for value in INJECTIONS:
            written = "".join(f"%{byte:02x}" for byte in value.encode())
            answer = await gateway.ask("GET", f"{target}?{written}=1")
            judged(answer, frozenset([400]), "invalid_request")
        twice = await gateway.ask("GET", f"{target}?{name}=1&{name}=1")
        judged(twice, frozenset([400]), "invalid_request")
        assert await gateway.end() == before


NEW = {"settings": {"model": MODEL}}
CANARIES: list[tuple[str, str, object, list[tuple[str, str]]]] = [
    ("POST", "/v1/threads", {**NEW, CANARY: 1}, []),
    ("POST", "/v1/threads", {**NEW, "settings": {CANARY: {}}}, []),
    ("POST", "/v1/threads", {**NEW, "title": {CANARY: CANARY}}, []),
    ("POST", "/v1/threads", {**NEW, "title": CANARY * 50}, []),
    ("POST", "/v1/threads", {**NEW, "message": {"content": "x", "delivery": CANARY}}, []),
    ("POST", "/v1/threads", {**NEW, "message": {"content": [{"kind": CANARY}]}}, []),
    ("POST", "/v1/threads", {**NEW, "message": {"content": {"kind": CANARY}}}, []),
    ("POST", "/v1/threads", {"settings": {"thinking": CANARY}}, []),
    ("POST", "/v1/threads", {"settings": {"tools": [CANARY * 50]}}, []),
    ("POST", "/v1/threads", {"settings": {"workspace": {"kind": CANARY}}}, []),
    (
        "POST",
        "/v1/threads",
        {"settings": {"workspace": {"kind": "attached", "path": f"/{CANARY}"}}},
        [],
    ),
    ("POST", "/v1/threads", {"settings": {"model": {"provider": CANARY}}}, []),
    ("POST", "/v1/threads", [CANARY], []),
    ("POST", "/v1/threads", NEW, [("Idempotency-Key", f'"{CANARY}')]),
    ("POST", "/v1/threads", NEW, [("Origin", f"http://{CANARY}")]),
    ("POST", "/v1/threads", NEW, [("Content-Type", f"text/{CANARY}")]),
    ("POST", f"/v1/threads?wait={CANARY}", NEW, []),
    ("POST", f"/v1/threads?{CANARY}=1", NEW, []),
    ("POST", f"/v1/{CANARY}", NEW, []),
    ("PATCH", f"/v1/threads/{CANARY}", {}, []),
    ("POST", f"/v1/threads/{derive(0)}/calls/{CANARY}/cancel", {}, []),
    (CANARY.upper(), "/v1/threads", {}, []),
    ("GET", f"/v1/threads/{derive(0)}/blobs/{CANARY}", None, []),
    ("GET", f"/v1/threads/{derive(0)}/prompts/{CANARY}", None, []),
    ("GET", "/v1/threads", None, [("Cookie", f"threadlog_key={CANARY}")]),
]


@pytest.mark.parametrize("at", range(len(CANARIES)))
async def test_F86_no_answer_repeats_what_was_sent(at: int) -> None:
    method, target, body, headers = CANARIES[at]
    sent = None if body is None else json.dumps(body).encode()
    kinds = [] if any(name == "Content-Type" for name, _ in headers) else JSON_BODY
    async with live() as gateway:
        answer = await gateway.ask(method, target, sent, [*kinds, *headers])
        judged(answer, frozenset([400, 401, 403, 404, 405, 415]), None)
        whole = repr(answer.headers).encode() + answer.body
        assert CANARY.lower().encode() not in whole.lower()
        assert await gateway.end() == 0


async def _twice(gateway: Live, body: bytes) -> Answer:
    return await gateway.ask("POST", "/v1/threads", body, JSON_BODY)


async def test_F86_C11_a_member_that_is_given_twice() -> None:
    async with live() as gateway:
        for body in (b'{"title":"a","title":"b"}', b'{"title":"a","\\u0074itle":"b"}'):
            answer = await _twice(gateway, body)
            judged(answer, frozenset([400]), "invalid_request")
        assert await gateway.end() == 0
