"""`python -m tests.helpers.sandbox_child KIND TOP LINE`: a runner of its own, to be killed.

It runs the line in the workspace `main` below TOP and prints the id of its call before.
"""

import asyncio
import sys
from pathlib import Path

from tests.helpers.bench_tools import Bench
from threadlog.adapters.sandbox.tools import BareTools, SandboxTools

KINDS: dict[str, type[SandboxTools] | type[BareTools]] = {
    "sandbox": SandboxTools,
    "bare": BareTools,
}


async def main(kind: str, top: str, line: str) -> None:
    bench = Bench(KINDS[kind], Path(top))
    await bench.tools.prepare(bench.workspace)
    call = bench.call(line, timeout_ms=60_000)
    sys.stdout.write(f"{call.call_id}\n")
    sys.stdout.flush()
    await bench.tools.run(call, bench.workspace, may_start=lambda: True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
