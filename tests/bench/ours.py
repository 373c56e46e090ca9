"""`turn` on the embedded runtime: SQLite with synchronous=FULL, all services in this process.

`python -m tests.bench.ours FOLDER` prints one round as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.bench.workload import TEXT, Round, measure
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.model_api.script import Script, ScriptReply
from threadlog.adapters.model_api.scripted import ScriptedModel
from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.adapters.sqlite.file import open_file
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.members import LockMembers
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.bootstrap.services import Ports, Services
from threadlog.client.reading import Reader
from threadlog.clock import SystemClock
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import ThreadlogError
from threadlog.events.content import ModelRef, TextPart
from threadlog.ids import LOCAL_TENANT, WorkerId, draw
from threadlog.ports.tools import Finding, ToolCall, ToolResult, WorkspaceRef

_SCRIPT = Script((ScriptReply(calls=("read a.txt", "read b.txt")), ScriptReply(text=TEXT)))


class NoTools:
    """The tools port without any effect."""

    async def check(self) -> tuple[Finding, ...]:
        """Nothing to check."""
        return ()

    async def settle_orphans(self) -> None:
        """Nothing was started."""

    async def prepare(self, workspace: WorkspaceRef) -> None:
        """Nothing to prepare."""

    async def run(
        self, call: ToolCall, workspace: WorkspaceRef, *, may_start: Callable[[], bool]
    ) -> ToolResult:
        """The same text for every call."""
        assert may_start()
        return ToolResult("ok", TEXT.encode(), len(TEXT), exit_code=0)


def _fail(error: ThreadlogError) -> None:
    raise error


async def run(folder: Path) -> Round:
    """One round on a new file in `folder`."""
    clock = SystemClock()
    file = await open_file(folder / "bench.db", clock=clock, on_fatal=_fail)
    views, members, model = SqliteViews(file), LockMembers(), ScriptedModel(_SCRIPT)
    planner, runner = WorkerId(draw()), WorkerId(draw())
    members.register(planner)
    members.register(runner)
    ports = Ports(
        log=SqliteLog(file),
        views=views,
        partition=views,
        snapshots=SqliteSnapshots(file),
        blobs=SqliteBlobs(file, clock=clock),
        notify=MemoryNotify(),
        members=members,
        clock=clock,
        models={"scripted": model},
        unknown_model=model,
        tools=NoTools(),
        slots=128,
    )
    services = Services(ports, planner, runner)
    await services.start()
    commands = Commands(
        ports.log, views, ports.blobs, clock, tenant=LOCAL_TENANT, actor="user:bench"
    )
    reader = Reader(views, ports.blobs, ports.notify, LOCAL_TENANT)
    new = NewThread(
        ThreadSettings(model=ModelRef(provider="scripted", name="bench")),
        message=NewMessage((TextPart(text=TEXT),)),
    )

    async def turn() -> None:
        accepted = await commands.create_thread(new, key=draw())
        result = await reader.turn_result(accepted.thread_id, accepted.event_id, accepted.seq)
        assert result.verdict == "completed"
        assert result.answer == TEXT

    try:
        return await measure(turn)
    finally:
        await services.stop()
        await file.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Path(sys.argv[1]))).as_dict()))  # its output
