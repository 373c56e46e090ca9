"""One service of the measured cluster as a process: `python -m tests.bench.service NAME MODE`.

It is what `threadlog serve NAME` runs, with tools that do nothing. It ends when its standard input
does, and says on standard output, a line of JSON each, what it was asked there.
"""

import asyncio
import json
import sys
from typing import Any, cast

from tests.bench.parts import SLOTS, NoTools
from tests.bench.watching import Mode, Watch, obey
from threadlog.bootstrap import serving
from threadlog.settings import load_settings


def _say(kind: str, what: Any) -> None:
    print(json.dumps({kind: what}), flush=True)


async def main(name: serving.ServiceName, mode: Mode) -> None:
    """The service ran until standard input ended."""
    watch, stop = Watch(mode), asyncio.Event()
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    obeying = asyncio.create_task(obey(watch, stream, _say))
    obeying.add_done_callback(lambda _: stop.set())
    await serving.serve_service(
        load_settings(), name, lambda text: _say("notice", text), stop, tools=NoTools()
    )
    await obeying


if __name__ == "__main__":
    # As many as the embedded side has.
    setattr(serving, "SLOTS", SLOTS)  # noqa: B010  # it does not export the name
    asyncio.run(main(cast(serving.ServiceName, sys.argv[1]), cast(Mode, sys.argv[2])))
