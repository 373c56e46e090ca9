"""An answer does not wait for the client's acknowledgement of its first piece."""

import statistics
import time

import httpx2

from tests.helpers.gateway_checks import live
from tests.helpers.gateway_world import TOKEN

DELAYED_ACK_MS = 40
"""What a client's system waits before it acknowledges a lone piece, at least."""


async def test_an_answer_on_a_connection_that_was_used_before_comes_at_once() -> None:
    took = []
    async with (
        live() as gateway,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}") as client,
    ):
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        for _ in range(31):
            began = time.perf_counter()
            assert (await client.get("/v1/info")).status_code == 200
            took.append((time.perf_counter() - began) * 1_000)
    assert statistics.median(took) < DELAYED_ACK_MS / 2
