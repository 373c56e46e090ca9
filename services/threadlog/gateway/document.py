"""The OpenAPI document of the routes, and what the framework cannot know of them.

Every operation lists each status that it can have, with the codes of `PROBLEMS` behind it. Of an
address it says the form that an id, a cursor or a token has, though what has another form is
answered as what is absent. Links tell which answer names what for which operation.
"""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from threadlog.api.problems import PROBLEM_TYPE, PROBLEMS
from threadlog.gateway.auth import COOKIE
from threadlog.ids import UUID_PATTERN
from threadlog.limits import IDEMPOTENCY_KEY_CHARS_MAX

Json = dict[str, Any]
"""A part of the document: only OpenAPI's own keywords say what is in it."""

_PROBLEM: Final = "#/components/schemas/ProblemBody"
_RESPONSES: Final = "#/components/responses/"
_NUMBER_MAX = 10**16 - 1
_DIGITS = r"^(0|[1-9][0-9]{0,15})$"
_UUID = f"^{UUID_PATTERN}$"
_FORMS: Final[dict[tuple[str, str], Json]] = {
    ("path", "thread"): {"pattern": _UUID},
    ("path", "call"): {"pattern": _UUID},
    ("path", "seq"): {"pattern": _DIGITS},
    ("path", "sha256"): {"pattern": "^[0-9a-f]{64}$"},
    ("query", "thread"): {"pattern": _UUID},
    ("query", "receipt"): {"pattern": "^[A-Za-z0-9_-]{32}$"},
    ("query", "page"): {"pattern": "^[A-Za-z0-9_-]{1,600}$"},
    ("query", "types"): {"pattern": r"^[a-z][a-z0-9_.]{0,63}(,[a-z][a-z0-9_.]{0,63}){0,31}$"},
}
_IDEMPOTENCY_KEY: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key is the same event, however often it is sent. Quoted or bare.",
    "schema": {
        "type": "string",
        "pattern": r'^([!#-~][!-~]*|"([ !#-\[\]-~]|\\["\\])+")$',
        "minLength": 1,
        "maxLength": IDEMPOTENCY_KEY_CHARS_MAX,
    },
}
_LAST_EVENT_ID: Final[Json] = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The seq of the last event that the client has. It wins over `since`.",
    "schema": {"type": "string", "pattern": r"^(-1|0|[1-9][0-9]{0,15})$"},
}
_HEADERS: Final[Json] = {
    "RateLimit": {"description": "What is left of the quota.", "schema": {"type": "string"}},
    "RateLimit-Policy": {"description": "The quota.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "Location": {"description": "The thread.", "schema": {"type": "string"}},
}
_ALWAYS = (400, 403, 500, 503)
_KEYED = (401, 429)
_WITH_BODY = (408, 413, 415)
_MORE: Final[dict[str, tuple[int, ...]]] = {
    "list_threads": (404,),
    "get_usage": (404,),
    "list_events": (410,),
    "stream": (410,),
    "get_prompt": (409,),
}
_WAITING = (429, 503)
_THREAD = {"thread": "$response.body#/thread_id"}
_OF_THREAD = ("list_messages", "send_message", "configure", "cancel_turn", "stream")
_RECEIPT = {**_THREAD, "receipt": "$response.body#/receipt"}
_LINKS: Final[Json] = {
    **{name: {"operationId": name, "parameters": _THREAD} for name in _OF_THREAD},
    "get_thread": {"operationId": "get_thread", "parameters": _RECEIPT},
    "list_events": {"operationId": "list_events", "parameters": _RECEIPT},
}
_MESSAGE = {"content": "Which files are here?", "delivery": "next_turn"}
EXAMPLES: Final[dict[str, Json]] = {
    "ThreadBody": {
        "settings": {"model": {"provider": "scripted", "name": "small"}},
        "title": "A first look",
        "message": {"content": "Which files are here?"},
    },
    "SettingsBody": {"thinking": "low", "limits": {"output_tokens_max": 4096}},
    "MessageBody": _MESSAGE,
    "CancelBody": {"queue": "keep"},
    "CallCancelBody": {},
}
"""A body of each kind, which its model takes."""


def document_of(app: FastAPI) -> Json:
    """The OpenAPI document of this application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        openapi_version=app.openapi_version,
    )
    components = document["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    for name, example in EXAMPLES.items():
        components["schemas"][name]["examples"] = [example]
    components["headers"] = _HEADERS
    components["responses"] = {}
    components["securitySchemes"]["cookie"] = {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The same key, in the cookie of `sign_in`.",
    }
    for path, operation in _operations(document):
        for status in sorted(_complete(path, operation)):
            components["responses"][f"Problem{status}"] = _problem(status)
            operation["responses"][str(status)] = {"$ref": f"{_RESPONSES}Problem{status}"}
        operation["responses"] = dict(sorted(operation["responses"].items()))
    components["responses"] = dict(sorted(components["responses"].items()))
    return document


def _operations(document: Json) -> Iterator[tuple[str, Json]]:
    for path, item in document["paths"].items():
        for operation in item.values():
            yield path, operation


def _complete(path: str, operation: Json) -> set[int]:
    """The operation says what the framework left out, and nothing that it made up.

    The statuses of the problems that it can answer with come back.
    """
    name, responses = operation["operationId"], operation["responses"]
    # The framework's own answer to what does not fit is never given: a problem with 400 is.
    responses.pop("422", None)
    has_key = "security" in operation
    if has_key and name != "sign_in":
        operation["security"].append({"cookie": []})
    appends = "202" in responses
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        _plain(parameter, name)
    parameters.extend(
        [*([_IDEMPOTENCY_KEY] if appends else []), *([_LAST_EVENT_ID] if name == "stream" else [])]
    )
    for status in [each for each in responses if each[0] == "2"]:
        told = ["RateLimit", "RateLimit-Policy"] if has_key else []
        if name in ("create_thread", "send_message"):
            told.append("Location")
        responses[status]["headers"] = _headers(*told)
    if name == "create_thread":
        responses["202"]["links"] = _LINKS
    statuses = {*_ALWAYS, *(_KEYED if has_key else ()), *_MORE.get(name, ())}
    if "{" in path:
        statuses.add(404)
    if "requestBody" in operation:
        statuses.update(_WITH_BODY)
    if appends:
        statuses.update((409, 422))
    return statuses


def _plain(parameter: Json, operation: str) -> None:
    """The parameter with its form. One that may be left out is not null when it is there."""
    schema = parameter["schema"]
    kinds = [kind for kind in schema.pop("anyOf", []) if kind != {"type": "null"}]
    for kind in kinds:
        schema.update(kind)
    for ours, theirs in (("ge", "minimum"), ("le", "maximum")):
        if ours in schema:
            schema[theirs] = schema.pop(ours)
    if schema.get("type") == "integer":
        schema.update({"minimum": 0, "maximum": _NUMBER_MAX, **schema})
    schema.update(_FORMS.get((parameter["in"], parameter["name"]), {}))
    if (operation, parameter["name"]) == ("list_threads", "before"):
        schema["pattern"] = _UUID
    if (operation, parameter["name"]) == ("get_usage", "by"):
        schema["pattern"] = "^(tenant|thread|turn|model|day)(,(tenant|thread|turn|model|day)){0,4}$"


def _headers(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _problem(status: int) -> Json:
    """The response that is a problem with this status."""
    codes = [code for code, problem in PROBLEMS.items() if problem.status == status]
    response: Json = {
        "description": ", ".join(f"`{code}`" for code in codes),
        "content": {PROBLEM_TYPE: {"schema": {"$ref": _PROBLEM}}},
    }
    if status in _WAITING:
        response["headers"] = _headers("Retry-After")
    return response
