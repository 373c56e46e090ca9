"""A relay in front of a broker: what clients ask arrives, and the answers can be held back."""

import asyncio
from typing import Self

from deploy.servers import HOST


def advertised_at(port: int) -> dict[str, str]:
    """Settings of a broker whose clients go through a relay on this port."""
    return {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}


class Relay:
    """`async with Relay(port, "host:port") as relay:` answers pass while `relay.answers` is set."""

    def __init__(self, port: int, target: str) -> None:
        self._port = port
        self._target = target.split(":")
        self.answers = asyncio.Event()
        self.answers.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._relay(client, answers))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        host, port = self._target
        broker, asking = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(client, asking, None))
                both.create_task(self._pump(broker, answers, self.answers))
        except* OSError:
            pass  # one of them has gone
        finally:
            for writer in (asking, answers):
                writer.close()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        gate: asyncio.Event | None,
    ) -> None:
        while data := await source.read(65_536):
            if gate is not None:
                await gate.wait()
            target.write(data)
            await target.drain()
        raise ConnectionResetError("the other side has gone")
