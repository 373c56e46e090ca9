"""The scripted model as a server: `threadlog scripted-model`."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from threadlog.adapters.model_api.script import load_script
from threadlog.adapters.model_api.scripted_server import QUIRKS, scripted_server
from threadlog.errors import UsageError


async def serve_script(
    script: Path,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    *,
    host: str,
    port: int,
    quirks: tuple[str, ...],
) -> None:
    """The server answered from `script` until `stop` was set; `ready` got its address.

    Raises:  UsageError: the script is none, a quirk is unknown, or the port is taken.
    """
    chosen = frozenset(quirk for quirk in QUIRKS if quirk in quirks)
    if unknown := sorted(set(quirks) - chosen):
        raise UsageError(f"no quirk {unknown[0]!r}; there are: {', '.join(QUIRKS)}")
    replies = load_script(script)
    async with scripted_server(replies, host=host, port=port, quirks=chosen) as address:
        ready(address)
        await stop.wait()
