"""The scripted model as an OpenAI-compatible server, and the quirks of foreign ones on demand.

Stateless like the script. Errors of the script come as near to their class as HTTP can say it; for
`malformed`, `empty`, `cut_stream` and `idle` the server behaves so.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Literal

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from threadlog.adapters.model_api.script import Script, ScriptPlayer, ScriptReply
from threadlog.adapters.model_api.scripted_chunks import chunks_of, whole_reply
from threadlog.errors import ModelError, UsageError

Quirk = Literal["no-usage", "one-chunk", "json", "html", "401", "404", "no-stream-options"]
QUIRKS: tuple[Quirk, ...] = (
    "no-usage",
    "one-chunk",
    "json",
    "html",
    "401",
    "404",
    "no-stream-options",
)
HOST = "127.0.0.1"
MODEL_NAME = "scripted"
"""The only entry of `/v1/models`; any name is answered."""
_STATUS: Mapping[str, tuple[int, str]] = {
    "rate_limited": (429, "rate_limit_exceeded"),
    "overloaded": (503, "overloaded"),
    "timeout": (408, "timeout"),
    "connection": (502, "bad_gateway"),
    "unauthenticated": (401, "invalid_api_key"),
    "not_found": (404, "model_not_found"),
    "bad_request": (400, "invalid_request_error"),
    "context_overflow": (400, "context_length_exceeded"),
    "script_exhausted": (400, "script_exhausted"),
    "refused": (400, "content_filter"),
    "too_large": (413, "request_too_large"),
    "internal": (500, "server_error"),
}
_PAGE = "<!doctype html><title>Not the page you are looking for</title>"


@contextlib.asynccontextmanager
async def scripted_server(
    script: Script, *, host: str = HOST, port: int = 0, quirks: frozenset[Quirk] = frozenset()
) -> AsyncIterator[str]:
    """The server answers at the address given, `http://host:port/v1`, until the block is left.

    Raises:  UsageError: the port is taken, or the host is none of this machine.
    """
    try:
        listener = socket.create_server((host, port), backlog=1_024)
    except OSError as error:
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    config = uvicorn.Config(
        _app(script, quirks),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    # The listener holds connections from here on; nobody has to wait for the server to begin.
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://{host}:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        await task
        listener.close()


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs the loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _app(script: Script, quirks: frozenset[Quirk]) -> Starlette:
    player = ScriptPlayer(script)

    async def complete(request: Request) -> Response:
        return await _complete(request, player, quirks)

    async def models(_: Request) -> Response:
        if (odd := _oddity(quirks)) is not None:
            return odd
        entry = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "threadlog"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/models", models),
            Route("/healthz", health),
            Route("/readyz", health),
        ]
    )


def _oddity(quirks: frozenset[Quirk]) -> Response | None:
    """What a server says that answers every request wrongly."""
    if "html" in quirks:
        return HTMLResponse(_PAGE)
    if "401" in quirks:
        return PlainTextResponse("Unauthorized", 401)
    if "404" in quirks:
        return PlainTextResponse("404 page not found", 404)
    return None


async def _complete(request: Request, player: ScriptPlayer, quirks: frozenset[Quirk]) -> Response:
    if (odd := _oddity(quirks)) is not None:
        return odd
    data = await request.body()
    try:
        body = orjson.loads(data)
        assistants = sum(message["role"] == "assistant" for message in body["messages"])
        model = str(body["model"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return _refusal(400, "invalid_request_error", "the body is no completions request")
    if "no-stream-options" in quirks and "stream_options" in body:
        text = "Unrecognized request argument supplied: stream_options"
        return _refusal(400, "invalid_request_error", text)
    try:
        entry = player.reply(assistants, data)
    except ModelError as error:
        return _failure(error)
    if body.get("stream") is not True or "json" in quirks:
        await asyncio.sleep(entry.delay_ms / 1_000)
        return JSONResponse(
            whole_reply(entry, assistants, model, has_usage="no-usage" not in quirks)
        )
    has_usage = "stream_options" in body and "no-usage" not in quirks
    chunks = chunks_of(entry, assistants, model, has_usage=has_usage, is_one="one-chunk" in quirks)
    return StreamingResponse(_paced(chunks, entry), media_type="text/event-stream")


async def _paced(chunks: list[bytes], entry: ScriptReply) -> AsyncIterator[bytes]:
    """The chunks, spread evenly over the entry's delay."""
    pause_s = entry.delay_ms / 1_000 / len(chunks)
    for chunk in chunks:
        if pause_s:
            await asyncio.sleep(pause_s)
        yield chunk


def _failure(error: ModelError) -> Response:
    match error.error_class:
        case "malformed":
            return HTMLResponse(_PAGE)
        case "empty":
            return StreamingResponse(_once(b"data: [DONE]\n\n"), media_type="text/event-stream")
        case "cut_stream":
            return StreamingResponse(_cut(), media_type="text/event-stream")
        case "idle":
            return StreamingResponse(_idle(), media_type="text/event-stream")
        case _:
            status, code = _STATUS[error.error_class]
            refusal = _refusal(status, code, str(error))
            if error.retry_after_ms is not None:
                refusal.headers["retry-after-ms"] = str(error.retry_after_ms)
                refusal.headers["retry-after"] = str(-(-error.retry_after_ms // 1_000))
            return refusal


def _refusal(status: int, code: str, message: str) -> Response:
    return JSONResponse(
        {"error": {"message": message, "type": code, "param": None, "code": code}}, status
    )


async def _once(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


async def _cut() -> AsyncIterator[bytes]:
    """Ends in the middle of an event, as a stream does whose server is gone."""
    yield b'data: {"choices":[{"index":0,"delta":{"content":"and th'


async def _idle() -> AsyncIterator[bytes]:
    """Says nothing until the client leaves."""
    yield b": waiting\n\n"
    await asyncio.Event().wait()
