"""Laws 2, 3, 4 and 9 where they are hardest: several writers, one real broker."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.helpers.cluster import Cluster, Name, Process, note_in, until
from tests.helpers.cluster_load import client_of, message
from tests.helpers.cluster_log import LogTold
from tests.helpers.cluster_model import Reply
from tests.helpers.cluster_world import MODEL, world
from tests.helpers.nursery import Nursery
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.errors import ConflictError
from threadlog.events.input import MessageReceived
from threadlog.events.tool import ToolFinished, ToolReleased
from threadlog.ids import ThreadId, draw

RACERS = 8


@pytest.mark.timeout(90)
async def test_F29_law_2_of_racing_writers_the_first_in_the_log_wins_for_every_reader(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """Two processes' worth of clients with one key, then with messages that want an idle thread."""
    async with world(children, short_dir, servers) as one, one.cluster.connected() as second:
        clients = [one.load.client, client_of(second, MODEL)] * (RACERS // 2)
        new, key = NewThread(ThreadSettings(model=MODEL), message=message("once")), draw()
        made = await asyncio.gather(*(c.commands.create_thread(new, key=key) for c in clients))
        assert len(set(made)) == 1, "every racer was told of the same event"
        await one.load.client.result(made[0])
        text = message("alone").content
        raced = await asyncio.gather(
            *(
                c.commands.send_message(made[0].thread_id, NewMessage(text, "reject"), key=draw())
                for c in clients
            ),
            return_exceptions=True,
        )
        taken = [answer for answer in raced if isinstance(answer, Accepted)]
        refused = [answer for answer in raced if isinstance(answer, ConflictError)]
        assert len(taken) == 1
        assert len(taken) + len(refused) == RACERS, raced
        await one.load.client.result(taken[0])
        one.load.client.sent += [made[0], taken[0]]
        _, log = await one.check("racing writers")
    [told] = log.threads.values()
    accepted = [e for e in told.accepted if isinstance(e.event.body, MessageReceived)]
    assert [e.event.event_id for e in accepted] == [made[0].event_id, taken[0].event_id]
    assert told.voids, "nobody raced"


@pytest.mark.timeout(120)
async def test_law_3_law_4_a_runner_dies_around_an_effect(
    children: Nursery, short_dir: Path, servers: tuple[str, str]
) -> None:
    """Before it starts: it never does. Behind it: never again, unless the call is pure."""
    command = f"{note_in(short_dir)}; echo milk > notes.txt"
    replies: list[Reply] = [{"calls": [command, "read notes.txt"]}, {"text": "done"}]
    services: tuple[Name, ...] = ("planner", "projection")
    async with world(
        children, short_dir, servers, replies=replies, services=services, partitions=1
    ) as one:
        client, died = one.load.client, list[tuple[Process, Accepted]]()
        for fault in ("claim.after_append:1", "effect.after:1", "effect.after:2"):
            [runner] = await one.cluster.start(
                "tool-runner", THREADLOG_FAULT=f"tool_runner.{fault}"
            )
            runner.fate = "killed"
            sent = await client.create(fault)
            await until(lambda r=runner: r.has_ended, f"it dies at {fault}", [runner])  # type: ignore[misc]  # bound now
            assert await one.cluster.ended(runner) == -signal.SIGKILL
            died.append((runner, sent))
        await one.cluster.start("tool-runner")
        results = await asyncio.gather(*(client.result(sent) for _, sent in died))
        assert {result.verdict for result in results} == {"completed"}
        told, log = await one.check("a runner that dies around an effect")
        starts = [effects_of(one.cluster, log, sent.thread_id) for _, sent in died]
    before, behind, pure = (outcomes(log, sent.thread_id) for _, sent in died)
    assert before[0] == behind[0] == ("unknown", "settlement", 1)
    assert pure == [("ok", "writer", 1), ("ok", "writer", 2)], "a pure call is tried again"
    assert starts == [0, 1, 1]
    assert told.settled == 3
    released = [e.event.body for e in log.accepted if isinstance(e.event.body, ToolReleased)]
    assert [body.by for body in released] == ["settlement"]


def outcomes(log: LogTold, thread: ThreadId) -> list[tuple[str, str, int]]:
    """Of the thread's calls, in the order of their commands: outcome, by whom, which attempt."""
    entries = log.threads[f"local/{thread}"].accepted
    calls = [e.event.event_id for e in entries if e.event.type == "tool.requested"]
    ended = {b.call_id: b for e in entries if isinstance(b := e.event.body, ToolFinished)}
    by_call = {str(call): body for call, body in ended.items()}
    return [(by_call[c].outcome, by_call[c].by, by_call[c].attempt) for c in calls]


def effects_of(one: Cluster, log: LogTold, thread: ThreadId) -> int:
    """How often commands of this thread have started."""
    calls = {e.event.event_id for e in log.threads[f"local/{thread}"].accepted}
    return sum(line.split()[0] in calls for line in one.effects())
