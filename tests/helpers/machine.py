"""A person's machine: a home, a log, a folder to work in, and processes that come and go.

What the log says is read from the file, as any reader does; what commands did is read from files
that they left in the folder.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.nursery import DEADLINE_S, Child, Nursery
from threadlog.adapters.sqlite.file import open_read_only
from threadlog.adapters.sqlite.log import SqliteLog
from threadlog.errors import LogFileError, NotFoundError
from threadlog.events.envelope import Event
from threadlog.events.tool import ToolFinished
from threadlog.events.turn import TurnFinished
from threadlog.ids import LOCAL_TENANT, NO_POSITION, ThreadId
from threadlog.thread.fold import Judgement, judge
from threadlog.thread.state import ThreadState

_PAUSE = threading.Event()
"""Never set: a look each 10 ms, so that the processes under test have the processor."""
NOTE = "echo $THREADLOG_CALL_ID.$THREADLOG_ATTEMPT >> effects"
"""A command that leaves one line for each time that it starts."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Everything below `home`. `model`: the address of a model server, None: the scripted model."""

    nursery: Nursery
    home: Path
    model: str | None = None

    @property
    def folder(self) -> Path:
        """Where commands work."""
        return self.home / "project"

    @property
    def file(self) -> Path:
        """The log."""
        return self.home / "data" / "threadlog.db"

    def script(self, *replies: dict[str, object]) -> Path:
        """A script in a file outside the folder."""
        path = self.home / "script.json"
        path.write_text(json.dumps(replies))
        return path

    def start(self, *argv: str | Path, **env: str) -> Child:
        """`threadlog ARGV` runs."""
        if not self.folder.exists():
            self.folder.mkdir()
            (self.folder / "notes.txt").write_text("buy milk\n")
        (self.home / "run").mkdir(mode=0o700, exist_ok=True)
        number = len([*self.home.glob("out-*.txt")])
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "THREADLOG_DATA_DIR": str(self.home / "data"),
            "THREADLOG_SANDBOX": "off",
            **({} if self.model is None else {"OPENAI_BASE_URL": self.model}),
            **env,
        }
        return self.nursery.start(
            *argv, env=environment, cwd=self.folder, out=self.home / f"out-{number}.txt"
        )

    # -- what the log says

    def judged(self, thread: ThreadId | None = None) -> list[tuple[Event, Judgement]]:
        """Every record with the fold's word on it, from the file; of one thread, or of all."""
        return asyncio.run(self._judged(thread))

    async def _judged(self, thread: ThreadId | None) -> list[tuple[Event, Judgement]]:
        try:
            file = await open_read_only(self.file)
        except (NotFoundError, LogFileError):
            return []  # not made yet, or being made; who needs a record finds none
        states: dict[ThreadId, ThreadState] = {}
        found: list[tuple[Event, Judgement]] = []
        try:
            log = SqliteLog(file)
            end = await log.end()
            if end == NO_POSITION:
                return []
            async for batch in log.subscribe(NO_POSITION):
                for record in batch:
                    event = record.event
                    assert event is not None, record.problem
                    state = states.get(event.thread_id, ThreadState(LOCAL_TENANT, event.thread_id))
                    judgement = judge(state, event)
                    states[event.thread_id] = judgement.state
                    if thread in (None, event.thread_id):
                        found.append((event, judgement))
                if batch[-1].position >= end:
                    return found
        finally:
            await file.close()
        return found

    def accepted(self, thread: ThreadId | None = None) -> list[Event]:
        """The accepted events."""
        return [event for event, judgement in self.judged(thread) if judgement.void is None]

    def verdicts(self) -> list[str]:
        """Of all turns that have ended, in log order."""
        return [e.body.verdict for e in self.accepted() if isinstance(e.body, TurnFinished)]

    def outcomes(self) -> list[ToolFinished]:
        """Of all calls that have ended, in log order."""
        return [e.body for e in self.accepted() if isinstance(e.body, ToolFinished)]

    # -- what was done outside

    def effects(self) -> list[str]:
        """A line for each time that `NOTE` was started: its call and attempt."""
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def check_effects(self) -> None:
        """No attempt was started twice, and an unsafe call once in all."""
        lines = self.effects()
        assert len(set(lines)) == len(lines)
        calls = [line.partition(".")[0] for line in lines]
        assert len(set(calls)) == len(calls)


def until(is_so: Callable[[], object], what: str, children: Sequence[Child] = ()) -> None:
    """`is_so` holds, within the deadline; else what the children said is told."""
    deadline = time.perf_counter() + DEADLINE_S
    while not is_so():
        said = [f"{c.status} {c.stdout} {c.stderr}" for c in children]
        assert time.perf_counter() < deadline, f"{what}: still not so; {said}"
        _PAUSE.wait(0.01)
