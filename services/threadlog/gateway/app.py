"""The routes: each turns a body into a command and an error into a problem.

In:  nothing
Out: what `commands` appends
"""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import FastAPI, Header, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from threadlog.api.problems import PROBLEM_TYPE, problem_of
from threadlog.api.threads import (
    AcceptedBody,
    CancelBody,
    MessageBody,
    SettingsBody,
    ThreadBody,
)
from threadlog.commands.requests import Accepted, NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import RejectedError, ThreadlogError
from threadlog.ids import UUID_PATTERN, ThreadId
from threadlog.limits import IDEMPOTENCY_KEY_CHARS_MAX, MESSAGE_BYTES_MAX

Key = Annotated[
    str, Header(alias="Idempotency-Key", min_length=1, max_length=IDEMPOTENCY_KEY_CHARS_MAX)
]
Thread = Annotated[str, Path(pattern=f"^{UUID_PATTERN}$")]


def create_app(commands: Commands, version: str) -> FastAPI:
    """The application over these commands."""
    app = FastAPI(title="Threadlog", version=version, docs_url=None, redoc_url=None)
    app.add_exception_handler(ThreadlogError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.middleware("http")(_bounded)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/info")
    async def info() -> dict[str, str]:
        return {"version": version}

    @app.post("/v1/threads", status_code=202)
    async def create_thread(body: ThreadBody, key: Key) -> AcceptedBody:
        message = None if body.message is None else _message(body.message)
        new = NewThread(settings_of(body.settings), body.title, message)
        return _accepted(await commands.create_thread(new, key=key))

    @app.patch("/v1/threads/{thread}", status_code=202)
    async def configure(thread: Thread, body: SettingsBody, key: Key) -> AcceptedBody:
        done = await commands.configure(ThreadId(thread), settings_of(body), key=key)
        return _accepted(done)

    @app.post("/v1/threads/{thread}/messages", status_code=202)
    async def send_message(thread: Thread, body: MessageBody, key: Key) -> AcceptedBody:
        done = await commands.send_message(ThreadId(thread), _message(body), key=key)
        return _accepted(done)

    @app.post("/v1/threads/{thread}/cancel", status_code=202)
    async def cancel(thread: Thread, body: CancelBody, key: Key) -> AcceptedBody:
        done = await commands.cancel(ThreadId(thread), body.turn_id, body.call_id, key=key)
        return _accepted(done)

    return app


def settings_of(body: SettingsBody) -> ThreadSettings:
    """The settings that this body asks for."""
    return ThreadSettings(
        model=body.model,
        thinking=body.thinking,
        system_prompt=body.system_prompt,
        tools=body.tools,
        limits=body.limits,
        workspace=body.workspace,
    )


def _message(body: MessageBody) -> NewMessage:
    return NewMessage(body.content, body.delivery)


def _accepted(done: Accepted) -> AcceptedBody:
    return AcceptedBody(
        thread_id=done.thread_id,
        event_id=done.event_id,
        receipt=str(done.position),
        seq=done.seq,
    )


async def _bounded(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    """A body that says it is too long is refused before it is read."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > 2 * MESSAGE_BYTES_MAX:
        return _problem(RejectedError(f"a body has at most {2 * MESSAGE_BYTES_MAX} bytes"))
    return await call_next(request)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ThreadlogError)
    return _problem(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """The field is named; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _problem(RejectedError(f"{where}: {first['type']}"))


def _problem(error: ThreadlogError) -> Response:
    problem = problem_of(error)
    return JSONResponse(problem.model_dump(), problem.status, media_type=PROBLEM_TYPE)
