"""Routes that make and change threads: each turns a body into a command, and answers 202.

In:  nothing
Out: what `commands` appends
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from threadlog.api.answers import (
    AcceptedBody,
    TurnBody,
)
from threadlog.api.keys import Credential
from threadlog.api.reports import ModelEntry
from threadlog.api.threads import (
    CallCancelBody,
    CancelBody,
    MessageBody,
    SettingsBody,
    ThreadBody,
)
from threadlog.commands.inputs import accepted_of, check_intent
from threadlog.commands.requests import Appended, NewMessage, NewThread, ThreadSettings
from threadlog.commands.service import Commands
from threadlog.errors import (
    ConflictError,
    DeniedError,
    InFlightError,
    NotFoundError,
    QuotaError,
    RejectedError,
    TransientError,
    UnauthenticatedError,
)
from threadlog.events.content import ModelRef
from threadlog.gateway.auth import Caller, caller, may
from threadlog.gateway.large import counted
from threadlog.gateway.parameters import Number, idempotency_key, receipt_text, thread_id
from threadlog.gateway.ports import LOCAL_KEY_ID, GatewayPorts
from threadlog.gateway.strict import StrictRoute
from threadlog.gateway.waiting import room_to_wait, waited
from threadlog.ids import CallId, ThreadId, TurnId, is_uuid, new_thread_id
from threadlog.limits import WAIT_S_MAX
from threadlog.queries.reading import TurnResult

router = APIRouter(route_class=StrictRoute)
Writer = Annotated[Caller, Depends(caller("threads:write"))]
Wait = Annotated[
    Number | None,
    Query(ge=1, le=WAIT_S_MAX, description="Put the answer off until the turn has ended, seconds."),
]
_ANSWERS: dict[int | str, dict[str, Any]] = {200: {"model": TurnBody}, 202: {"model": AcceptedBody}}


@router.post("/v1/threads", status_code=202, response_model=AcceptedBody, responses=_ANSWERS)
async def create_thread(
    request: Request, body: ThreadBody, writer: Writer, wait: Wait = None
) -> Response:
    """Make a thread, with its settings and, where there is one, its first message."""
    key, tenant = idempotency_key(request), writer.credential.tenant
    room = _room(writer, wait)
    settings = settings_of(body.settings, writer)
    if settings.model is None and (model := writer.ports.options.default_model) is not None:
        default = ModelRef(provider=model.provider, name=model.name)
        settings = _with_model(settings, default)
    message = None if body.message is None else _message(body.message)
    if wait is not None and message is None:
        raise RejectedError("query.wait: there is no message whose turn could be waited for")
    new = NewThread(settings, body.title, message)
    with room:
        async with _alone(request, (tenant, new_thread_id(tenant, key), "create", key)):
            done = await _commands(writer).submitted.create_thread(new, key=key)
        return await _answer(writer, done, wait)


@router.patch("/v1/threads/{thread}", status_code=202)
async def configure(
    request: Request, response: Response, thread: str, body: SettingsBody, writer: Writer
) -> AcceptedBody:
    """Change settings, from the next step on; a member left out stays as it is."""
    name, key = thread_id(thread), idempotency_key(request)
    settings = settings_of(body, writer)
    async with _alone(request, (writer.credential.tenant, name, "configure", key)):
        done = await _commands(writer).submitted.configure(name, settings, key=key)
    response.headers["Location"] = _location(done)
    return accepted(done)


@router.post(
    "/v1/threads/{thread}/messages",
    status_code=202,
    response_model=AcceptedBody,
    responses=_ANSWERS,
)
async def send_message(
    request: Request, thread: str, body: MessageBody, writer: Writer, wait: Wait = None
) -> Response:
    """Put a message into the inbox; `delivery` says when it is taken."""
    name, key = thread_id(thread), idempotency_key(request)
    with _room(writer, wait):
        async with _alone(request, (writer.credential.tenant, name, "message", key)):
            done = await _commands(writer).submitted.send_message(name, _message(body), key=key)
        return await _answer(writer, done, wait)


@router.post("/v1/threads/{thread}/cancel", status_code=202)
async def cancel_turn(
    request: Request, response: Response, thread: str, body: CancelBody, writer: Writer
) -> AcceptedBody:
    """Stop the open turn."""
    if body.queue == "drop":
        raise RejectedError("queue: drop is not available yet: keep")
    done = await _cancel(request, thread, body.turn_id, None, writer)
    response.headers["Location"] = _location(done)
    return accepted(done)


@router.post("/v1/threads/{thread}/calls/{call}/cancel", status_code=202)
async def cancel_call(  # the framework calls it by name
    request: Request,
    response: Response,
    thread: str,
    call: str,
    body: CallCancelBody,
    writer: Writer,
) -> AcceptedBody:
    """Stop one call of the open turn, which goes on."""
    if not is_uuid(call):
        raise NotFoundError("no call")
    done = await _cancel(request, thread, body.turn_id, CallId(call), writer)
    response.headers["Location"] = _location(done)
    return accepted(done)


async def _cancel(
    request: Request, thread: str, turn: TurnId | None, call: CallId | None, writer: Caller
) -> Appended:
    name, key = thread_id(thread), idempotency_key(request)
    tenant = writer.credential.tenant
    async with _alone(request, (tenant, name, f"cancel {call}", key)):
        if turn is None:
            turn = await _open_turn(writer, name, key)
        return await _commands(writer).submitted.cancel(name, turn, call, key=key)


async def _open_turn(writer: Caller, thread: ThreadId, key: str) -> TurnId:
    """The turn that is open, or that an earlier request with this key was about.

    Raises:  NotFoundError: no such thread. ConflictError: no turn is open.
    """
    tenant = writer.credential.tenant
    row = await writer.ports.views.thread(tenant, thread)
    if row is None:
        raise NotFoundError(f"no thread {thread}")
    before = await _commands(writer).submitted.cancelled_turn(thread, key)
    turn = before or row.open_turn
    if turn is None:
        raise ConflictError("no turn is open")
    return turn


def settings_of(body: SettingsBody, writer: Caller) -> ThreadSettings:
    """The settings that this body asks for.

    Raises:  DeniedError: the caller may not have them.
    """
    model = None if body.model is None else body.model.plain()
    workspace = None if body.workspace is None else body.workspace.plain()
    options = writer.ports.options
    if model is not None and options.models:
        asked = ModelEntry(provider=model.provider, name=model.name)
        if asked not in options.models:
            raise DeniedError("settings.model: not one of those in GET /v1/models")
    if workspace is not None and workspace.kind == "attached":
        _check_attached(writer.ports, writer.credential)
    return ThreadSettings(
        model=model,
        thinking=body.thinking,
        system_prompt=body.system_prompt,
        tools=body.tools,
        limits=None if body.limits is None else body.limits.plain(),
        workspace=workspace,
    )


def _check_attached(ports: GatewayPorts, credential: Credential) -> None:
    """A folder of this machine is attached by the person alone whose machine it is: anybody else
    would name another tenant's.
    """
    if not (ports.options.is_local and credential.key_id == LOCAL_KEY_ID):
        raise DeniedError(
            "settings.workspace: a folder is attached by the runtime of one's own machine alone; "
            'use {"kind":"managed"}'
        )


def _with_model(settings: ThreadSettings, model: ModelRef) -> ThreadSettings:
    return ThreadSettings(
        model=model,
        thinking=settings.thinking,
        system_prompt=settings.system_prompt,
        tools=settings.tools,
        limits=settings.limits,
        workspace=settings.workspace,
    )


def _message(body: MessageBody) -> NewMessage:
    return NewMessage(body.parts(), body.delivery)


def _commands(writer: Caller) -> Commands:
    return writer.ports.commands(writer.credential.tenant, writer.credential.actor)


def accepted(done: Appended) -> AcceptedBody:
    """What was appended, as it is answered."""
    return AcceptedBody(
        thread_id=done.thread_id, event_id=done.event_id, receipt=receipt_text(done)
    )


def _location(done: Appended) -> str:
    return f"/v1/threads/{done.thread_id}"


def _room(writer: Caller, wait_s: int | None) -> AbstractContextManager[None]:
    """Room to wait in: it is taken before anything is appended, so that a 429 says that nothing is.

    Raises:  ScopeMissingError: the caller may not read what it would wait for.
    """
    if wait_s is None:
        return nullcontext()
    may(writer, "threads:read")
    return room_to_wait(writer)


async def _answer(writer: Caller, done: Appended, wait_s: int | None) -> Response:
    """202 at once; with `wait_s` 200 and the turn's result, or 202 when the time is up."""
    receipt = accepted(done)
    location = {"Location": _location(done)}
    told = _json(receipt.model_dump_json(), 202, location)
    result = None if wait_s is None else await _result(writer, done, wait_s)
    if result is None:
        return told
    members = {name: getattr(result, name) for name in _RESULT_MEMBERS}
    body = TurnBody(
        thread_id=done.thread_id, event_id=done.event_id, receipt=receipt.receipt, **members
    )
    try:
        return counted(writer.request, _json(body.model_dump_json(), 200, location))
    except QuotaError:
        # Its message is in the log, whether there is room for what was made of it or not.
        return told


_RESULT_MEMBERS = ("seq", "turn_id", "verdict", "cause", "answer", "steps", "usage")


async def _result(writer: Caller, done: Appended, wait_s: int) -> TurnResult | None:
    """What came of the turn that took this message; None: it has not ended in time.

    Raises:  ConflictError: the message was void.
    """
    try:
        return await waited(writer, _ended(writer, done), wait_s)
    except (TimeoutError, TransientError, UnauthenticatedError):
        # It is in the log: that its end cannot be seen from here, or not with a key that was
        # revoked meanwhile, takes nothing back.
        return None


async def _ended(writer: Caller, done: Appended) -> TurnResult | None:
    tenant, views = writer.credential.tenant, writer.ports.views
    await views.reached(tenant, done.thread_id, done.position)
    stored = await views.find(tenant, done.thread_id, done.event_id)
    if stored is None:
        return None
    check_intent(stored, done.intent)
    seq = accepted_of(stored).seq
    return await writer.ports.reader(tenant).turn_result(done.thread_id, done.event_id, seq)


def _json(text: str, status: int, headers: dict[str, str]) -> Response:
    return Response(text, status, headers, "application/json")


@asynccontextmanager
async def _alone(request: Request, name: tuple[str, ...]) -> AsyncIterator[None]:
    """No other request with this key is being answered by this process.

    Raises:  InFlightError: one is. (Between two processes the fold decides.)
    """
    flying: set[tuple[str, ...]] = request.app.state.flying
    if name in flying:
        raise InFlightError("a request with this key is being answered: repeat it in a moment")
    flying.add(name)
    try:
        yield
    finally:
        flying.discard(name)
