"""The workload `turn`, as both sides run it.

One turn is: a user's message, a model response with two tool calls, their results, a model response
without calls. Model and tools do nothing, so that only the runtime's own cost shows. Every turn is
a fresh thread. One client gives latency; 64 threads in flight give throughput.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

TEXT = ("Pack my box with five dozen liquor jugs, then write down what was in it. " * 4)[:250]
WARM_UP_TURNS = 30
ONE_CLIENT_TURNS = 150
IN_FLIGHT = 64
TURNS_EACH = 6


@dataclass(frozen=True, slots=True)
class Round:
    """What one round measured. Units: milliseconds, turns per second, CPU milliseconds a turn."""

    p50_ms: float
    p99_ms: float
    turns_per_s: float
    cpu_ms: float

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


async def measure(turn: Callable[[], Awaitable[None]]) -> Round:
    """One round: latency with one client, then throughput with `IN_FLIGHT` threads."""
    for _ in range(WARM_UP_TURNS):
        await turn()
    times = []
    for _ in range(ONE_CLIENT_TURNS):
        began = time.perf_counter()
        await turn()
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()

    async def client() -> None:
        for _ in range(TURNS_EACH):
            await turn()

    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(IN_FLIGHT)))
    took, used = time.perf_counter() - began, time.process_time() - cpu
    turns = IN_FLIGHT * TURNS_EACH
    return Round(
        p50_ms=statistics.median(times),
        p99_ms=times[int(0.99 * len(times))],
        turns_per_s=turns / took,
        cpu_ms=used / turns * 1e3,
    )
