"""Where the time of one process goes: what happened when, and which functions used the CPU.

`Watch("trace")` notes when each event passed which place. `Watch("profile")` runs every thread of
Python under cProfile, with the thread's CPU time as clock, so that waiting counts nothing and
functions that are called often look dearer than they are. Both tell the CPU time of each thread,
native ones included. Make one before the process starts its threads.
"""

import asyncio
import cProfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from threadlog.adapters.kafka.feeds import Subscriber
from threadlog.adapters.kafka.log import KafkaLog
from threadlog.adapters.redis.partition import RedisPartitionViews

Mode = Literal["plain", "trace", "profile"]
Used = dict[str, float]
_FUNCTIONS_MAX = 400


class Watch:
    """Watches this process between `begin` and `end`."""

    def __init__(self, mode: Mode) -> None:
        self.places: list[tuple[str, float, list[str]]] = []
        """A place, seconds of a clock that all processes share, and what passed it then."""
        self._profiles: list[cProfile.Profile] = []
        if mode == "trace":
            _trace(self.at)
        if mode == "profile":
            threading.setprofile(self._profile)
            self._profile()

    def at(self, place: str, passed: Sequence[str]) -> None:
        """These passed that place now."""
        self.places.append((place, time.perf_counter(), list(passed)))

    def begin(self) -> None:
        """Only what comes from now on counts."""
        self.places.clear()
        self._used = self._functions()
        self._cpu = _threads_cpu()

    def end(self) -> dict[str, Any]:
        """What happened since `begin`, for JSON. Units: milliseconds."""
        functions = _moved(self._used, self._functions())
        threads = _moved(self._cpu, _threads_cpu())
        return {
            "places": list(self.places),
            "functions": dict(list(functions.items())[:_FUNCTIONS_MAX]),
            "threads": threads,
        }

    def _profile(self, *_: object) -> None:
        """A new thread's first event ends up here; its next ones in a profile of its own."""
        profile = cProfile.Profile(time.thread_time)
        self._profiles.append(profile)
        profile.enable()

    def _functions(self) -> Used:
        """Own CPU milliseconds of each function so far, over all threads."""
        found: Used = defaultdict(float)
        for profile in list(self._profiles):
            for entry in profile.getstats():
                found[_name(entry.code)] += entry.inlinetime * 1e3
        return found


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code
    *_, folder, file = ("", *Path(code.co_filename).parts)
    return f"{folder}/{file}:{code.co_qualname}"


def _moved(before: Used, after: Used) -> Used:
    """How far each has moved, the one that moved most first."""
    moved = {name: ms - before.get(name, 0.0) for name, ms in after.items()}
    return dict(sorted(moved.items(), key=lambda each: -each[1]))


def _threads_cpu() -> Used:
    """CPU milliseconds of the threads that live, by name."""
    names = {str(t.native_id): t.name.rpartition("_")[0] or t.name for t in threading.enumerate()}
    found: Used = defaultdict(float)
    for task in Path("/proc/self/task").iterdir():
        try:
            ns = int((task / "schedstat").read_text().split()[0])
            name = names.get(task.name) or (task / "comm").read_text().strip()
        except OSError:
            continue  # it has ended meanwhile
        found[name] += ns / 1e6
    return found


def _trace(at: Callable[[str, Sequence[str]], None]) -> None:
    """The places between producer and consumer tell what passes them."""
    append, apply = KafkaLog.append, RedisPartitionViews.apply
    count, take = Subscriber.count, Subscriber.take

    async def traced_append(self: KafkaLog, events: Any) -> Any:
        names = [event.event_id for event in events]
        kinds = " ".join(event.type for event in events)
        key = events[0].idempotency_key or ""
        at("appending", [*names, kinds, events[0].thread_id, key])
        receipts = await append(self, events)
        at("acknowledged", names)
        return receipts

    async def traced_take(self: Subscriber) -> Any:
        records = await take(self)
        at("taken", [record.event.event_id for record in records if record.event])
        return records

    async def traced_apply(self: RedisPartitionViews, batch: Any, *, urgent: bool) -> Any:
        names = [judged.event.event_id for judged in batch.judged]
        at("applying", names)
        stored = await apply(self, batch, urgent=urgent)
        at("applied", names)
        return stored

    def traced_count(self: Subscriber, batch: Any) -> None:
        at("decoded", [record.event.event_id for record in batch.records if record.event])
        count(self, batch)

    for owner, name, function in (
        (KafkaLog, "append", traced_append),
        (Subscriber, "take", traced_take),
        (RedisPartitionViews, "apply", traced_apply),
        (Subscriber, "count", traced_count),
    ):
        setattr(owner, name, function)


async def obey(watch: Watch, stream: asyncio.StreamReader, say: Callable[[str, Any], None]) -> None:
    """`begin` and `end`, a line each, until the stream ends."""
    while line := await stream.readline():
        if line == b"begin\n":
            watch.begin()
            say("begun", None)
        else:
            say("report", watch.end())
