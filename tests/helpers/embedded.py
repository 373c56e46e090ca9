"""All three services on one SQLite file in this process, with tools that run nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.backends import opened
from tests.helpers.events import LOCAL
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.model_api.script import parse_script
from threadlog.adapters.model_api.scripted import ScriptedModel
from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.members import LockMembers
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.bootstrap.services import Ports, Services
from threadlog.clock import SystemClock
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import LateError
from threadlog.events.content import ModelRef, TextPart
from threadlog.events.envelope import Event
from threadlog.ids import NO_POSITION, ThreadId, WorkerId, draw
from threadlog.ports.model import Model
from threadlog.ports.tools import Finding, ToolCall, ToolResult, WorkspaceRef
from threadlog.queries.reading import Reader, TurnResult
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.state import ThreadState

DEADLINE_S = 20.0
MODEL = ModelRef(provider="scripted", name="small")


@dataclass(slots=True)
class InstantTools:
    """The tools port: every command ends at once; `effects` holds each attempt that started."""

    effects: list[tuple[str, int]] = field(default_factory=list)
    output_of: Callable[[str], bytes] = str.encode

    async def check(self) -> tuple[Finding, ...]:
        return ()

    async def settle_orphans(self) -> None:
        return

    async def prepare(self, workspace: WorkspaceRef) -> None:
        return

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        if not may_start():
            raise LateError("too late")
        self.effects.append((call.call_id, call.attempt))
        output = self.output_of(call.command)
        return ToolResult("ok", output, len(output), exit_code=0)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The services, and what a client has."""

    services: Services
    commands: Commands
    reader: Reader

    async def turn(self, text: str, thread: ThreadId | None = None) -> TurnResult:
        """The result of the turn that takes this message; `thread` None: of a new thread."""
        message = NewMessage((TextPart(text=text),))
        if thread is None:
            new = NewThread(ThreadSettings(model=MODEL), message=message)
            return await self.result(await self.commands.create_thread(new, key=draw()))
        return await self.result(await self.commands.send_message(thread, message, key=draw()))

    async def result(self, sent: Accepted) -> TurnResult:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.turn_result(sent.thread_id, sent.event_id, sent.seq)

    async def judged(self, thread: ThreadId) -> list[tuple[Event, Judgement]]:
        """Every record of the thread with the fold's word on it, from the log alone."""
        log, state = self.services.ports.log, ThreadState(LOCAL, thread)
        end, found = await log.end(), []
        async for batch in log.subscribe(NO_POSITION):
            for record in batch:
                if record.event is not None and record.event.thread_id == thread:
                    judgement = judge(state, record.event)
                    state = judgement.state
                    found.append((record.event, judgement))
            if batch[-1].position >= end:
                break
        return found


@asynccontextmanager
async def embedded(
    path: Path, model: Model, tools: InstantTools | None = None
) -> AsyncIterator[Embedded]:
    """The services run on the file as a new process would; they are stopped in order afterwards."""
    async with opened(path) as file:
        views, members, instance = SqliteViews(file), LockMembers(), draw()
        planner, runner = WorkerId(f"p-{instance}"), WorkerId(f"t-{instance}")
        members.register(planner)
        members.register(runner)
        ports = Ports(
            log=SqliteLog(file),
            views=views,
            partition=views,
            snapshots=SqliteSnapshots(file),
            blobs=SqliteBlobs(file, clock=SystemClock()),
            notify=MemoryNotify(),
            members=members,
            clock=SystemClock(),
            models={},
            unknown_model=model,
            tools=tools or InstantTools(),
        )
        services = Services(ports, planner, runner)
        await services.start()
        commands = Commands(
            ports.log, views, ports.blobs, ports.clock, tenant=LOCAL, actor="user:ann"
        )
        try:
            yield Embedded(services, commands, Reader(views, ports.blobs, ports.notify, LOCAL))
        finally:
            await services.stop(drain_ms=0)


def scripted(*replies: str) -> ScriptedModel:
    """The scripted model with these replies, each a JSON object."""
    return ScriptedModel(parse_script(f"[{','.join(replies)}]"))
