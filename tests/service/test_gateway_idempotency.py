"""One key, one event: over HTTP, however often, however many at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx2
import pytest

from tests.helpers.gateway_checks import Json, problem_in
from tests.helpers.gateway_world import asking, gateway_ports
from tests.helpers.raw_http import DEADLINE_S
from tests.helpers.service_world import World
from tests.helpers.tenants import NEW
from threadlog.events.envelope import Event
from threadlog.events.thread import ThreadConfigured
from threadlog.limits import IDEMPOTENCY_KEY_CHARS_MAX
from threadlog.ports.log import Appender, Receipt

SAYS: Json = {"content": "hello", "delivery": "next_turn"}
KEY = "Idempotency-Key"


class HeldLog:
    """Implements `ports.log.Appender`: an append waits until the test lets it go on."""

    def __init__(self, log: Appender) -> None:
        self._log = log
        self.began = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def append(self, events: Sequence[Event]) -> Sequence[Receipt]:
        self.began.set()
        await self.may_go_on.wait()
        return await self._log.append(events)


@dataclass(slots=True)
class Thread:
    world: World
    client: httpx2.AsyncClient
    path: str

    async def post(self, to: str, body: Json, key: str | None = None) -> httpx2.Response:
        headers = {} if key is None else {KEY: key}
        return await self.client.post(f"{self.path}{to}", json=body, headers=headers)

    def accepted(self, kind: str) -> int:
        """How many events of this type count."""
        return [event.type for event in self.world.accepted()].count(kind)


@asynccontextmanager
async def a_thread() -> AsyncIterator[Thread]:
    async with World() as world, asking(gateway_ports(world)) as client:
        made = (await client.post("/v1/threads", json=NEW)).json()
        await world.views.wait(await world.log.end())
        yield Thread(world, client, f"/v1/threads/{made['thread_id']}")


@pytest.mark.parametrize(
    ("first", "second"), [("k", "k"), ("k", '"k"'), ('"k"', '"k"'), ('"a\\"b"', '"a\\"b"')]
)
async def test_F03_the_same_key_is_the_same_event(first: str, second: str) -> None:
    async with a_thread() as thread:
        one = await thread.post("/messages", SAYS, first)
        await thread.world.views.wait(await thread.world.log.end())
        two = await thread.post("/messages", SAYS, second)
        assert (one.status_code, two.status_code) == (202, 202)
        assert one.json()["event_id"] == two.json()["event_id"]
        assert thread.accepted("message.received") == 1
        made = await thread.client.post("/v1/threads", json=NEW, headers={KEY: first})
        again = await thread.client.post("/v1/threads", json=NEW, headers={KEY: second})
        assert made.json()["thread_id"] == again.json()["thread_id"]
        assert made.json()["event_id"] == again.json()["event_id"]
        assert made.headers["location"] == again.headers["location"]
        assert thread.accepted("thread.created") == 2


async def test_F03_a_repeat_that_overtakes_the_views_is_one_event_too() -> None:
    """The views do not know the first one yet: the copy is void by the fold."""
    async with a_thread() as thread:
        held = thread.world.projecting
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        one = await thread.post("/messages", SAYS, "k")
        two = await thread.post("/messages", SAYS, "k")
        assert one.json()["event_id"] == two.json()["event_id"]
        assert thread.world.told()[-2:] == ["message.received", "message.received!repeat"]
        assert thread.accepted("message.received") == 1
        thread.world.projecting = asyncio.create_task(asyncio.sleep(0))


@pytest.mark.parametrize(
    ("to", "first", "second"),
    [
        ("/messages", SAYS, {**SAYS, "content": "another"}),
        ("/messages", SAYS, {**SAYS, "delivery": "reject"}),
    ],
)
async def test_F03_the_same_key_with_another_body_is_refused(
    to: str, first: Json, second: Json
) -> None:
    async with a_thread() as thread:
        assert (await thread.post(to, first, "k")).status_code == 202
        await thread.world.views.wait(await thread.world.log.end())
        before = await thread.world.log.end()
        answer = await thread.post(to, second, "k")
        problem = problem_in(answer.status_code, answer.headers, answer.content)
        assert (answer.status_code, problem["code"]) == (422, "idempotency_mismatch")
        assert await thread.world.log.end() == before


async def test_F03_the_same_key_with_another_body_makes_no_second_thread() -> None:
    async with a_thread() as thread:
        message = {"message": {"content": "hello"}}
        bodies = [{**NEW, **message}, NEW, {**NEW, "message": {"content": "other"}}]
        for at, body in enumerate([*bodies, {**NEW, **message, "title": "another"}]):
            answer = await thread.client.post("/v1/threads", json=body, headers={KEY: "n"})
            assert answer.status_code == (422 if at else 202), (at, answer.text)
            await thread.world.views.wait(await thread.world.log.end())
        assert thread.accepted("thread.created") == 2


async def test_F03_a_key_of_another_operation_or_thread_is_another_key() -> None:
    async with a_thread() as thread:
        assert (await thread.post("/messages", SAYS, "k")).status_code == 202
        patched = await thread.client.patch(thread.path, json={}, headers={KEY: "k"})
        assert patched.status_code == 202, patched.text
        assert (thread.accepted("message.received"), thread.accepted("thread.configured")) == (1, 2)


async def test_F03_the_key_of_a_creation_is_free_for_the_thread_that_it_made() -> None:
    """What is sent with it later is neither lost nor taken for a part of the creation."""
    async with a_thread() as thread:
        world, client, key = thread.world, thread.client, {KEY: "n"}

        async def ask(method: str, path: str, body: Json) -> httpx2.Response:
            answer = await client.request(method, path, json=body, headers=key)
            assert answer.status_code == 202, answer.text
            await world.views.wait(await world.log.end())
            return answer

        full = {"settings": {**NEW["settings"], "thinking": "high"}, "message": SAYS}
        made = await ask("POST", "/v1/threads", full)
        path = made.headers["location"]
        await client.patch(path, json={"thinking": "low"})
        await world.views.wait(await world.log.end())
        await ask("PATCH", path, full["settings"])
        await ask("POST", f"{path}/messages", {**SAYS, "content": "another"})
        again = await ask("POST", "/v1/threads", full)
        assert again.json() == made.json(), "a repeat is a repeat, whatever came between"
        settings = [b.thinking for b in world.bodies(ThreadConfigured)][1:]
        assert settings == ["high", "low", "high"]
        assert thread.accepted("message.received") == 2


async def test_F03_a_message_with_the_key_of_a_creation_is_no_part_of_it() -> None:
    async with a_thread() as thread:
        made = await thread.client.post("/v1/threads", json=NEW, headers={KEY: "n"})
        await thread.world.views.wait(await thread.world.log.end())
        path = made.headers["location"]
        sent = await thread.client.post(f"{path}/messages", json=SAYS, headers={KEY: "n"})
        assert sent.status_code == 202
        await thread.world.views.wait(await thread.world.log.end())
        again = await thread.client.post("/v1/threads", json=NEW, headers={KEY: "n"})
        assert (again.status_code, again.json()) == (202, made.json())


async def test_F03_of_a_hundred_at_once_with_one_key_one_event_comes() -> None:
    async with a_thread() as thread:
        answers = await asyncio.gather(*(thread.post("/messages", SAYS, "k") for _ in range(100)))
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) <= {202, 409}
        assert statuses[202] >= 1
        for answer in answers:
            if answer.status_code == 409:
                problem = problem_in(409, answer.headers, answer.content)
                assert problem["code"] == "idempotency_in_flight"
        ids = {answer.json()["event_id"] for answer in answers if answer.status_code == 202}
        await thread.world.views.wait(await thread.world.log.end())
        assert (len(ids), thread.accepted("message.received")) == (1, 1)
        made = await asyncio.gather(
            *(thread.client.post("/v1/threads", json=NEW, headers={KEY: "n"}) for _ in range(100))
        )
        assert {answer.status_code for answer in made} <= {202, 409}
        await thread.world.views.wait(await thread.world.log.end())
        assert thread.accepted("thread.created") == 2


async def test_F03_a_key_that_is_being_answered_is_in_flight() -> None:
    async with World() as world:
        log = HeldLog(world.log)
        async with asking(replace(gateway_ports(world), log=log)) as client:
            sent = {KEY: "k"}
            first = asyncio.create_task(client.post("/v1/threads", json=NEW, headers=sent))
            await asyncio.wait_for(log.began.wait(), DEADLINE_S)
            second = await client.post("/v1/threads", json=NEW, headers={KEY: '"k"'})
            problem = problem_in(second.status_code, second.headers, second.content)
            assert (second.status_code, problem["code"]) == (409, "idempotency_in_flight")
            log.may_go_on.set()
            assert (await first).status_code == 202
            again = await client.post("/v1/threads", json=NEW, headers=sent)
            assert again.json()["event_id"] == first.result().json()["event_id"]


async def test_F03_a_reject_that_lost_its_race_says_that_its_key_is_used_up() -> None:
    """It passed the look at the views, and met a turn in the fold: void, and there for ever."""
    async with a_thread() as thread:
        world = thread.world
        log, says = HeldLog(world.log), {"content": "late"}
        async with asking(replace(gateway_ports(world), log=log)) as client:
            late = asyncio.create_task(
                client.post(f"{thread.path}/messages", json=says, headers={KEY: "late"})
            )
            await asyncio.wait_for(log.began.wait(), DEADLINE_S)
            assert (await thread.post("/messages", SAYS, "first")).status_code == 202
            log.may_go_on.set()
            answers = [await late]
        answers.append(await thread.post("/messages", says, "late"))
        for answer in answers:
            problem = problem_in(answer.status_code, answer.headers, answer.content)
            assert (answer.status_code, problem["code"]) == (409, "turn_open")
            assert "used up" in problem["detail"]
            assert "new key" in problem["detail"]
        assert world.told().count("message.received!turn_open") == 1
        met = await thread.post("/messages", says, "another")
        assert (met.status_code, "used up" in met.text) == (409, False), "nothing was appended"


async def test_F03_without_a_key_two_requests_are_two_events() -> None:
    async with a_thread() as thread:
        one, two = [await thread.post("/messages", SAYS) for _ in range(2)]
        assert one.json()["event_id"] != two.json()["event_id"]
        assert thread.accepted("message.received") == 2


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        '""',
        '"',
        '"k',
        '"a"b"',
        '"a\\x"',
        "two words",
        "t\N{LATIN SMALL LETTER U WITH DIAERESIS}r",
        "k" * (IDEMPOTENCY_KEY_CHARS_MAX + 1),
        '"' + "k" * (IDEMPOTENCY_KEY_CHARS_MAX + 1) + '"',
    ],
)
async def test_F86_what_is_no_key_is_refused(key: str) -> None:
    async with a_thread() as thread:
        before = await thread.world.log.end()
        sent = {KEY.encode(): key.encode("latin-1")}
        for method, path, body in (
            ("POST", "/v1/threads", NEW),
            ("PATCH", thread.path, {}),
            ("POST", f"{thread.path}/messages", SAYS),
            ("POST", f"{thread.path}/cancel", {"queue": "keep"}),
        ):
            answer = await thread.client.request(method, path, json=body, headers=sent)
            problem = problem_in(answer.status_code, answer.headers, answer.content)
            assert (answer.status_code, problem["code"]) == (400, "invalid_request")
            assert "Idempotency-Key" in problem["detail"]
        assert await thread.world.log.end() == before


async def test_F86_two_keys_are_none() -> None:
    async with a_thread() as thread:
        twice = [(KEY, "a"), (KEY, "a")]
        answer = await thread.client.post(f"{thread.path}/messages", json=SAYS, headers=twice)
        assert answer.status_code == 400
        long = "k" * IDEMPOTENCY_KEY_CHARS_MAX
        assert (await thread.post("/messages", SAYS, long)).status_code == 202
