"""`turn` on the embedded runtime: SQLite with synchronous=FULL, all services in this process.

`python -m tests.bench.ours FOLDER` prints one round as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.bench.parts import SCRIPT, SLOTS, NoTools, turn_of
from tests.bench.workload import Counts, Round, measure, own_cpu
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.model_api.script import load_script
from threadlog.adapters.model_api.scripted import ScriptedModel
from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.adapters.sqlite.file import open_file
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.adapters.sqlite.members import LockMembers
from threadlog.adapters.sqlite.snapshots import SqliteSnapshots
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.bootstrap.services import Ports, Services
from threadlog.clock import SystemClock
from threadlog.commands.service import Commands
from threadlog.errors import ThreadlogError
from threadlog.ids import LOCAL_TENANT, WorkerId, draw
from threadlog.queries.reading import Reader


def _fail(error: ThreadlogError) -> None:
    raise error


async def run(folder: Path) -> Round:
    """One round on a new file in `folder`."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    clock = SystemClock()
    file = await open_file(folder / "bench.db", clock=clock, on_fatal=_fail)
    views, members, model = SqliteViews(file), LockMembers(), ScriptedModel(load_script(script))
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
        slots=SLOTS,
    )
    services = Services(ports, planner, runner)
    await services.start()
    commands = Commands(
        ports.log, views, ports.blobs, clock, tenant=LOCAL_TENANT, actor="user:bench"
    )
    reader = Reader(views, ports.blobs, ports.notify, LOCAL_TENANT)

    async def count() -> Counts:
        return {**await own_cpu(), "events": await ports.log.end()}

    try:
        return await measure(turn_of(commands, reader), count)
    finally:
        await services.stop()
        await file.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(Path(sys.argv[1])))))  # its output
