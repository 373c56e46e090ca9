"""A stream that breaks anywhere: nothing is missing in the end, and nothing comes twice."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from tests.helpers.events import thread_id
from tests.helpers.turns import whole_turn
from threadlog.api.problems import problem_of
from threadlog.client.connection import Query
from threadlog.client.stream import Item, ThreadStream
from threadlog.errors import (
    CorruptError,
    CursorUnknownError,
    NotFoundError,
    QuotaError,
    ThreadlogError,
    TransientError,
    UnauthenticatedError,
)
from threadlog.gateway import frames
from threadlog.ids import Seq, TurnId
from threadlog.limits import CLIENT_AWAY_MS
from threadlog.ports.notify import LiveDelta, SoFar
from threadlog.ports.views import StoredEvent

TURN = TurnId("00000000-0000-4000-8000-000000000001")
EVENTS = whole_turn()[:8]
WORDS = ("all ", "is ", "well")
SPOKEN_AT = 4
"""The response is under way behind this event."""


def delta(n: int) -> bytes:
    return frames.delta_frame(LiveDelta(TURN, 1, 1, n, "text", WORDS[n])).data


def recorded(after: int, words: int = 0) -> bytes:
    """The stream behind this seq, as a gateway sends it when `words` of the response are said."""
    parts = [frames.retry(1)]
    for event in EVENTS[after + 1 :]:
        parts.append(frames.event_frame(event).data)
        if event.seq == SPOKEN_AT:
            parts += [frames.fresh(SPOKEN_AT, 0).data, frames.HEARTBEAT]
            parts += map(delta, range(len(WORDS)))
    if after == SPOKEN_AT:
        said = SoFar(TURN, 1, 1, words, "".join(WORDS[:words]), "")
        joined = [frames.partial(said)] if words else []
        parts[1:1] = [*joined, *map(delta, range(words, len(WORDS)))]
    return b"".join(parts) + frames.end("turn_finished")


class Cut:
    """Implements `client.stream.Streams`: each connection is what `serve` says."""

    def __init__(self, serve: Callable[[int, int], list[bytes | ThreadlogError]]) -> None:
        """`serve`: (the number of the connection, the last seq of the client) -> what comes."""
        self._serve = serve
        self.asked: list[int] = []

    @asynccontextmanager
    async def stream(
        self, path: str, query: Query, last_event_id: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        assert path == f"/v1/threads/{thread_id()}/stream"
        assert query == {"since": last_event_id}
        self.asked.append(last_event_id)
        yield self._chunks(self._serve(len(self.asked), last_event_id))

    @staticmethod
    async def _chunks(given: list[bytes | ThreadlogError]) -> AsyncIterator[bytes]:
        for each in given:
            if isinstance(each, ThreadlogError):
                raise each
            yield each


async def at_once(_: float) -> None:
    """Nobody waits here."""


async def followed(cut: Cut, after: int = -1) -> list[Item]:
    """Everything until the stream ends."""
    found: list[Item] = []
    async with aclosing(ThreadStream(cut, thread_id(), after, pause=at_once).items()) as items:
        async for item in items:
            found.append(item)
    return found


def seqs(items: list[Item]) -> list[int | None]:
    return [item.seq for item in items if isinstance(item, StoredEvent)]


ALL = list(range(len(EVENTS)))
WIRE = recorded(-1)


async def test_cut_at_every_byte_nothing_is_missing_and_nothing_twice() -> None:
    for at in range(len(WIRE) + 1):
        heard = sum(delta(n) in WIRE[:at] for n in range(len(WORDS)))
        # It ends, or it breaks.
        ending: list[bytes | ThreadlogError] = [TransientError("gone")] if at % 2 else []

        def serve(number: int, last: int) -> list[bytes | ThreadlogError]:
            if number == 1:
                return [WIRE[: at // 2], WIRE[at // 2 : at], *ending]  # noqa: B023  # used at once
            # The other gateway has heard one word more than the client, where there is one.
            return [recorded(last, min(heard + 1, len(WORDS)))]  # noqa: B023  # used at once

        cut = Cut(serve)
        items = await followed(cut)
        assert seqs(items) == ALL, at
        pieces = [i.text for i in items if isinstance(i, LiveDelta)]
        assert "".join(pieces) == "".join(WORDS), at
        assert len(cut.asked) == (1 if at == len(WIRE) else 2), at


async def test_it_begins_behind_what_one_has() -> None:
    cut = Cut(lambda _, last: [recorded(last, 2)])
    items = await followed(cut, SPOKEN_AT)
    assert cut.asked == [SPOKEN_AT]
    assert seqs(items) == ALL[SPOKEN_AT + 1 :]
    assert [i.text for i in items if isinstance(i, LiveDelta)] == ["all is ", "well"]
    assert [i.n for i in items if isinstance(i, LiveDelta)] == [0, 2]


@pytest.mark.parametrize("reason", ["shutdown", "slow_reader", "max_life", "reauthorise"])
async def test_it_comes_back_when_it_is_told_to(reason: frames.ReconnectReason) -> None:
    first = b"".join(frames.event_frame(event).data for event in EVENTS[:3])
    told = first + frames.reconnect(reason) + b"event: delta\ndata: garbage\n\n"
    cut = Cut(lambda number, last: [told if number == 1 else recorded(last)])
    assert seqs(await followed(cut)) == ALL
    assert cut.asked == [-1, 2]


def problem(error: ThreadlogError) -> bytes:
    return frames.problem(problem_of(error))


@pytest.mark.parametrize(
    "error",
    [
        UnauthenticatedError("no"),
        NotFoundError("no"),
        CursorUnknownError("no", head_seq=3),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_frame", [True, False])
async def test_what_refuses_ends_it_at_once(error: ThreadlogError, as_frame: bool) -> None:
    cut = Cut(lambda _, __: [problem(error) if as_frame else error])
    with pytest.raises(type(error)):
        await followed(cut)
    assert len(cut.asked) == 1


async def test_what_may_pass_is_waited_for() -> None:
    answers: list[bytes | ThreadlogError] = [
        TransientError("away"),
        problem(TransientError("away")),
        QuotaError("too many", limit="streams", retry_after_s=5),
    ]
    cut = Cut(lambda n, last: [answers[n - 1] if n <= len(answers) else recorded(last)])
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    stream = ThreadStream(cut, thread_id(), -1, pause=pause)
    async with aclosing(stream.items()) as items:
        assert seqs([item async for item in items]) == ALL
    assert waited[2] >= 5 > waited[1] > 0


async def test_it_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(lambda _, __: [TransientError("away")])
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    passed = 0.0

    async def pause(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(loop, "time", lambda: now_s + passed)
    stream = ThreadStream(cut, thread_id(), -1, pause=pause)
    with pytest.raises(TransientError, match="away"):
        await anext(stream.items())
    assert passed > CLIENT_AWAY_MS / 1_000
    assert len(cut.asked) < 100


def numbered(seq: int, event: StoredEvent) -> bytes:
    """An event under a number of our choice, consistent in itself."""
    return frames.event_frame(StoredEvent(event.position, Seq(seq), event.event)).data


GARBAGE = {
    "no json": b"id: 0\ndata: nonsense\n\n",
    "half an event": b'id: 0\ndata: {"seq":0,"payload":{}}\n\n',
    "no id": b"data: {}\n\n",
    "another id": frames.event_frame(EVENTS[0]).data.replace(b"id: 0\n", b"id: 1\n"),
    "a hole": numbered(1, EVENTS[1]),
    "no text": b"id: 0\ndata: \xff\n\n",
    "a delta without text": b'event: delta\ndata: {"n":0}\n\n',
    "a partial that is a list": b"event: partial\ndata: []\n\n",
    "a problem that is none": b"event: problem\ndata: {}\n\n",
    "very deep": b"event: delta\ndata: " + b"[" * 100_000 + b"\n\n",
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_is_asked_for_again_and_not_for_ever(name: str) -> None:
    cut = Cut(lambda n, last: [GARBAGE[name] if n == 1 else recorded(last)])
    assert seqs(await followed(cut)) == ALL
    cut = Cut(lambda _, __: [frames.fresh(0, 0).data + GARBAGE[name]])
    with pytest.raises(CorruptError):
        await followed(cut)
    assert len(cut.asked) == 3


async def test_what_is_not_known_or_known_already_is_left_out() -> None:
    more = b"event: novelty\ndata: x\n\n: a comment\n\n" + frames.event_frame(EVENTS[0]).data
    cut = Cut(lambda _, last: [frames.event_frame(EVENTS[0]).data + more + recorded(0)])
    assert seqs(await followed(cut)) == ALL
