"""The conformance test of the live stream against `threadlog up`: one process, one file.

What has counts prints them. Events of a rewind or a fork (j) are not there yet: nothing makes one.
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.conformance import SCRIPT, check_all
from tests.helpers.nursery import Child, Nursery, nursery
from tests.helpers.servers import reserved_port
from tests.helpers.stream_disturbances import (
    check_ended_key,
    check_never_read,
    check_through,
    check_vanished,
    until,
    until_accepted,
)
from tests.helpers.stream_target import Target
from threadlog.clock import SystemClock, rfc3339

MODEL = {"provider": "scripted", "name": "script"}
STOP_S = 4.0
"""Well inside the grace of 5 s."""


@dataclass(slots=True)
class Up:
    """`threadlog up` in a folder, always on the same port."""

    children: Nursery
    home: Path
    port: int
    target: Target = field(init=False)
    process: Child | None = None
    number: int = 0

    def __post_init__(self) -> None:
        self.target = Target([f"http://127.0.0.1:{self.port}"], "", MODEL)

    def run(self, *argv: str) -> Child:
        """`threadlog ARGV` was started."""
        self.number += 1
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "THREADLOG_DATA_DIR": str(self.home / "data"),
            "THREADLOG_SANDBOX": "off",
            "THREADLOG_GATEWAY__PORT": str(self.port),
        }
        out = self.home / f"{self.number:03}-{argv[0]}.txt"
        return self.children.start(*argv, env=env, cwd=self.home, out=out)

    async def start(self) -> None:
        """It serves. Its own token is another one in each life; a key stays."""
        script = self.home / "script.json"
        script.write_text(json.dumps(SCRIPT))
        up = self.process = self.run("up", "--script", str(script))
        await until(lambda: "HTTP on http://" in up.stderr, 20, f"it serves: {up.stderr}")
        [token] = re.findall(r"token in (\S+)", up.stderr)
        self.target.token = self.target.token or Path(token).read_text().strip()

    async def end(self, number: signal.Signals) -> float:
        """It has ended by this signal; how many seconds that took."""
        up = self.process
        assert up is not None
        began_s = asyncio.get_running_loop().time()
        up.send(number)
        status = await asyncio.to_thread(self.children.wait, up)
        took_s = asyncio.get_running_loop().time() - began_s
        assert status == (0 if number is signal.SIGTERM else -number), up.stderr
        return took_s

    async def key(self, *argv: str) -> str:
        """A key that the gateway knows."""
        child = self.run("keys", "create", "--name", f"n{self.number}", *argv)
        assert await asyncio.to_thread(self.children.wait, child) == 0, child.stderr
        await until_accepted(self.target, key := child.stdout.strip())
        return key


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as started:
        yield started


@pytest.fixture
async def up(children: Nursery, short_dir: Path) -> AsyncIterator[Up]:
    with reserved_port() as port:
        made = Up(children, short_dir, port)
        await made.start()
        try:
            yield made
        finally:
            assert made.process is not None
            made.process.send(signal.SIGKILL)


def say(name: str, figures: object) -> None:
    print(f"\nembedded, {name}: {figures}")  # noqa: T201  # the figures of the run, for a report


@pytest.mark.timeout(120)
async def test_F81_F82_embedded_every_check_while_500_never_read(up: Up) -> None:
    """(a) to (f), `until=turn`, slow readers: see `tests.helpers.conformance`."""
    assert up.process is not None
    say("(f)", await check_vanished(up.target))
    async with asyncio.TaskGroup() as at_once:
        deaf = at_once.create_task(check_never_read(up.target, up.process.pid))
        at_once.create_task(check_all(up.target, say))
    say("(f)", deaf.result())


@pytest.mark.timeout(120)
async def test_F82_embedded_a_stop_and_a_kill_in_mid_stream_lose_nothing(up: Up) -> None:
    """(g) A stop says so to every stream, and ends in time; what was open goes on in the next."""
    took: list[float] = []

    async def stop() -> None:
        took.append(await up.end(signal.SIGTERM))
        await up.start()

    async def kill() -> None:
        await up.end(signal.SIGKILL)
        await up.start()

    up.target.token = await up.key()
    through = await check_through(up.target, stop, then=0)
    assert through.told == ["reconnect shutdown"] * 6, through
    assert took[0] < STOP_S
    say("(g) SIGTERM", f"{through}, ended in {took[0]:.2f} s")
    through = await check_through(up.target, kill, then=0)
    assert through.told == [], through
    say("(g) kill -9", through)


@pytest.mark.timeout(60)
async def test_F82_F94_embedded_a_stream_ends_with_its_key(up: Up) -> None:
    """(i) Revoked, and expired."""
    clock, key = SystemClock(), await up.key()
    ends_ms = clock.now_ms() + 6_000
    brief = await up.key("--expires", rfc3339(ends_ms))

    async def revoke() -> None:
        child = up.run("keys", "revoke", key.split("_")[2], "--yes")
        assert await asyncio.to_thread(up.children.wait, child) == 0, child.stderr

    async def expire() -> None:
        await until(lambda: clock.now_ms() > ends_ms, 10, "it expires")

    revoked = check_ended_key(up.target, key, revoke)
    expired = check_ended_key(up.target, brief, expire)
    say("(i) seconds, revoked and expired", await asyncio.gather(revoked, expired))
