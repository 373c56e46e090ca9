"""`python -m tests.helpers.unprivileged_child TOP`: the tools as a user without rights, as JSON."""

import asyncio
import json
import sys
from pathlib import Path

from tests.helpers.bench_tools import Bench
from threadlog.adapters.sandbox.tools import SandboxTools
from threadlog.errors import RefusedError


async def main(top: Path) -> dict[str, object]:
    bench = Bench(SandboxTools, top)
    await bench.tools.prepare(bench.workspace)
    lines = {
        "shell": "id -u; touch made",
        "write": "write a.txt 'one'",
        "read": "read a.txt",
        "outside": "read ../../etc/passwd",
        "deadline": "(setsid sleep 600 &) ; sleep 600",
        "processes": "for i in $(seq 200); do sleep 5 & done; wait",
    }
    found: dict[str, object] = {}
    for name, line in lines.items():
        result = await bench.run(line, timeout_ms=700)
        found[name] = [result.outcome, result.reason, result.output.decode()]
    attached = top / "attached"
    attached.mkdir()
    await bench.tools.prepare(bench.attached(attached))
    result = await bench.run("echo x > y; ls", workspace=bench.attached(attached))
    found["attached"] = [result.outcome, result.reason, result.output.decode()]
    try:
        await bench.tools.prepare(bench.attached(Path("/usr")))
    except RefusedError as error:
        found["foreign"] = str(error)
    found["alive"] = bench.alive()
    found["findings"] = [[f.level, f.check, f.evidence] for f in await bench.tools.check()]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
