"""A plain EventSource of a real browser: it signs in, reads a thread, and resumes when it is cut.

The page is served by the test and says what it got to the test; nothing drives the browser.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.servers import HOST
from tests.helpers.embedded import Embedded, InstantTools, embedded, scripted
from tests.helpers.gateway_world import TOKEN
from tests.helpers.servers import reserved_port
from threadlog.bootstrap.gateway import LocalUser, embedded_ports, serve_app
from threadlog.commands.requests import NewMessage, NewThread, ThreadSettings
from threadlog.events.content import ModelRef, TextPart
from threadlog.settings import Settings

DEADLINE_S = 60.0
CHROMIUM = shutil.which("chromium")
PAGE = """<!doctype html><script>
const seen = [], heard = {delta: 0, partial: 0, fresh: 0};
let opened = 0;
const say = (what) => fetch("/say", {method: "POST", body: JSON.stringify(what)});
fetch("GATEWAY/v1/sign-in", {method: "POST", credentials: "include",
  headers: {Authorization: "Bearer TOKEN"}}).then((answer) => {
  if (answer.status !== 204) return say({error: answer.status});
  const source = new EventSource("GATEWAY/v1/threads/THREAD/stream?since=-1",
    {withCredentials: true});
  source.onopen = () => { opened += 1; say({opened}); };
  source.onmessage = (event) => {
    const body = JSON.parse(event.data);
    seen.push([event.lastEventId, body.seq, body.type]);
    if (body.type === "turn.finished") say({seen, opened, heard});
  };
  for (const name of Object.keys(heard))
    source.addEventListener(name, () => { heard[name] += 1; });
}).catch((error) => say({error: String(error)}));
</script>"""


class Page:
    """Serves the page, and hears what it says."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.text = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = self.text
        if head.startswith("POST"):
            length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
            self.said.put_nowait(json.loads(await reader.readexactly(int(length))))
            body = ""
        writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}".encode()
        )
        writer.close()


class Wire:
    """A way to the gateway that the test cuts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, self._port)
        both = {writer, far_writer}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(pump(reader, far_writer))
                ways.create_task(pump(far_reader, writer))
        except* OSError:
            pass
        finally:
            self._writers -= both
            for each in both:
                each.close()

    def cut(self) -> None:
        """Every connection is gone, without a word."""
        for writer in self._writers:
            writer.transport.abort()


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        target.write(data)
        await target.drain()
    raise ConnectionResetError


@asynccontextmanager
async def browser(address: str, folder: Path) -> AsyncIterator[None]:
    """Chromium shows the page, without any service of its maker."""
    assert CHROMIUM is not None, "chromium is not installed: make setup-dev"
    flags = (
        "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync"
    )
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *flags.split(),
        f"--user-data-dir={folder}",
        address,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def started(runtime: Embedded) -> str:
    """A thread whose turn has begun."""
    model = ModelRef(provider="scripted", name="small")
    message = NewMessage((TextPart(text="go"),))
    new = NewThread(ThreadSettings(model=model), message=message)
    return (await runtime.commands.create_thread(new, key="k")).thread_id


@pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="browser: chromium is not installed"
)
@pytest.mark.timeout(120)
async def test_F81_a_browser_s_event_source_resumes_where_it_was_cut(tmp_path: Path) -> None:
    slow = [{"text": f"step {n}", "calls": ["echo x"], "delay_ms": 700} for n in range(6)]
    replies = [*slow, {"text": "done", "delay_ms": 500}]
    page = Page()
    with reserved_port() as page_port, reserved_port() as wire_port:
        async with embedded(
            tmp_path / "log.db", scripted(*map(json.dumps, replies)), InstantTools()
        ) as runtime:
            gateway = {"origins": (f"http://{HOST}:{page_port}",)}
            settings = Settings(data_dir=tmp_path, gateway=gateway)  # type: ignore[arg-type]  # parsed
            ports = embedded_ports(
                settings, runtime.services.ports, LocalUser(TOKEN, "user:ann"), {}
            )
            listener = socket.create_server((HOST, 0))
            server = serve_app(ports, [listener])
            wire = Wire(listener.getsockname()[1])
            relay = await asyncio.start_server(wire.relay, HOST, wire_port)
            pages = await asyncio.start_server(page.answer, HOST, page_port)
            try:
                page.text = (
                    PAGE.replace("GATEWAY", f"http://{HOST}:{wire_port}")
                    .replace("TOKEN", TOKEN)
                    .replace("THREAD", await started(runtime))
                )
                async with browser(f"http://{HOST}:{page_port}/", tmp_path / "profile"):
                    said = await heard(page, wire)
            finally:
                relay.close()
                pages.close()
                await server.stop()
                listener.close()
    seqs = [seq for _, seq, _ in said["seen"]]
    assert seqs == list(range(len(seqs))), "no gap, no repeat"
    assert [int(last) for last, _, _ in said["seen"]] == seqs
    assert said["opened"] == 3


async def heard(page: Page, wire: Wire) -> dict[str, Any]:
    """What the page says in the end; it is cut twice, each time a moment after it has connected."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            said = await page.said.get()
            assert "error" not in said, said
            if "seen" in said:
                return said
            if said["opened"] in (1, 2):
                wire.cut()
