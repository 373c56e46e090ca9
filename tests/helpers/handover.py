"""A handover set up: two processes of one service, of which the first owns the partition."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from tests.helpers.fakes import Exchange, Run, StepModel, StepTools, reply
from tests.helpers.memory_group import Coordinator
from tests.helpers.shared_world import P0, Process, SharedWorld
from tests.helpers.thread_events import (
    MODEL,
    Maker,
    configured,
    created,
    message,
    requested,
    responded,
    step_started,
    turn_started,
)
from threadlog.events.step import StepReleased, StepStarted
from threadlog.events.tool import Effect, ToolReleased, ToolStarted
from threadlog.ids import ThreadId

START: tuple[Maker, ...] = (created(), configured(model=MODEL), message())
Kind = Literal["model", "call"]


@dataclass
class Scene:
    """Two processes of one service, `old` with the partition; what each of them starts."""

    world: SharedWorld
    kind: Kind
    old: Process
    new: Process
    models: tuple[StepModel, StepModel]
    tools: tuple[StepTools, StepTools]
    effect: Effect = "unsafe"

    @property
    def thread(self) -> ThreadId:
        return self.world.thread()

    @property
    def group(self) -> Coordinator:
        """The group of both."""
        return self.old.group

    async def wanted(self) -> None:
        """Something in the log wants an effect of this service."""
        calls = (turn_started(), step_started("p0"), responded(calls=1))
        call = requested(0, effect=self.effect)
        makers = START if self.kind == "model" else (*START, *calls, call)
        await self.world.go(*makers, thread=self.thread)

    def started(self) -> tuple[int, int]:
        """How many effects the old and the new one have begun."""
        found = self.models if self.kind == "model" else self.tools
        counts = [len(x.sent) if isinstance(x, StepModel) else len(x.runs) for x in found]
        return counts[0], counts[1]

    async def begun(self, at: int = 0) -> Exchange | Run:
        """The effect that one of them begins next."""
        if self.kind == "model":
            return await self.models[at].asked()
        return await self.tools[at].started()

    def told(self) -> list[str]:
        """What was told of claims and outcomes since the effect was wanted."""
        first = "step.started" if self.kind == "model" else "tool.requested"
        told = self.world.told(self.thread)
        return told[told.index(first) + (self.kind == "call") :]

    def claims(self) -> list[tuple[str | None, int]]:
        """Writer and attempt of each accepted claim."""
        wanted = StepStarted if self.kind == "model" else ToolStarted
        return [
            (e.worker, e.body.attempt)
            for e, j in self.world.judged
            if j.void is None and isinstance(e.body, wanted) and e.worker != "p0"
        ]

    def releases(self) -> list[tuple[str, str]]:
        """By whom, and why."""
        kind = StepReleased if self.kind == "model" else ToolReleased
        return [(body.by, body.reason) for body in self.world.bodies(kind)]

    async def given(self, to: Process | None = None) -> None:
        """The partition is `to`'s in order; None: the new one's."""
        async with asyncio.timeout(5):
            await self.group.move(P0, (to or self.new).name)
        await self.world.until(lambda: (to or self.new).assignment.is_ready)


def finish(begun: Exchange | Run) -> None:
    if isinstance(begun, Exchange):
        begun.answer(reply("done"))
    else:
        begun.finish()


def was_ended(begun: Exchange | Run) -> bool:
    return begun.was_stopped if isinstance(begun, Exchange) else begun.was_killed


async def scene(world: SharedWorld, kind: Kind, effect: Effect = "unsafe") -> Scene:
    """The old process owns the partition; the new one has joined and owns nothing."""
    models, tools = (StepModel(), StepModel()), (StepTools(), StepTools())

    async def process(n: int) -> Process:
        if kind == "model":
            return await world.planner(f"w{n + 1}", models[n])
        return await world.tool_runner(f"w{n + 1}", tools[n])

    old = await process(0)
    await world.ready(old)
    old.group.deals_on_join = False
    return Scene(world, kind, old, await process(1), models, tools, effect)
