"""The workload `turn`, as all sides run it.

One turn is: a user's message, a model response with two tool calls, their results, a model response
without calls. Model and tools do nothing, so that only the runtime's own cost shows. Every turn is
a fresh thread. One client gives latency; 64 threads in flight give throughput.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping

TEXT = ("Pack my box with five dozen liquor jugs, then write down what was in it. " * 4)[:250]
WARM_UP_TURNS = 30
ONE_CLIENT_TURNS = 150
IN_FLIGHT = 64
TURNS_EACH = 6

Turn = Callable[[], Awaitable[None]]
Counts = Mapping[str, float]
Round = dict[str, float]
"""What one round measured: `p50_ms` and `p99_ms` of one client, `turns_per_s` under load, and how
far each count moved in a turn under load, such as `cpu_ms`, milliseconds of CPU."""


async def own_cpu() -> Counts:
    """The CPU time that this process has used."""
    return {"cpu_ms": time.process_time() * 1e3}


async def one_client(turn: Turn, turns: int) -> list[float]:
    """The milliseconds of each turn, one after another, in ascending order."""
    times = []
    for _ in range(turns):
        began = time.perf_counter()
        await turn()
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)


async def in_flight(turn: Turn) -> float:
    """Turns per second with `IN_FLIGHT` threads."""

    async def client() -> None:
        for _ in range(TURNS_EACH):
            await turn()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(IN_FLIGHT)))
    return IN_FLIGHT * TURNS_EACH / (time.perf_counter() - began)


async def measure(turn: Turn, count: Callable[[], Awaitable[Counts]] = own_cpu) -> Round:
    """One round: latency with one client, then throughput with `IN_FLIGHT` threads."""
    await one_client(turn, WARM_UP_TURNS)
    times = await one_client(turn, ONE_CLIENT_TURNS)
    before = await count()
    turns_per_s = await in_flight(turn)
    after = await count()
    return {
        "p50_ms": statistics.median(times),
        "p99_ms": times[int(0.99 * len(times))],
        "turns_per_s": turns_per_s,
        **{name: (after[name] - before[name]) / (IN_FLIGHT * TURNS_EACH) for name in after},
    }
