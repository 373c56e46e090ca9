"""A whole small world: a cluster with services, a counted model server, and clients that talk."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.cluster import NAMES, Cluster, Name, cluster, note_in
from tests.helpers.cluster_check import check
from tests.helpers.cluster_load import Load, loaded
from tests.helpers.cluster_log import LogTold
from tests.helpers.cluster_model import Counted, Reply, counted_model
from tests.helpers.cluster_oracle import Figures
from tests.helpers.nursery import Nursery
from threadlog.events.content import ModelRef

MODEL = ModelRef(provider="openai", name="scripted")
TWO_OF_EACH: tuple[Name, ...] = NAMES * 2
TURNS_MAX = 500
"""Turns of one thread that the script of `talk` has replies for."""


@dataclass(slots=True)
class World:
    """A cluster under load. `load` has not begun."""

    cluster: Cluster
    model: Counted
    load: Load

    async def check(self, name: str) -> tuple[Figures, LogTold]:
        """The load has ended, the cluster is at rest, all that must hold does; it is printed."""
        await self.load.finish()
        client = self.load.client
        told, log = await check(self.cluster, sent=client.sent, model=self.model)
        killed = sum(p.fate == "killed" for p in self.cluster.processes)
        print(  # noqa: T201  # the figures of the run, for a report
            f"\n{name}: {told}; {killed} killed; {len(client.sent)} inputs acknowledged,"
            f" retries {dict(client.retries)}, {client.missed} results not announced,"
            f" slowest turn {client.slowest_s:.1f} s; {len(self.model.asked)} model requests"
        )
        return told, log


@contextlib.asynccontextmanager
async def world(
    nursery: Nursery,
    home: Path,
    servers: tuple[str, str],
    *,
    replies: Sequence[Reply] | None = None,
    services: Sequence[Name] = NAMES,
    partitions: int = 4,
) -> AsyncIterator[World]:
    """The services run and serve; `replies` None: each turn is one command and an answer."""
    async with (
        counted_model(talk(home) if replies is None else replies) as model,
        cluster(nursery, home, servers, partitions=partitions, model=model.url) as made,
    ):
        await made.start(*services)
        async with loaded(made, MODEL) as load:
            yield World(made, model, load)


def talk(home: Path, then: str = "echo done") -> list[Reply]:
    """Each turn: one command that notes its start, then an answer."""
    call = {"calls": [f"{note_in(home)}; {then}"], "delay_ms": 20}
    return [call, {"text": "answered", "delay_ms": 20}] * TURNS_MAX


def fault_seconds(short: int) -> int:
    """How long to disturb: `short` in CI, `TEST_FAULT_SECONDS` where somebody has more time."""
    return int(os.environ.get("TEST_FAULT_SECONDS", short))


async def for_seconds(seconds: float, load: Load) -> None:
    """So much time has passed, and nobody under load has failed meanwhile."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while (left_s := deadline - loop.time()) > 0:
        load.check()
        await asyncio.sleep(min(left_s, 0.2))
