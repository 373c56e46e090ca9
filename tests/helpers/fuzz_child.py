"""A process with a gateway for a fuzzer: memory adapters, a planner, a model that always answers.

It says on stdout its port and what is there: a thread, the seq of its step, a blob. It serves until
stdin ends. What would make a fuzzer wait is short here: a cursor beyond the head, a stream that
nothing ends.
"""

import asyncio
import json
import sys
from collections.abc import Callable

import httpx2

from tests.helpers.events import LOCAL
from tests.helpers.fakes import StepModel, reply
from tests.helpers.gateway_checks import MODEL
from tests.helpers.gateway_world import TOKEN, gateway_ports
from tests.helpers.raw_http import loopback
from tests.helpers.service_world import World
from threadlog.events.content import Usage
from threadlog.gateway import reading, streams
from threadlog.gateway.app import create_app
from threadlog.gateway.ports import GatewayOptions
from threadlog.gateway.server import GatewayServer
from threadlog.ports.model import Delta, ModelReply, always

_SHORT_MS = {
    (reading, "RECEIPT_MS"): 20,
    (streams, "STREAM_LIFE_MS"): 60,
    (streams, "STREAM_AUTH_MS"): 30,
}
_NEW = {"settings": {"model": MODEL}, "message": {"content": "go"}}


class AnsweringModel(StepModel):
    """Says the same to everybody, at once."""

    renderer = "scripted/1"

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        return reply("all is well", usage=Usage(input=1, output=1))


async def serve() -> None:
    """A gateway serves until nobody wants it any more."""
    for (module, name), value in _SHORT_MS.items():
        setattr(module, name, value)
    options = GatewayOptions(version="1", requests_per_minute=10**9, streams_per_tenant=10**6)
    listener = loopback()
    async with World() as world, world.planner(AnsweringModel()):
        ports = gateway_ports(world, options)
        server = GatewayServer(create_app(ports), [listener], grace_s=1.0, stopping=ports.stopping)
        port = listener.getsockname()[1]
        [blob] = await world.blobs.put(LOCAL, [(b"0123456789", "text/plain")])
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            key = {"Authorization": f"Bearer {TOKEN}"}
            made = await client.post("/v1/threads?wait=20", json=_NEW, headers=key)
        turn = made.json()
        assert turn["verdict"] == "completed"
        there = {"port": port, "thread": turn["thread_id"], "seq": "4", "sha256": blob.sha256}
        sys.stdout.write(f"{json.dumps(there)}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        await server.stop()


if __name__ == "__main__":
    asyncio.run(serve())
