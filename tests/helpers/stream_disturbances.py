"""The conformance test of the live stream, (f) to (i): what is done to a gateway while it streams.

What is done lies with the caller; here is what every client must have seen in the end.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.helpers.conformance import TURN_S, after, problem, talk, talk_at_length
from tests.helpers.sse_client import connect, request
from tests.helpers.stream_target import Counts, Follower, Target, TryAgainError, follow

READERS = 500
VANISHING = 200
THREADS = 6
"""That stream while something is disturbed."""
CUT_S = 30.0
"""How long a server may wait for a client that does not read."""
GROWTH_KIB_MAX = 128 * 1_024
"""What 500 of them may cost a process, while others are served: each is owed a megabyte."""
REAUTHORISED_S = 30.0
_MARGIN_S = 8.0
_TCP_REPAIR = 19
"""Of Linux: a socket that is closed in this mode says nothing to anybody."""


# -- processes


def resident_kib(pid: int) -> int:
    """What a process holds in memory now."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _held(server: int | None, ports: set[int]) -> int:
    """How many clients, by their ports, a server of this machine holds, be they there or not."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        local_port, remote_port = (int(name.rpartition(":")[2], 16) for name in (local, remote))
        # Established, or left by the client and not yet by the server.
        count += local_port == server and remote_port in ports and state in ("01", "08")
    return count


async def until(
    is_so: Callable[[], bool], deadline_s: float, what: str, look_s: float = 0.05
) -> float:
    """Seconds until `is_so` held."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not is_so():
        assert loop.time() - began_s < deadline_s, f"not so after {deadline_s} s: {what}"
        await asyncio.sleep(look_s)
    return loop.time() - began_s


# -- (f) clients that never read, and clients that vanish


@dataclass(slots=True)
class Deaf:
    """What never-readers cost. Units: KiB of the server's memory, seconds until all were cut."""

    readers: int
    growth_kib: int
    cut_s: float

    def __str__(self) -> str:
        return f"{self.readers} deaf, memory +{self.growth_kib} KiB, all cut in {self.cut_s:.1f} s"


async def check_never_read(target: Target, pid: int, number: int = 0) -> Deaf:
    """(f) They cost little, are cut, and a turn that runs meanwhile is streamed undisturbed."""
    server, loop = urlsplit(target.address(number)).port, asyncio.get_running_loop()
    history, living = await target.create(), await target.create()
    await talk_at_length(target, history, 20)
    await _read_whole(target, history, number)
    before_kib, began_s = resident_kib(pid), loop.time()
    deaf = [await _ask(target, history, number, -1) for _ in range(READERS)]
    ports = {client.getsockname()[1] for client in deaf}
    try:
        await until(lambda: _held(server, ports) == READERS, 10, "all are connected")
        talking = asyncio.create_task(talk(target, living, 2, number))
        follower = Follower(-1)
        await follow(target, living, follower, number, leaves=after(follower, 2))
        await talking
        follower.check(await target.log(living, number))
        peak_kib = resident_kib(pid)
        await until(lambda: _held(server, ports) == READERS, 2, "none was cut so far")
        bound_s = CUT_S + _MARGIN_S
        await until(lambda: not _held(server, ports), bound_s, "all are cut")
        told = Deaf(READERS, peak_kib - before_kib, loop.time() - began_s)
    finally:
        for client in deaf:
            client.close()
    assert told.growth_kib < GROWTH_KIB_MAX, str(told)
    return told


async def check_vanished(target: Target, number: int = 0) -> str:
    """(f) Half of them by a reset, half without a word: none keeps its place."""
    thread, server = await target.create(), urlsplit(target.address(number)).port
    head = len(await target.log(thread, number)) - 1
    clients = [await _ask(target, thread, number, head) for _ in range(VANISHING)]
    ports = {client.getsockname()[1] for client in clients}
    await until(lambda: _held(server, ports) == VANISHING, 10, "all are connected")
    # Each has been answered: what vanishes is a stream.
    for client in clients:
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 64), 20)
    silent = 0
    for at, client in enumerate(clients):
        if at % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        else:
            with contextlib.suppress(PermissionError):
                client.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
                silent += 1
        client.close()
    # Whoever said nothing is noticed when something is sent.
    await talk(target, thread, 1, number)
    took_s = await until(lambda: not _held(server, ports), 15, "none is held any more")
    return f"{VANISHING} vanished, {silent} of them in silence, noticed {took_s:.1f} s later"


async def _ask(target: Target, thread: str, number: int, since: int) -> socket.socket:
    """A client that asks for a stream and reads nothing."""
    address = target.address(number)
    client = await connect(address, 4_096)
    path = f"/v1/threads/{thread}/stream?since={since}"
    data = request(address, path, target.token)
    await asyncio.get_running_loop().sock_sendall(client, data)
    return client


async def _read_whole(target: Target, thread: str, number: int) -> None:
    """Whatever a process keeps of a thread that was read once, it keeps from here on."""
    log = await target.log(thread, number)
    follower = Follower(-1)
    await follow(target, thread, follower, number, leaves=lambda: follower.at >= len(log) - 1)


# -- (g) and (h) what streams go through


@dataclass(slots=True)
class Through:
    """What the clients of a disturbance were told, and what was counted."""

    counts: Counts
    told: list[str]
    refusals: int = 0


async def check_through(
    target: Target,
    disturb: Callable[[], Awaitable[None]],
    *,
    first: int = 0,
    then: int = 1,
    is_lossy: bool = False,
) -> Through:
    """Clients at gateway `first` are disturbed while responses grow, and go on at `then`.

    Effects: half of them stay for as long as they can, half leave at once and come back.
    """
    found, is_disturbed = Through(Counts(), []), asyncio.Event()
    ready = asyncio.Barrier(THREADS + 1)

    async def watch(stays: bool) -> None:
        thread, number = await target.create(), first
        follower, is_ready = Follower(-1, is_lossy), False
        await target.send(thread, "go", number=then)

        def leaves() -> bool:
            nonlocal is_ready
            if not is_ready and follower.counts.pieces > 4:
                is_ready = True
                waiting.append(asyncio.create_task(ready.wait()))
            has_to_go = is_disturbed.is_set() and number == first != then and not stays
            return follower.turns >= 2 or has_to_go

        waiting: list[asyncio.Task[int]] = []
        watching.create_task(_send_again(target, thread, then, is_disturbed))
        while follower.turns < 2:
            try:
                await follow(target, thread, follower, number, leaves=leaves)
            except (TryAgainError, OSError, asyncio.IncompleteReadError):
                found.refusals += 1
                await asyncio.sleep(0.1)
            if is_disturbed.is_set():
                number = then
        follower.check(await target.log(thread, then))
        found.counts.add(follower.counts)
        found.told += [
            f"{name} {told.get('reason') or told.get('code')}"
            for name, told in follower.told
            if name != "fresh"
        ]

    async with asyncio.timeout(2 * TURN_S), asyncio.TaskGroup() as watching:
        for each in range(THREADS):
            watching.create_task(watch(stays=bool(each % 2)))
        await ready.wait()
        is_disturbed.set()
        await disturb()
    return found


async def _send_again(target: Target, thread: str, number: int, when: asyncio.Event) -> None:
    """A second turn, begun once everything is disturbed: sent with one key until it is taken."""
    await when.wait()
    body = {"content": "and again", "delivery": "next_turn"}
    while True:
        with contextlib.suppress(httpx2.TransportError):
            path = f"/v1/threads/{thread}/messages"
            answer = await target.post(path, body, number, key=f"again-{thread}")
            if answer.status_code == 202:
                return
            assert answer.status_code in (409, 503), answer.text
        await asyncio.sleep(0.1)


# -- (i) keys that end


async def check_ended_key(
    target: Target, token: str, end: Callable[[], Awaitable[None]]
) -> list[float]:
    """(i) The streams of a key end with it, at every gateway; then it opens none.

    Shapes:  seconds from the end of the key to that of each stream.
    """
    loop, thread = asyncio.get_running_loop(), await target.create()
    ended_s = loop.time()

    async def watch(number: int, opened: asyncio.Barrier) -> float:
        async with target.stream(thread, number, since=-1, token=token) as stream:
            assert stream.status == 200, stream.body
            frames = stream.frames()
            await anext(frames)
            await opened.wait()
            last = [frame async for frame in frames][-1]
            assert stream.ended == "whole"
        assert (last.event, last.json()) == ("reconnect", {"reason": "reauthorise"})
        took_s = loop.time() - ended_s
        async with target.stream(thread, number, since=-1, token=token) as refused:
            assert refused.status == 401, refused.status
            assert problem(refused)["code"] == "unauthenticated"
        return took_s

    opened = asyncio.Barrier(len(target.addresses) + 1)
    async with asyncio.timeout(REAUTHORISED_S + _MARGIN_S), asyncio.TaskGroup() as watching:
        tasks = [
            watching.create_task(watch(number, opened)) for number in range(len(target.addresses))
        ]
        await opened.wait()
        await end()
        ended_s = loop.time()
    took = [task.result() for task in tasks]
    assert max(took) < REAUTHORISED_S
    return took


async def until_accepted(target: Target, token: str) -> None:
    """Every gateway knows the key: it looks once a second."""
    for number in range(len(target.addresses)):
        async with asyncio.timeout(10), target.asking(number, token) as client:
            while (await client.get("/v1/info")).status_code != 200:  # elsewhere
                await asyncio.sleep(0.1)
