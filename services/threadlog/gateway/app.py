"""The routes: each turns a body into a command and an error into a problem.

In:  nothing
Out: what `commands` appends
"""

import logging
from collections.abc import Mapping
from typing import Annotated

from fastapi import FastAPI, Header, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadlog.api.problems import PROBLEM_TYPE, problem_of, problem_of_status
from threadlog.api.threads import (
    AcceptedBody,
    CancelBody,
    InfoBody,
    MessageBody,
    ProblemBody,
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
_log = logging.getLogger("threadlog.gateway")
_BODY_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
"""A message at its bound, escaped, fits; of a longer body no more than this is read."""


def create_app(commands: Commands, version: str, models: dict[str, str]) -> FastAPI:
    """The application over these commands. `models`: a hash of each provider's configuration."""
    app = FastAPI(title="Threadlog", version=version, docs_url=None, redoc_url=None)
    app.add_exception_handler(ThreadlogError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)
    app.add_middleware(_Bounded)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/info")
    async def info() -> InfoBody:
        return InfoBody(version=version, models=models)

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


class _Bounded:
    """No body is read beyond the bound; one that says that it is longer is not read at all.

    FastAPI's own `max_body_size` answers with plain text.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        too_long = HTTPException(413, f"a body has at most {_BODY_BYTES_MAX} bytes")
        is_said_too_long = int(headers.get(b"content-length", b"0")) > _BODY_BYTES_MAX
        read_bytes = 0

        async def bounded() -> Message:
            nonlocal read_bytes
            if is_said_too_long:
                raise too_long
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > _BODY_BYTES_MAX:
                raise too_long
            return message

        await self._app(scope, bounded, send)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ThreadlogError)
    return _problem(error)


async def _on_http(_: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, another method, a body that is too long."""
    assert isinstance(error, HTTPException)
    return _response(problem_of_status(error.status_code, error.detail), error.headers)


async def _on_bug(_: Request, error: Exception) -> Response:
    """What nobody foresaw; the text of the error is not for callers."""
    _log.error("a request broke off", exc_info=error)
    return _response(problem_of_status(500, "an error of ours: see the log of the runtime"))


async def _on_invalid(_: Request, error: Exception) -> Response:
    """The field is named; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return _problem(RejectedError(f"{where}: {first['type']}"))


def _problem(error: ThreadlogError) -> Response:
    return _response(problem_of(error))


def _response(problem: ProblemBody, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(problem.model_dump(), problem.status, headers, PROBLEM_TYPE)
