"""What the conformance test of the live stream runs against, and a client that is cut and resumes.

A target is one address or several of the same threads, and a key. The follower keeps every durable
frame that it was given, and compares each text that grew before its eyes with the one that stayed.
"""

import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.helpers.sse_client import SseFrame, SseStream, sse

Json = dict[str, Any]
Attempt = tuple[str, int, int]
"""Turn, step, attempt."""
WAIT_S = 60
_PAGE = 500


class TryAgainError(Exception):
    """The gateway cannot say it now: 503 with Retry-After."""


@dataclass(slots=True)
class Target:
    """Gateways of the same threads. `addresses` may change while a test runs.

    Shapes:  `model`: provider and name of a model that answers every message of a thread with a
             step of two calls, then a text, both slowly enough that many pieces come of each.
    """

    addresses: list[str]
    token: str
    model: Mapping[str, str]

    def address(self, number: int) -> str:
        """One of the addresses, each in its turn."""
        return self.addresses[number % len(self.addresses)]

    @asynccontextmanager
    async def asking(
        self, number: int = 0, token: str | None = None
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A client of one of the gateways."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with httpx2.AsyncClient(
            # Certificates take long to load, and nothing here is encrypted.
            base_url=self.address(number),
            headers=headers,
            timeout=WAIT_S + 20,
            verify=False,
        ) as client:
            yield client

    async def post(
        self, path: str, body: Json, number: int = 0, *, key: str | None = None, wait: bool = False
    ) -> httpx2.Response:
        """The answer to one request, whatever it is."""
        params = {"wait": WAIT_S} if wait else {}
        headers = {"Idempotency-Key": key or secrets.token_hex(8)}
        async with self.asking(number) as client:
            return await client.post(path, json=body, params=params, headers=headers)

    async def create(self) -> str:
        """A new thread that every gateway can read."""
        answer = await self.post("/v1/threads", {"settings": {"model": self.model}})
        thread, receipt = (_taken(answer, False)[name] for name in ("thread_id", "receipt"))
        for number in range(len(self.addresses)):
            await self.row(thread, number, receipt)
        return str(thread)

    async def send(
        self,
        thread: str,
        text: str,
        *,
        number: int = 0,
        delivery: str = "next_turn",
        wait: bool = False,
    ) -> Json:
        """A message for a thread: the answer, or the turn where it is waited for."""
        body = {"content": text, "delivery": delivery}
        path = f"/v1/threads/{thread}/messages"
        return _taken(await self.post(path, body, number, wait=wait), wait)

    async def row(self, thread: str, number: int = 0, receipt: str | None = None) -> Json:
        """The thread, once the views have passed the receipt."""
        params = {} if receipt is None else {"receipt": receipt}
        async with self.asking(number) as client:
            answer = await client.get(f"/v1/threads/{thread}", params=params)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def log(self, thread: str, number: int = 0) -> list[bytes]:
        """Every event of the thread, by the bytes of `GET T/events`."""
        lines: list[bytes] = []
        async with self.asking(number) as client:
            while True:
                params = {"since": len(lines) - 1, "limit": _PAGE}
                answer = await client.get(f"/v1/threads/{thread}/events", params=params)
                assert answer.status_code == 200, answer.text
                lines += event_lines(answer.text)
                if not answer.json()["has_more"]:
                    return lines

    @asynccontextmanager
    async def stream(
        self,
        thread: str,
        number: int = 0,
        *,
        since: str | int | None = None,
        last_id: str | int | None = None,
        token: str | None = None,
        receive_bytes: int | None = None,
        until: str | None = None,
    ) -> AsyncIterator[SseStream]:
        """A connection to the thread's stream at one of the gateways."""
        params = {"since": since, "until": until}
        async with sse(
            self.address(number),
            f"/v1/threads/{thread}/stream",
            token or self.token,
            params={name: value for name, value in params.items() if value is not None},
            headers=[] if last_id is None else [("Last-Event-ID", str(last_id))],
            receive_bytes=receive_bytes,
        ) as stream:
            yield stream


def _taken(answer: httpx2.Response, waited: bool) -> Json:
    assert answer.status_code == (200 if waited else 202), answer.text
    found: Json = answer.json()
    return found


def event_lines(page: str) -> list[bytes]:
    """The events of a page of `GET T/events`, each as it is written there."""
    decoder, lines = json.JSONDecoder(), []
    prefix = '{"events":['
    assert page.startswith(prefix)
    at = len(prefix)
    while page[at] != "]":
        at += page[at] == ","
        _, end = decoder.raw_decode(page, at)
        lines.append(page[at:end].encode())
        at = end
    return lines


@dataclass(slots=True)
class Counts:
    """What was counted, for a report. Every test wants `gaps` and `repeats` to be 0."""

    cuts: int = 0
    resumes: int = 0
    events: int = 0
    gaps: int = 0
    repeats: int = 0
    texts: int = 0
    holes: int = 0
    partials: int = 0
    pieces: int = 0

    def add(self, other: "Counts") -> None:
        """These are counted, too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.__slots__)


@dataclass(slots=True)
class Text:
    """A response as it grows in one connection. `n` None: a piece was missing."""

    n: int | None = 0
    text: str = ""
    thinking: str = ""

    def take(self, delta: Json, counts: Counts) -> None:
        """One more piece."""
        if self.n is None:
            return
        counts.repeats += delta["n"] < self.n
        if delta["n"] != self.n:
            counts.holes += delta["n"] > self.n
            self.n = None if delta["n"] > self.n else self.n
            return
        self.n += 1
        if delta["block"] == "text":
            self.text += delta["text"]
        else:
            self.thinking += delta["text"]


@dataclass(slots=True)
class Follower:
    """A client of one thread. `durable`: seq and bytes of all events that it was given, in order.

    Shapes:  `texts` counts responses that grew in one connection and were compared with what
             stayed. `is_lossy`: pieces may be lost, as while Redis is away; then it is a part.
    """

    since: int
    is_lossy: bool = False
    durable: list[tuple[int, bytes]] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    told: list[tuple[str, Json]] = field(default_factory=list)
    turns: int = 0
    """Turns that have ended before its eyes."""
    _claims: dict[str, Attempt] = field(default_factory=dict)
    _over: set[Attempt] = field(default_factory=set)
    _texts: dict[Attempt, Text] = field(default_factory=dict)

    @property
    def at(self) -> int:
        """The last event that it has."""
        return self.durable[-1][0] if self.durable else self.since

    def begin(self) -> None:
        """It is connected anew: nothing half is kept."""
        self._texts.clear()
        self.counts.resumes += 1

    def take(self, frame: SseFrame) -> None:
        """One frame was read."""
        if not frame.event:
            assert frame.id is not None, "an event without an id"
            self._event(int(frame.id), frame)
            return
        assert frame.id is None, "only an event has an id"
        match frame.event:
            case "delta":
                self._delta(frame.json())
            case "partial":
                self._partial(frame.json())
            case name:
                self.told.append((name, frame.json()))

    def _event(self, seq: int, frame: SseFrame) -> None:
        event = frame.json()
        assert event["seq"] == seq
        self.turns += event["type"] == "turn.finished"
        self.counts.repeats += seq <= self.at
        self.counts.gaps += seq > self.at + 1
        self.counts.events += 1
        self.durable.append((seq, frame.data))
        self._claim(event)
        if event["type"] == "model.responded":
            self._responded(event["payload"])

    def knows(self, log: Sequence[bytes]) -> None:
        """It has seen these events elsewhere: which attempts there were."""
        for line in log:
            self._claim(json.loads(line))

    def _claim(self, event: Json) -> None:
        if event["type"] == "step.started":
            payload = event["payload"]
            attempt = event["turn_id"], payload["number"], payload["attempt"]
            self._claims[event["event_id"]] = attempt

    def _responded(self, payload: Json) -> None:
        """What grew is what stays, where it was there from its beginning or from a `partial` on."""
        attempt = self._claims.get(payload["claim"])
        if attempt is None:
            return  # it began before this client did
        self._over.add(attempt)
        grown = self._texts.pop(attempt, None)
        if grown is None or grown.n is None:
            return
        for kind, text in (("text", grown.text), ("thinking", grown.thinking)):
            parts = [p["text"] for p in payload["content"] if p.get("kind", "text") == kind]
            whole = "".join(parts)
            is_right = whole.startswith(text) if self.is_lossy else whole == text
            assert is_right, f"{kind} of {attempt}: {text} is not {whole}"
        self.counts.texts += 1

    def _delta(self, delta: Json) -> None:
        attempt = delta["turn_id"], delta["step"], delta["attempt"]
        # A piece may still be on its way when the whole text is there.
        if "call_id" in delta or attempt in self._over:
            return
        self.counts.pieces += 1
        self._texts.setdefault(attempt, Text()).take(delta, self.counts)

    def _partial(self, said: Json) -> None:
        attempt = said["turn_id"], said["step"], said["attempt"]
        assert not self._texts, f"a partial behind its own pieces, or a second one: {said}"
        assert attempt not in self._over, "a partial of what has ended"
        self._texts[attempt] = Text(said["n"], said["text"], said["thinking"])
        self.counts.partials += 1

    def check(self, log: Sequence[bytes]) -> None:
        """It was given exactly the log behind its first cursor: no gap, no repeat."""
        first = self.since + 1
        assert [seq for seq, _ in self.durable] == list(range(first, len(log))), self.counts
        assert [data for _, data in self.durable] == list(log[first:])
        assert (self.counts.gaps, self.counts.repeats) == (0, 0), self.counts


async def follow(
    target: Target,
    thread: str,
    follower: Follower,
    number: int,
    *,
    leaves: Callable[[], bool] = lambda: False,
    bytes_max: int | None = None,
) -> bool:
    """One connection at gateway `number`, from where the follower stands; cut by us, or ended.

    Shapes:  `leaves` is asked at first and behind every frame. `bytes_max`: it leaves after so many
             bytes, in the middle of whatever comes then. True: the server ended it.
    """
    since = None if follower.durable else follower.since
    last_id = follower.at if follower.durable else None
    async with target.stream(thread, number, since=since, last_id=last_id) as stream:
        if stream.status == 503:  # HTTP's own number
            assert int(stream.headers["retry-after"]) >= 1
            raise TryAgainError(stream.body)
        assert stream.status == 200, (stream.status, stream.body)
        follower.begin()
        if leaves():
            return False
        async for frame in stream.frames(bytes_max=bytes_max):
            follower.take(frame)
            if leaves():
                break
    follower.counts.cuts += not stream.ended
    return bool(stream.ended)
