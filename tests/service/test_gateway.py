"""The routes over all services on one file: what they answer, and what is in the log then."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.helpers.embedded import Embedded, InstantTools, embedded, scripted
from tests.helpers.events import LOCAL
from tests.helpers.gateway_world import BASE, TOKEN
from threadlog.api.events import event_of
from threadlog.bootstrap.gateway import LocalUser, embedded_ports
from threadlog.bootstrap.keys import open_keys
from threadlog.commands.inputs import intent_of
from threadlog.commands.making import Maker
from threadlog.commands.requests import Appended, NewMessage
from threadlog.events.content import TextPart
from threadlog.gateway.app import create_app
from threadlog.gateway.parameters import receipt_text
from threadlog.ids import Position, Seq, ThreadId
from threadlog.settings import Settings

CALLS = {"text": "I look.", "calls": ["echo one", "echo two"]}
DONE = {"text": "all is well", "usage": {"input": 10, "output": 4}}
SLOW = {"text": "slowly", "delay_ms": 60_000}
MODEL = {"provider": "scripted", "name": "small"}
NEW = {"settings": {"model": MODEL}, "message": {"content": "go"}}
Json = dict[str, Any]


@asynccontextmanager
async def served(
    folder: Path, *replies: Json, **settings: Any
) -> AsyncIterator[tuple[httpx2.AsyncClient, Embedded]]:
    """A client of a gateway whose services answer with these replies."""
    model = scripted(*map(json.dumps, replies))
    async with embedded(folder / "log.db", model, InstantTools()) as runtime:
        given = Settings(data_dir=folder, **settings)
        ports = embedded_ports(given, runtime.services.ports, LocalUser(TOKEN, "user:ann"), {})
        transport = httpx2.ASGITransport(create_app(ports))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(
            transport=transport, base_url=BASE, headers=headers, timeout=30
        ) as client:
            yield client, runtime


async def ended(client: httpx2.AsyncClient, body: Json, thread: str | None = None) -> Json:
    """The turn that took this message."""
    path = "/v1/threads" if thread is None else f"/v1/threads/{thread}/messages"
    answer = await client.post(path, json=body, params={"wait": 30})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def got(client: httpx2.AsyncClient, path: str, **params: str | int) -> Json:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def test_a_message_is_answered_and_its_turn_waited_for(tmp_path: Path) -> None:
    async with served(tmp_path, CALLS, DONE) as (client, _):
        turn = await ended(client, NEW)
        assert (turn["verdict"], turn["answer"], turn["steps"]) == ("completed", "all is well", 2)
        thread = await got(client, f"/v1/threads/{turn['thread_id']}", receipt=turn["receipt"])
        assert thread["receipt"] == {"event_id": turn["event_id"], "seq": 2, "void": None}
        assert (thread["status"], thread["head"], thread["turns"]) == ("idle", turn["seq"], 1)
        assert (thread["as_of_seq"], thread["behind_ms"]) == (turn["seq"], 0)
        assert (thread["verdict"], thread["model"]) == ("completed", "scripted/small")
        assert thread["usage"]["output"] == 4


async def test_F03_an_answer_says_accepted_once_the_events_are_durable(tmp_path: Path) -> None:
    async with served(tmp_path, SLOW) as (client, runtime):
        answer = await client.post("/v1/threads", json=NEW, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
        assert set(answer.json()) == {"thread_id", "event_id", "receipt"}, "no seq, no turn"
        thread = answer.json()["thread_id"]
        assert answer.headers["location"] == f"/v1/threads/{thread}"
        ids = {event.event_id for event, _ in await runtime.judged(ThreadId(thread))}
        assert answer.json()["event_id"] in ids
        again = await client.post("/v1/threads", json=NEW, headers={"Idempotency-Key": '"k"'})
        assert again.json()["event_id"] == answer.json()["event_id"], "quoted or bare"
        other = {**NEW, "message": {"content": "another"}}
        refused = await client.post("/v1/threads", json=other, headers={"Idempotency-Key": "k"})
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_mismatch")


async def test_a_wait_that_is_over_says_accepted_again(tmp_path: Path) -> None:
    async with served(tmp_path, SLOW) as (client, _):
        answer = await client.post("/v1/threads", json=NEW, params={"wait": 1})
        assert answer.status_code == 202
        assert answer.json()["receipt"]


async def test_reject_meets_an_open_turn_and_next_turn_waits_in_the_inbox(tmp_path: Path) -> None:
    async with served(tmp_path, SLOW) as (client, runtime):
        sent = (await client.post("/v1/threads", json=NEW)).json()
        path = f"/v1/threads/{sent['thread_id']}"
        await got(client, path, receipt=sent["receipt"])
        refused = await client.post(f"{path}/messages", json={"content": "now"})
        assert (refused.status_code, refused.json()["code"]) == (409, "turn_open")
        later = {"content": [{"kind": "text", "text": "later"}], "delivery": "next_turn"}
        queued = (await client.post(f"{path}/messages", json=later)).json()
        queue = await got(client, f"{path}/queue", receipt=queued["receipt"])
        [waiting] = [m for m in queue["messages"] if m["message_id"] == queued["event_id"]]
        assert waiting["content"] == later["content"]
        assert (waiting["delivery"], waiting["actor"]) == ("next_turn", "user:ann")
        judged = await runtime.judged(ThreadId(sent["thread_id"]))
        assert [e.type for e, _ in judged].count("message.received") == 2, "none was appended"


async def test_a_turn_is_cancelled_whichever_is_open(tmp_path: Path) -> None:
    async with served(tmp_path, SLOW, DONE) as (client, _):
        sent = (await client.post("/v1/threads", json=NEW)).json()
        path = f"/v1/threads/{sent['thread_id']}"
        async with asyncio.timeout(20):
            while (await got(client, path, receipt=sent["receipt"]))["open_turn"] is None:
                await asyncio.sleep(0.01)
        for body in ({}, {"queue": "drop"}):
            refused = await client.post(f"{path}/cancel", json=body)
            assert refused.status_code == 400, "there is no default"
        key = {"Idempotency-Key": "stop"}
        stopped = await client.post(f"{path}/cancel", json={"queue": "keep"}, headers=key)
        assert stopped.status_code == 202, stopped.text
        async with asyncio.timeout(20):
            while (await got(client, path))["status"] != "idle":
                await asyncio.sleep(0.01)
        assert (await got(client, path))["verdict"] == "cancelled"
        again = await client.post(f"{path}/cancel", json={"queue": "keep"}, headers=key)
        assert again.json()["event_id"] == stopped.json()["event_id"]
        late = await client.post(f"{path}/cancel", json={"queue": "keep"})
        assert (late.status_code, late.json()["code"]) == (409, "conflict")


async def test_events_are_paged_both_ways_and_are_those_of_the_log(tmp_path: Path) -> None:
    async with served(tmp_path, CALLS, DONE) as (client, runtime):
        turn = await ended(client, NEW)
        path = f"/v1/threads/{turn['thread_id']}/events"
        log = [e for e, j in await runtime.judged(ThreadId(turn["thread_id"])) if j.void is None]
        newest = (await client.get(path, params={"limit": 500})).content
        lines = json.loads(newest)["events"]
        assert [line["seq"] for line in lines] == list(range(len(log)))
        assert [line["payload"] for line in lines] == [json.loads(e.data) for e in log]
        up: list[int] = []
        since = -1
        while True:
            page = await got(client, path, since=since, limit=5)
            up += [event["seq"] for event in page["events"]]
            if not page["has_more"]:
                break
            since = page["next"]
        down: list[int] = []
        before = len(log)
        while True:
            page = await got(client, path, before=before, limit=5)
            down += [event["seq"] for event in page["events"]]
            if not page["has_more"]:
                break
            before = page["next"]
        assert up == list(range(len(log)))
        assert down == up[::-1]
        only = await got(client, path, types="turn.started,turn.finished", since=-1)
        assert [event["type"] for event in only["events"]] == ["turn.started", "turn.finished"]
        assert (await got(client, path, since=len(log) - 1))["events"] == []


async def test_an_event_of_the_wire_is_the_event_of_the_log(tmp_path: Path) -> None:
    async with served(tmp_path, CALLS, DONE) as (client, runtime):
        turn = await ended(client, NEW)
        log = [e for e, j in await runtime.judged(ThreadId(turn["thread_id"])) if j.void is None]
        for seq, event in enumerate(log):
            path = f"/v1/threads/{turn['thread_id']}/events"
            text = (await client.get(path, params={"since": seq - 1, "limit": 1})).text
            line = text.removeprefix('{"events":[').partition('],"has_more"')[0]
            assert event_of(line) == (event, seq, None)


async def test_F06_a_prompt_is_rebuilt_and_has_the_hash_that_was_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, CALLS, DONE) as (client, _):
        turn = await ended(client, NEW)
        path = f"/v1/threads/{turn['thread_id']}"
        steps = await got(client, f"{path}/events", types="step.started", since=-1)
        assert len(steps["events"]) == 2
        for step in steps["events"]:
            prompt = await got(client, f"{path}/prompts/{step['seq']}")
            assert prompt["matches"] is True
            assert prompt["request_sha256"] == step["payload"]["manifest"]["request_sha256"]
            said = hashlib.sha256(prompt["request"].encode()).hexdigest()
            assert said == prompt["rebuilt_sha256"]
        assert (await client.get(f"{path}/prompts/0")).status_code == 404
        monkeypatch.setattr("threadlog.gateway.reads.PROMPT_BYTES_MAX", 10)
        large = await client.get(f"{path}/prompts/{steps['events'][0]['seq']}")
        assert (large.status_code, "are rebuilt here" in large.text) == (403, True)


async def test_a_long_text_is_a_blob_of_its_tenant(tmp_path: Path) -> None:
    async with served(tmp_path, DONE) as (client, _):
        text = "a long text " * 20_000
        turn = await ended(client, {**NEW, "message": {"content": text}})
        path = f"/v1/threads/{turn['thread_id']}"
        [message] = (await got(client, f"{path}/events", types="message.received", since=-1))[
            "events"
        ]
        ref = message["payload"]["content"][0]["text"]
        blob = await client.get(f"{path}/blobs/{ref['sha256']}", headers={"Range": "bytes=0-9"})
        assert (blob.status_code, blob.text) == (200, text), "a range is not honoured"
        assert blob.headers["content-type"] == "application/octet-stream"
        assert blob.headers["content-disposition"] == "attachment"
        assert (await client.get(f"{path}/blobs/{'0' * 64}")).status_code == 404


async def test_threads_are_listed_page_by_page(tmp_path: Path) -> None:
    async with served(tmp_path, DONE) as (client, _):
        made = [(await ended(client, NEW))["thread_id"] for _ in range(5)]
        seen: list[str] = []
        params: dict[str, str | int] = {"limit": 2}
        while True:
            page = await got(client, "/v1/threads", **params)
            seen += [thread["thread_id"] for thread in page["threads"]]
            if page["next"] is None:
                break
            params["page"] = page["next"]
        assert seen == made[::-1]
        before = await got(client, "/v1/threads", before=made[2])
        assert [t["thread_id"] for t in before["threads"]] == [made[1], made[0]]
        assert (await got(client, "/v1/threads", status="open"))["threads"] == []
        assert len((await got(client, "/v1/threads", status="idle"))["threads"]) == 5
        forged = await client.get("/v1/threads", params={"page": "AAAA"})
        assert (forged.status_code, forged.json()["code"]) == (400, "cursor_invalid")


async def test_usage_is_what_was_billed(tmp_path: Path) -> None:
    async with served(tmp_path, DONE) as (client, _):
        first, second = await ended(client, NEW), await ended(client, NEW)
        everything = await got(client, "/v1/usage", by="model,thread")
        assert everything["total"]["output"] == 8
        assert {line["group"]["thread"] for line in everything["lines"]} == {
            first["thread_id"],
            second["thread_id"],
        }
        one = await got(client, "/v1/usage", by="model", thread=first["thread_id"])
        assert (one["total"]["output"], one["total"]["steps"]) == (4, 1)
        for wrong in ("tenant,tenant", "cost", "", "model "):
            assert (await client.get("/v1/usage", params={"by": wrong})).status_code == 400


async def test_who_answers_and_what_may_be_asked(tmp_path: Path) -> None:
    gateway = {"models": ("scripted/small", "scripted/large")}
    async with served(tmp_path, DONE, gateway=gateway) as (client, _):
        info = await got(client, "/v1/info")
        assert info["tenant_id"] == "local"
        assert "attached_workspaces" in info["capabilities"]
        models = await got(client, "/v1/models")
        assert [m["name"] for m in models["models"]] == ["small", "large"]
        assert models["any"] is False
        foreign = {"settings": {"model": {"provider": "openai", "name": "x"}}}
        refused = await client.post("/v1/threads", json=foreign)
        assert (refused.status_code, refused.json()["code"]) == (403, "denied")


async def test_a_folder_of_the_machine_is_attached_by_its_owner_alone(tmp_path: Path) -> None:
    attached = {"settings": {"model": MODEL, "workspace": {"kind": "attached", "path": "/srv"}}}
    async with served(tmp_path, DONE) as (client, runtime):
        assert (await client.post("/v1/threads", json=attached)).status_code == 202
        keys = open_keys(Settings(data_dir=tmp_path), runtime.services.ports.clock)
        key = keys.create(LOCAL, "robot", ("threads:write",), None)[1]
        headers = {"Authorization": f"Bearer {key}"}
        refused = await client.post("/v1/threads", json=attached, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "denied")
        managed = await client.post("/v1/threads", json=NEW, headers=headers)
        assert managed.status_code == 202, managed.text


@pytest.mark.parametrize(
    "name",
    [
        "evil.example",
        "localhost.evil.example",
        "[::1",
        "127.0.0.1.x",
        "evil@localhost",
        "evil.com:1@localhost:2",
        "localhost/evil",
        "localhost#evil.com",
        "localhost:abc",
    ],
)
async def test_a_name_of_a_stranger_and_a_page_of_one_are_refused(
    tmp_path: Path, name: str
) -> None:
    async with served(tmp_path, DONE) as (client, _):
        for headers in ({"Host": name}, {"Origin": f"http://{name}"}):
            refused = await client.get("/v1/info", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "denied")
        for headers in ({"Host": "127.0.0.1:8080"}, {"Origin": BASE}, {"Host": "[::1]:1"}):
            assert (await client.get("/v1/info", headers=headers)).status_code == 200


async def test_a_page_of_a_named_origin_may_ask(tmp_path: Path) -> None:
    page = "https://app.example"
    gateway = {"origins": (page,)}
    async with served(tmp_path, DONE, gateway=gateway) as (client, _):
        asked = await client.get("/v1/info", headers={"Origin": page})
        assert asked.headers["access-control-allow-origin"] == page
        preflight = await client.request(
            "OPTIONS",
            "/v1/threads",
            headers={
                "Origin": page,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,idempotency-key",
            },
        )
        assert preflight.status_code == 200
        refused = await client.get("/v1/info", headers={"Origin": "https://other.example"})
        assert refused.status_code == 403
        assert "access-control-allow-origin" not in refused.headers


async def test_a_page_of_a_named_origin_can_read_every_refusal(tmp_path: Path) -> None:
    page = "https://app.example"
    asked = {"Origin": page, "Access-Control-Request-Method": "POST"}
    async with served(tmp_path, DONE, gateway={"origins": (page,)}) as (client, _):
        for method, path, headers in [
            ("GET", "/v1/%69nfo", {"Origin": page}),
            ("GET", "/v1/nothing", {"Origin": page}),
            ("GET", "/v1/info", {"Origin": page, "Authorization": "Bearer x"}),
            ("GET", "/v1/info", {"Origin": page, "Host": "other.example"}),
            ("OPTIONS", "/v1/threads", {**asked, "Access-Control-Request-Method": "DELETE"}),
            ("OPTIONS", "/v1/threads", {**asked, "Access-Control-Request-Headers": "x-other"}),
        ]:
            refused = await client.request(method, path, headers=headers)
            assert refused.headers["access-control-allow-origin"] == page
            assert refused.json()["status"] == refused.status_code >= 400
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.headers["cache-control"] == "no-store"
        traced = {**asked, "Access-Control-Request-Headers": "traceparent"}
        assert (await client.options("/v1/threads", headers=traced)).status_code == 200


async def test_signing_out_takes_the_cookie_away_whatever_is_in_it(tmp_path: Path) -> None:
    """A key that was revoked is in a cookie still, which no script of the page can take away."""
    async with served(tmp_path, DONE) as (client, _):
        del client.headers["Authorization"]
        for headers in ({}, {"Cookie": "threadlog_key=revoked"}, {"Cookie": "threadlog_key=a b"}):
            answer = await client.post("/v1/sign-out", headers=headers)
            assert answer.status_code == 204
            cookie = answer.headers["set-cookie"].lower()
            assert cookie.startswith('threadlog_key="";')
            assert "max-age=0" in cookie
            assert "path=/v1" in cookie
        stranger = await client.post("/v1/sign-out", headers={"Origin": "https://other.example"})
        assert stranger.status_code == 403


async def test_the_deliveries_that_are_not_there_yet_are_refused_by_name(tmp_path: Path) -> None:
    async with served(tmp_path, DONE) as (client, _):
        turn = await ended(client, NEW)
        path = f"/v1/threads/{turn['thread_id']}/messages"
        for delivery in ("next_step", "interrupt"):
            refused = await client.post(path, json={"content": "x", "delivery": delivery})
            assert refused.status_code == 400


async def test_a_receipt_tells_that_another_body_is_in_force(tmp_path: Path) -> None:
    """Two requests with one key race past the look at the views: the first in the log counts."""
    async with served(tmp_path, SLOW) as (client, runtime):
        ports = runtime.services.ports
        maker = Maker(ports.blobs, ports.clock, LOCAL, "user:ann")
        sent = (await client.post("/v1/threads", json=NEW, headers={"Idempotency-Key": "k"})).json()
        thread = ThreadId(sent["thread_id"])
        await got(client, f"/v1/threads/{thread}", receipt=sent["receipt"])
        said = await maker.content(NewMessage((TextPart(text="another"),), "reject"))
        other = maker.message(thread, said, "k", Seq(-1), is_first=True)
        [late] = await ports.log.append([other])
        done = Appended(thread, other.event_id, late.position, intent=intent_of(other))
        assert other.event_id == sent["event_id"]
        answer = await client.get(f"/v1/threads/{thread}", params={"receipt": receipt_text(done)})
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")


async def test_a_report_of_too_many_groups_says_what_to_ask_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadlog.gateway.reads.USAGE_LINES_MAX", 1)
    async with served(tmp_path, DONE) as (client, _):
        made = [(await ended(client, NEW))["thread_id"] for _ in range(2)]
        refused = await client.get("/v1/usage", params={"by": "thread"})
        assert (refused.status_code, "for one thread" in refused.text) == (400, True)
        assert await got(client, "/v1/usage", by="thread", thread=made[0])
        assert await got(client, "/v1/usage", by="model")


async def test_a_wait_ends_with_the_turn_of_its_message_whatever_follows(tmp_path: Path) -> None:
    """The thread goes on with the next message; this one has its answer."""
    async with served(tmp_path, DONE, SLOW) as (client, _):
        first = asyncio.create_task(client.post("/v1/threads", json=NEW, params={"wait": 30}))
        path = ""
        async with asyncio.timeout(20):
            while not path:
                threads = (await got(client, "/v1/threads"))["threads"]
                path = f"/v1/threads/{threads[0]['thread_id']}" if threads else ""
                await asyncio.sleep(0)
            more = {"content": "more", "delivery": "next_turn"}
            assert (await client.post(f"{path}/messages", json=more)).status_code == 202
            answer = await first
        assert (answer.status_code, answer.json()["answer"]) == (200, "all is well")


async def test_who_may_only_write_does_not_wait_for_what_is_written(tmp_path: Path) -> None:
    async with served(tmp_path, DONE) as (client, runtime):
        keys = open_keys(Settings(data_dir=tmp_path), runtime.services.ports.clock)
        key = keys.create(LOCAL, "writer", ("threads:write",), None)[1]
        headers = {"Authorization": f"Bearer {key}"}
        refused = await client.post("/v1/threads", json=NEW, params={"wait": 5}, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
        taken = await client.post("/v1/threads", json=NEW, headers=headers)
        assert taken.status_code == 202


async def test_every_write_says_where_its_thread_is(tmp_path: Path) -> None:
    async with served(tmp_path, SLOW) as (client, _):
        sent = await client.post("/v1/threads", json=NEW)
        where = f"/v1/threads/{sent.json()['thread_id']}"
        async with asyncio.timeout(20):
            while (await got(client, where, receipt=sent.json()["receipt"]))["open_turn"] is None:
                await asyncio.sleep(0.01)
        changed = await client.patch(where, json={"thinking": "low"})
        stopped = await client.post(f"{where}/cancel", json={"queue": "keep"})
        for answer in (sent, changed, stopped):
            assert (answer.status_code, answer.headers["location"]) == (202, where)


async def test_a_log_that_does_not_answer_holds_up_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, DONE) as (client, runtime):
        turn = await ended(client, NEW)
        path = f"/v1/threads/{turn['thread_id']}"
        assert (await got(client, path))["behind_ms"] == 0
        asked = asyncio.Event()

        async def never() -> Position:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr("threadlog.gateway.freshness._SAMPLE_MS", 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime.services.ports.log, "end", never)
            async with asyncio.timeout(5):
                behind = [(await got(client, path))["behind_ms"] for _ in range(20)]
            assert asked.is_set()
            assert behind == sorted(behind), "what is not known grows"
