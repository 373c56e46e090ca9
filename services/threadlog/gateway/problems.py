"""Every error as a problem document; the text of a bug is not for callers."""

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from threadlog.api.problems import (
    PROBLEM_TYPE,
    FieldProblem,
    ProblemBody,
    problem_of,
    problem_of_status,
    problem_text,
)
from threadlog.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    CorruptError,
    NotFoundError,
    QuotaError,
    RefusedError,
    RejectedError,
    ThreadlogError,
    UnauthenticatedError,
)
from threadlog.events.trace import parse_parent
from threadlog.telemetry.scope import request_trace

_log = logging.getLogger("threadlog.gateway")
_ABSENT = "there is nothing here for you: it is absent, or another tenant's"
_RETRY_S = 1
_FIELDS_MAX = 8


def install(app: FastAPI) -> None:
    """Whatever a request of this application ends in, the answer is a problem document."""
    app.add_exception_handler(ThreadlogError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)


def problem_response(request: Request, error: ThreadlogError) -> Response:
    """The answer that tells of this error."""
    if isinstance(error, NotFoundError):
        # One text for the absent and the foreign: nothing tells them apart.
        error = NotFoundError(_ABSENT)
    if isinstance(error, CorruptError | RefusedError):
        # What is wrong with log or views is for operators, and names what only they may know.
        _log.error("%s", error)
        error = type(error)("this cannot be served as things are: see the log of the gateway")
    headers: dict[str, str] = {}
    if isinstance(error, QuotaError):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, BodyTooLargeError | BodyTimeoutError):
        # The rest of the body is not wanted.
        headers["Connection"] = "close"
    return respond(request, problem_of(error), headers)


def respond(
    request: Request, problem: ProblemBody, headers: Mapping[str, str] | None = None
) -> Response:
    """The problem as a response; it names the trace that the request is in, or came with."""
    trace = parse_parent(request_trace()[0] or request.headers.get("traceparent"))
    if trace is not None:
        named = {"trace_id": trace.trace_id, "instance": f"urn:threadlog:trace:{trace.trace_id}"}
        problem = problem.model_copy(update=named)
    sent = dict(headers or {})
    if problem.retryable and problem.status != 409:  # noqa: PLR2004  # HTTP's own number
        sent.setdefault("Retry-After", str(_RETRY_S))
    return Response(problem_text(problem), problem.status, sent, PROBLEM_TYPE)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ThreadlogError)
    return problem_response(request, error)


async def _on_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such route, another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:  # noqa: PLR2004  # HTTP's own number
        return problem_response(request, NotFoundError(_ABSENT))
    if error.status_code == 405:  # noqa: PLR2004  # HTTP's own number
        problem = problem_of_status(405, "the path takes another method")
        return respond(request, problem, {"Allow": ", ".join(_methods(request))})
    return respond(request, problem_of_status(error.status_code, "refused"), error.headers)


def _methods(request: Request) -> list[str]:
    """What the path takes: the framework names the methods of one of its routes alone."""
    path = request.url.path
    matching = [r for r in request.app.state.routes if r.path_regex.fullmatch(path)]
    return sorted({method for route in matching for method in route.methods})


async def _on_bug(request: Request, error: Exception) -> Response:
    """What nobody foresaw."""
    _log.error("a request broke off", exc_info=error)
    request.state.is_told = True
    return respond(request, problem_of_status(500, "an error of ours: see the log of the gateway"))


async def _on_invalid(request: Request, error: Exception) -> Response:
    """The members are named, as far as they are ours; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    found = [_field(entry) for entry in error.errors()[:_FIELDS_MAX]]
    first = found[0]
    problem = problem_of(RejectedError(f"{first.field}: {first.message}"))
    return respond(request, problem.model_copy(update={"errors": tuple(found)}))


def _field(entry: Mapping[str, object]) -> FieldProblem:
    """Where and what. The name of an unknown member is the caller's own text, so it is left out."""
    where, kind = entry["loc"], str(entry["type"])
    assert isinstance(where, tuple)
    named = where[:-1] if kind == "extra_forbidden" else where
    path = ".".join(str(part) for part in named if not str(part).startswith("<"))
    if kind == "extra_forbidden":
        return FieldProblem(field=path, message="an unknown member")
    if kind == "value_error":
        # Of our own validators, whose texts are constant.
        return FieldProblem(field=path, message=str(entry["msg"]).removeprefix("Value error, "))
    return FieldProblem(field=path, message=_MESSAGES.get(kind) or _message(entry))


def _message(entry: Mapping[str, object]) -> str:
    """What pydantic says, where that holds nothing of the input."""
    context = entry.get("ctx")
    bounds = context if isinstance(context, Mapping) else {}
    shown = {k: v for k, v in bounds.items() if k in _BOUNDS}
    more = "".join(f", {name} {value}" for name, value in sorted(shown.items()))
    return f"{str(entry['type']).replace('_', ' ')}{more}"


_BOUNDS = ("ge", "gt", "le", "lt", "max_length", "min_length", "expected", "actual_length")
_MESSAGES = {
    "missing": "is missing",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "model_attributes_type": "must be an object",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "string_pattern_mismatch": "does not have the form that it must have",
}
