"""The embedded runtime's edges: rest, stop, failures, the locks of its file."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.contract.backends import opened
from tests.helpers.embedded import InstantTools, embedded, scripted
from tests.helpers.events import created
from tests.helpers.fakes import StepModel
from threadlog.adapters.memory.blobs import MemoryBlobs
from threadlog.adapters.memory.log import MemoryLog
from threadlog.adapters.memory.members import MemoryMembers
from threadlog.adapters.memory.notify import MemoryNotify
from threadlog.adapters.memory.snapshots import MemorySnapshots
from threadlog.adapters.memory.views import MemoryViews
from threadlog.adapters.sqlite.file import open_read_only
from threadlog.adapters.sqlite.lock import read_holder, token_path
from threadlog.bootstrap.embedded import RunOptions, Runtime
from threadlog.bootstrap.services import Ports, Services
from threadlog.client.connection import Connection
from threadlog.client.http import HttpCommands
from threadlog.clock import SystemClock
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import LockedError, LogFileError, LogUnavailableError
from threadlog.events.content import ModelRef, TextPart
from threadlog.events.envelope import Event
from threadlog.events.step import ModelAttemptFailed
from threadlog.events.tool import ToolFinished
from threadlog.ids import NO_POSITION, Position, WorkerId
from threadlog.ports.log import Receipt, Record
from threadlog.settings import Settings

NEW = NewThread(
    ThreadSettings(model=ModelRef(provider="scripted", name="s")),
    message=NewMessage((TextPart(text="hello"),)),
)
SLOW = '[{"text":"a long answer","delay_ms":60000}]'


def silent(_: str) -> None:
    """What the runtime has to say is not asked for."""


async def started(folder: Path, script: str) -> tuple[Runtime, Settings]:
    path = folder / "script.json"
    path.write_text(script)
    settings = Settings(data_dir=folder / "data", sandbox="off")
    return await Runtime.start(settings, RunOptions("user:ann", path), silent), settings


def socket_of(settings: Settings) -> Path:
    """What another command goes by: the lock's note."""
    holder = read_holder(settings.log_file())
    assert holder is not None
    assert holder.socket is not None
    return Path(holder.socket)


def way_to(settings: Settings) -> Connection:
    """Its socket, and the token that it asks for."""
    token = token_path(settings.log_file()).read_text().strip()
    return Connection.through(socket_of(settings), token)


async def test_a_command_that_comes_while_the_runtime_rests_can_still_be_cancelled(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken when nothing was open and the socket was about to close: it opens again."""
    runtime, settings = await started(short_dir, SLOW)
    client = HttpCommands(way_to(settings))
    is_resting, sent = runtime.services.is_resting, list[Accepted]()
    asked: list[bool] = []

    async def rests_until_a_command_comes() -> bool:
        answer = await is_resting()
        asked.append(answer)
        # The first time it only asks whether there is something to say.
        if answer and len(asked) > 1 and not sent:
            sent.append(await client.create_thread(NEW, key="k"))
        return answer

    monkeypatch.setattr(runtime.services, "is_resting", rests_until_a_command_comes)
    socket = socket_of(settings)
    first = socket.stat().st_ctime_ns
    async with asyncio.timeout(15):
        resting = asyncio.create_task(runtime.rest(silent))
        while not socket.exists() or socket.stat().st_ctime_ns == first:
            await asyncio.sleep(0)
        assert not resting.done()
        reader = runtime.reader()
        [message] = sent
        while (row := await reader.thread(message.thread_id)).open_turn is None:
            await asyncio.sleep(0.01)
        await client.close()
        client = HttpCommands(way_to(settings))
        await client.cancel(message.thread_id, row.open_turn, key="c")
        await resting
        assert (await reader.thread(message.thread_id)).verdict == "cancelled"
    await client.close()
    await runtime.stop()
    assert read_holder(settings.log_file()) is None


async def test_a_runtime_that_cannot_start_leaves_the_lock_free(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / "data").mkdir()
    (short_dir / "data" / "threadlog.db").write_text("not a log " * 100)
    with pytest.raises(Exception, match="is not a Threadlog log"):
        await started(short_dir, SLOW)
    (short_dir / "data" / "threadlog.db").unlink()
    runtime, _ = await started(short_dir, SLOW)
    with pytest.raises(LockedError):
        await started(short_dir, SLOW)
    await runtime.stop()


async def test_P5_a_stop_says_what_it_cut_off(tmp_path: Path) -> None:
    """A request and a command run; both have their outcome in the log when the stop returns."""
    path = tmp_path / "log.db"
    model = StepModel()
    async with embedded(path, model) as runtime:
        asked = asyncio.create_task(runtime.turn("hello"))
        await model.asked()
        [row] = await runtime.reader.views.threads(runtime.reader.tenant, limit=1)
        asked.cancel()
    async with embedded(path, StepModel(), InstantTools()) as runtime:
        judged = await runtime.judged(row.thread_id)
        failed = [e.body for e, _ in judged if isinstance(e.body, ModelAttemptFailed)]
        assert [f.error_class for f in failed] == ["shutdown"]
        assert not [e for e, _ in judged if e.type == "step.released"], "nobody had died"


async def test_Q2_a_device_that_is_full_for_a_while_stops_nothing_for_good(tmp_path: Path) -> None:
    """Every append of the services fails for a time; then the turn goes on by itself."""
    script = scripted('{"calls":["make"]}', '{"text":"done"}')
    async with embedded(tmp_path / "log.db", script) as runtime:
        log = runtime.services.ports.log
        append, failures = log.append, iter([False, True, True, False, True, False, True])

        async def append_when_there_is_space(events: Sequence[Event]) -> Sequence[Receipt]:
            if next(failures, False):
                raise LogUnavailableError("no space is left on the device")
            return await append(events)

        log.append = append_when_there_is_space  # type: ignore[method-assign]  # the same, when it can
        result = await runtime.turn("hello")
        assert (result.verdict, result.answer) == ("completed", "done")
        judged = await runtime.judged(result.thread_id)
        finished = [e.body for e, j in judged if isinstance(e.body, ToolFinished) and not j.void]
        assert [f.outcome for f in finished] == ["ok"]


async def test_opening_a_reader_keeps_the_locks_of_its_process(tmp_path: Path) -> None:
    """POSIX drops all locks of a process when it closes any descriptor of the file.

    Another process would then take the write-ahead log away from under this one's connections.
    """
    path = tmp_path / "log.db"
    lock = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b');"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
    )
    async with opened(path):
        reader = await open_read_only(path)
        await reader.close()
        tried = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", lock, str(path)], capture_output=True
        )
        assert b"BlockingIOError" in tried.stderr, "SQLite's shared lock is held"


class BlindViews(MemoryViews):
    """Cannot say how far it is."""

    async def begin(self, end: Position, *, reached: Position = NO_POSITION) -> Position:
        raise LogFileError("the file is damaged")


async def test_a_start_whose_projection_dies_fails_instead_of_waiting_for_ever() -> None:
    log, snapshots = MemoryLog(), MemorySnapshots()
    await log.append([created()])
    services = Services(memory_ports(log, BlindViews(log, snapshots)), *WORKERS)
    with pytest.raises(LogFileError):
        async with asyncio.timeout(5):
            await services.start()
    await services.stop(drain_ms=0)


async def test_a_service_that_ends_is_told_to_whoever_waits_for_rest() -> None:
    log = BreakingLog()
    services = Services(memory_ports(log, MemoryViews(log, MemorySnapshots())), *WORKERS)
    await services.start()
    assert await services.is_resting()
    log.is_broken = True
    await log.append([created()])
    async with asyncio.timeout(5):
        while not services.has_failed:
            await asyncio.sleep(0)
    with pytest.raises(LogUnavailableError):
        await services.is_resting()
    await services.stop(drain_ms=0)


class BreakingLog(MemoryLog):
    """Cannot be read any more once it `is_broken`."""

    is_broken = False

    async def subscribe(self, after: Position) -> AsyncIterator[Sequence[Record]]:
        async for batch in super().subscribe(after):
            if self.is_broken:
                raise LogUnavailableError("the file was closed")
            yield batch


WORKERS = WorkerId("p1"), WorkerId("t1")


def memory_ports(log: MemoryLog, views: MemoryViews) -> Ports:
    """Ports on memory, with these two."""
    members = MemoryMembers()
    for worker in WORKERS:
        members.join(worker)
    return Ports(
        log=log,
        views=views,
        partition=views,
        snapshots=MemorySnapshots(),
        blobs=MemoryBlobs(),
        notify=MemoryNotify(),
        members=members,
        clock=SystemClock(),
        models={},
        unknown_model=StepModel(),
        tools=InstantTools(),
    )
