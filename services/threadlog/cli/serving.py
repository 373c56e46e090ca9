"""`up`, `serve` and `scripted-model`: processes that run until they are told to end."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from threadlog.bootstrap.embedded import RunOptions, serve
from threadlog.bootstrap.script_server import serve_script
from threadlog.cli.plain import plain
from threadlog.cli.running import actor
from threadlog.cli.terminal import Screen
from threadlog.errors import UsageError
from threadlog.settings import Settings


async def up(settings: Settings, screen: Screen, script: Path | None) -> None:
    """All services ran until Ctrl-C or SIGTERM, and what they carried was left in order.

    Raises:  UsageError: the settings name a cluster.
    """
    if settings.is_cluster:
        raise UsageError(
            "up runs on a file, and THREADLOG_KAFKA__BOOTSTRAP names a cluster: unset it, "
            "or run its services with threadlog serve"
        )

    def notice(text: str) -> None:
        screen.note(f"threadlog: {plain(text)}")

    async def work(stop: asyncio.Event) -> None:
        await serve(settings, RunOptions(actor(), script), notice, stop)

    await _until_told(screen, work)


async def serve_one(
    settings: Settings, screen: Screen, service: str, metrics_port: int | None
) -> None:
    """The service ran until Ctrl-C or SIGTERM, and left in order."""
    if metrics_port is not None:
        metrics = settings.metrics.model_copy(update={"port": metrics_port})
        settings = settings.model_copy(update={"metrics": metrics})

    def notice(text: str) -> None:
        screen.note(f"threadlog: {plain(text)}")

    async def work(stop: asyncio.Event) -> None:
        if service == "gateway":
            from threadlog.bootstrap.gateway_service import serve_gateway

            await serve_gateway(settings, notice, stop)
            return
        if service == "metering":
            from threadlog.bootstrap.metering_service import serve_metering

            await serve_metering(settings, notice, stop)
            return
        from threadlog.bootstrap.serving import PORTS, serve_service

        name = next(known for known in PORTS if known == service)
        await serve_service(settings, name, notice, stop)

    await _until_told(screen, work)


async def scripted_model(
    screen: Screen, script: Path, *, host: str, port: int, quirks: tuple[str, ...]
) -> None:
    """The server answered until Ctrl-C or SIGTERM; its address is on stdout."""

    def ready(address: str) -> None:
        screen.data(address)
        screen.flush()
        screen.note(f"export OPENAI_BASE_URL={address}   # Ctrl-C ends it")

    async def work(stop: asyncio.Event) -> None:
        await serve_script(script, ready, stop, host=host, port=port, quirks=quirks)

    await _until_told(screen, work)


async def _until_told(screen: Screen, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """`work` ended; a first signal asks it to, a second one does not wait for it."""
    stop = asyncio.Event()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def told() -> None:
        if stop.is_set():
            task.cancel()
            return
        stop.set()
        screen.note("threadlog: stopping; Ctrl-C again to leave at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    try:
        await work(stop)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
