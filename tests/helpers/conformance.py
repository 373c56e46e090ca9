"""The conformance test of the live stream: SURFACES 4 (a) to (e), against any address.

`python -m tests.helpers.conformance --url URL [--url URL] --key KEY --model PROVIDER/NAME` runs
what needs nothing but an address: with several, each resume is at another gateway than the cut.
What kills or revokes something lies with the tests that own it. Events of (j) are not there yet:
nothing is forked or rewound.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from itertools import count

from tests.helpers.sse_client import SseStream, sse
from tests.helpers.stream_target import Counts, Follower, Json, Target, follow

AHEAD_S = 10.0
"""How long a cursor beyond the head is waited for."""
HEARTBEAT_S = 15.0
MARGIN_S = 5.0
TURN_S = 45.0
BROKEN = ("abc", "", "1e3", "\u0661", "9" * 30, "-2", "+1", "01", "1.5", "0x1", "null", "1,2")
CURSOR_CODES = ("cursor_invalid", "invalid_request")
SCRIPT: list[Json] = [
    {
        "thinking": "I think of a number, and of another one. " * 6,
        "text": "I look twice, and tell what I have seen. " * 6,
        "calls": ["echo one", "echo two"],
        "delay_ms": 500,
    },
    {"text": "It is done, and it is said at length: nothing was left out. " * 16, "delay_ms": 800},
] * 250
"""For the scripted model: 25 pieces and two calls, then 40 pieces; 250 turns of one thread."""


# -- (a) cut at every boundary, and inside runs of deltas


async def check_recorded(target: Target) -> Counts:
    """(a) From every event of a recorded thread on; then one connection for each event."""
    thread = await target.create()
    for text in ("record this", "and this"):
        await target.send(thread, text, wait=True)
    log, counts = await target.log(thread), Counts()
    numbers, head = count(), len(log) - 1
    for since in range(-1, head + 1):
        for follower in (Follower(since), _standing_at(since, log)):
            await follow(target, thread, follower, next(numbers), leaves=_at(follower, head))
            follower.check(log)
            counts.add(follower.counts)
    chain = Follower(-1)
    while chain.at < head:
        leaves = _at(chain, chain.at + 1)
        await follow(target, thread, chain, next(numbers), leaves=leaves)
    chain.check(log)
    counts.add(chain.counts)
    return counts


def _at(follower: Follower, seq: int) -> Callable[[], bool]:
    """It leaves when it has this event."""
    return lambda: follower.at >= seq


def after(follower: Follower, turns: int) -> Callable[[], bool]:
    """It leaves when so many turns have ended before its eyes."""
    return lambda: follower.turns >= turns


def _standing_at(since: int, log: list[bytes]) -> Follower:
    """A follower that has everything up to `since`: it comes back with `Last-Event-ID`."""
    follower = Follower(-1)
    follower.durable += enumerate(log[: since + 1])
    return follower


async def check_delta_runs(target: Target) -> Counts:
    """(a) Cut behind so many pieces, again and again, while a response grows."""
    thread, follower, numbers = await target.create(), Follower(-1), count()
    await target.send(thread, "grow")
    async with asyncio.timeout(TURN_S):
        while not follower.turns:
            number = next(numbers)
            wanted = follower.counts.pieces + (1, 2, 3, 5, 8)[number % 5]

            def leaves(wanted: int = wanted) -> bool:
                return follower.counts.pieces >= wanted or follower.turns > 0

            await follow(target, thread, follower, number, leaves=leaves)
    follower.check(await target.log(thread))
    assert not follower.counts.holes, f"a piece was lost between two connections: {follower.counts}"
    assert follower.counts.partials, "it was not resumed in mid-response"
    return follower.counts


# -- (b) the same at random points, under load


async def check_load(
    target: Target, seed: int = 0, threads: int = 6, turns: int = 2, bytes_max: int = 4_000
) -> Counts:
    """(b) Every thread has its client, which is cut after so many bytes, again and again."""
    counts, at_random = Counts(), random.Random(seed)

    async def live(number: int) -> None:
        thread = await target.create()
        talking = asyncio.create_task(talk(target, thread, turns, number))
        follower, numbers = Follower(-1), count(number)
        while follower.turns < turns:
            await follow(
                target,
                thread,
                follower,
                next(numbers),
                leaves=after(follower, turns),
                bytes_max=at_random.randint(1, bytes_max),
            )
        await talking
        follower.check(await target.log(thread))
        counts.add(follower.counts)

    async with asyncio.timeout(TURN_S), asyncio.TaskGroup() as lives:
        for number in range(threads):
            lives.create_task(live(number))
    assert not counts.holes, f"a piece was lost between two connections: {counts}"
    return counts


async def talk(target: Target, thread: str, turns: int, number: int = 0) -> None:
    """So many turns, one after the other, each begun at the next gateway."""
    for turn in range(turns):
        await target.send(thread, f"turn {turn}", number=number + turn, wait=True)


# -- (c) and (d) cursors


async def check_both_cursors(target: Target) -> Counts:
    """(c) A browser repeats the old address: `Last-Event-ID` wins, whichever is further."""
    thread, counts = await target.create(), Counts()
    await talk(target, thread, 1)
    log = await target.log(thread)
    head = len(log) - 1
    for since, last in ((-1, 3), (5, 3), (head, -1), (3, 3), (head + 50, head - 1)):
        for number in range(len(target.addresses)):
            follower = Follower(last)
            async with target.stream(thread, number, since=since, last_id=last) as stream:
                assert stream.status == 200, stream.body
                async for frame in stream.frames():
                    follower.take(frame)
                    if follower.at >= head:
                        break
            follower.check(log)
            counts.add(follower.counts)
    return counts


async def check_broken_cursors(target: Target) -> int:
    """(d) What is no seq is refused by its place, never taken for another one."""
    thread = await target.create()
    refused = 0
    for number, text in enumerate(BROKEN):
        for stream in (
            target.stream(thread, number, since=text),
            target.stream(thread, number, last_id=text),
        ):
            async with stream as answer:
                assert answer.status == 400, (text, answer.status, answer.body)
                assert problem(answer)["code"] in CURSOR_CODES, answer.body
                refused += 1
    path, two = f"/v1/threads/{thread}/stream", [("Last-Event-ID", "0"), ("Last-Event-ID", "1")]
    for query, headers in (("", two), ("?since=0&since=1", []), ("?since=0&upto=1", [])):
        async with sse(target.address(0), path + query, target.token, headers=headers) as answer:
            assert answer.status == 400, (query, answer.body)
            refused += 1
    return refused


def problem(answer: SseStream) -> Json:
    """The problem that was answered."""
    assert answer.headers["content-type"] == "application/problem+json"
    found: Json = json.loads(answer.body)
    assert found["status"] == answer.status
    return found


async def check_cursors_ahead(target: Target) -> Counts:
    """(d) Beyond the head: waited for, then 410 and what there is; or it comes true meanwhile."""
    loop, thread = asyncio.get_running_loop(), await target.create()
    head = len(await target.log(thread)) - 1

    async def unknown(number: int, **cursor: int) -> None:
        began_s = loop.time()
        async with target.stream(thread, number, **cursor) as answer:  # type: ignore[arg-type]  # one of two
            assert answer.status == 410, (cursor, answer.status, answer.body)
        assert AHEAD_S - 0.1 <= loop.time() - began_s <= AHEAD_S + MARGIN_S
        told = problem(answer)
        assert told["code"] == "cursor_unknown"
        assert (told["oldest_seq"], told["head_seq"]) == (0, head), told

    async with asyncio.TaskGroup() as asking:
        for number in range(len(target.addresses)):
            asking.create_task(unknown(number, since=head + 1))
            asking.create_task(unknown(number, last_id=head + 1_000_000))
    hopeful = Follower(head + 1)
    joining = asyncio.create_task(follow(target, thread, hopeful, 1, leaves=after(hopeful, 1)))
    await asyncio.sleep(0)
    await talk(target, thread, 1)
    await asyncio.wait_for(joining, TURN_S)
    hopeful.check(await target.log(thread))
    return hopeful.counts


# -- (e) joining in the middle of a response


async def check_mid_response(target: Target, joins: int = 12) -> Counts:
    """(e) `partial` and what follows is the final text, for whoever joins and whoever resumes."""
    thread, counts = await target.create(), Counts()
    talking = asyncio.create_task(talk(target, thread, 1))
    while not b"".join(await target.log(thread)).count(b'"step.started"'):
        await asyncio.sleep(0.02)

    async def join(number: int) -> None:
        """Later than the last one by the time of a few pieces."""
        await asyncio.sleep(number * 0.1)
        known = await target.log(thread, number)
        follower = Follower(len(known) - 1)
        follower.knows(known)
        if number % 2:
            follower.durable += enumerate(known)
            follower.since = -1
        await follow(target, thread, follower, number, leaves=after(follower, 1))
        counts.add(follower.counts)
        follower.check(await target.log(thread))

    async with asyncio.timeout(TURN_S), asyncio.TaskGroup() as joining:
        for number in range(joins):
            joining.create_task(join(number))
    await talking
    assert counts.partials >= joins // 3, f"nobody joined in the middle: {counts}"
    assert counts.texts >= joins, f"too few texts grew whole: {counts}"
    assert not counts.holes, counts
    return counts


# -- ends, and bounds


async def check_until_turn(target: Target) -> int:
    """`until=turn` ends with the turn, at once where none is open; nothing follows `end`."""
    thread, ends = await target.create(), 0
    for number in range(2 * len(target.addresses)):
        since = len(await target.log(thread)) - 1
        sent = await target.send(thread, "go", number=number)
        await target.row(thread, number, sent["receipt"])
        for again in range(2):
            async with target.stream(thread, number + again, since=since, until="turn") as stream:
                frames = await stream.all_frames()
            assert stream.ended == "whole"
            assert (frames[-1].event, frames[-1].json()) == ("end", {"reason": "turn_finished"})
            durable = [frame.data for frame in frames if not frame.event]
            assert durable == (await target.log(thread))[since + 1 :]
            ends += 1
    return ends


async def check_quiet(target: Target) -> str:
    """A stream on which nothing happens: what its head says, when to come back, that it lives."""
    loop, thread = asyncio.get_running_loop(), await target.create()
    began_s = loop.time()
    async with target.stream(thread) as stream:
        headers = stream.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert {"no-cache", "no-transform"} <= set(headers["cache-control"].split(", "))
        assert headers["x-accel-buffering"] == "no"
        await stream.comment(HEARTBEAT_S + MARGIN_S + 1.0)
        assert stream.parser.retry_ms is not None
        assert 1_000 <= stream.parser.retry_ms <= 3_000
        assert stream.parser.last_id is None, "nothing but an event has an id"
    return f"a comment after {loop.time() - began_s:.1f} s"


async def check_slow_reader(target: Target) -> Counts:
    """Whoever reads too slowly is told to come back, and has missed nothing then."""
    thread, follower = await target.create(), Follower(-1, is_lossy=True)
    async with target.stream(thread, since=-1, receive_bytes=32_768) as stream:
        await talk_at_length(target, thread)
        head = len(await target.log(thread)) - 1
        async for frame in stream.frames():
            follower.take(frame)
        assert stream.ended == "whole", "it was cut before it was told"
    assert follower.told[-1] == ("reconnect", {"reason": "slow_reader"}), follower.told[-1]
    assert follower.at < head, "nothing was left out"
    await follow(target, thread, follower, 1, leaves=_at(follower, head))
    follower.check(await target.log(thread))
    return follower.counts


async def talk_at_length(target: Target, thread: str, messages: int = 48) -> None:
    """Events of 50 KB each, more than a server and two systems hold for one client."""
    await target.send(thread, "go")
    for number in range(messages):
        await target.send(thread, f"{number} " + "x" * 50_000)
    await target.send(thread, "and the end", wait=True)


# -- by hand


CHECKS: tuple[tuple[str, Callable[[Target], Awaitable[object]]], ...] = (
    ("(a) every boundary of a recorded thread", check_recorded),
    ("(a) inside runs of deltas", check_delta_runs),
    ("(b) at random under load", check_load),
    ("(c) both cursors at once", check_both_cursors),
    ("(d) malformed cursors refused", check_broken_cursors),
    ("(e) joined in mid-response", check_mid_response),
    ("until=turn, ends", check_until_turn),
    ("slow_reader", check_slow_reader),
)


async def check_all(target: Target, say: Callable[[str, object], None]) -> None:
    """Every check; what was counted is said. Those that wait for long wait beside the others."""
    async with asyncio.TaskGroup() as side_by_side:
        waiting = side_by_side.create_task(check_cursors_ahead(target))
        quiet = side_by_side.create_task(check_quiet(target))
        for name, check in CHECKS:
            say(name, await check(target))
    say("(d) cursors beyond the head", waiting.result())
    say("headers, retry, heartbeat", quiet.result())


def _print(name: str, figures: object) -> None:
    print(f"{name}: {figures}", flush=True)  # noqa: T201  # the report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The conformance test of the live stream.")
    parser.add_argument("--url", action="append", required=True, help="once for each gateway")
    parser.add_argument("--key", required=True)
    parser.add_argument("--model", required=True, metavar="PROVIDER/NAME")
    given = parser.parse_args()
    provider, _, model = given.model.partition("/")
    named = {"provider": provider, "name": model}
    asyncio.run(check_all(Target(given.url, given.key, named), _print))
