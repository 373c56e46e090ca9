"""Input is strict before any model is built: one route class reads, bounds and parses it.

Who asks is settled first, so that a stranger's body is not even read. A query parameter that a
route does not know, or that is given twice, is an error, and so is a body that is not one JSON
document within the caps of `limits`. Nothing that was sent is repeated.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from threadlog.errors import (
    BodyTimeoutError,
    BodyTooLargeError,
    MediaTypeError,
    RejectedError,
)
from threadlog.events import strict_json
from threadlog.gateway.auth import Asking, ports_of
from threadlog.gateway.large import Room, body_room, counted
from threadlog.limits import BODY_BYTES_MAX, BODY_READ_MS

_QUERY_CHARS_MAX = 4_096
_PARAMETERS_MAX = 16
_TENANT_WORDS = frozenset({"tenant", "tenant_id"})
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class StrictRoute(APIRoute):
    """A route whose input was checked before FastAPI sees it."""

    def get_route_handler(self) -> Handler:
        """The handler, behind the checks."""
        inner = super().get_route_handler()
        known, asking = _parameters(self.dependant), list(_asking(self.dependant))
        has_body = self.body_field is not None

        async def handler(request: Request) -> Response:
            for each in asking:
                await each.check(request)
            check_query(request, known)
            if not has_body:
                return counted(request, await inner(request))
            with body_room(request) as room:
                body = await read_body(request, room)
                try:
                    parsed = strict_json.parse(body)
                except RejectedError as error:
                    raise RejectedError(f"body: {error}") from None
                if isinstance(parsed, dict) and not _TENANT_WORDS.isdisjoint(parsed):
                    ports_of(request).meter.stranger("body")
                return await inner(_Parsed(request, body, parsed))

        return handler


def _parameters(dependant: Dependant) -> set[str]:
    """The names of the query parameters that a route knows."""
    known: set[str] = set()
    for parameter in dependant.query_params:
        kind = parameter.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            known |= kind.model_fields.keys()
        else:
            known.add(parameter.alias)
    for inner in dependant.dependencies:
        known |= _parameters(inner)
    return known


def _asking(dependant: Dependant) -> Iterator[Asking]:
    """Those of its dependencies that ask who the caller is."""
    for inner in dependant.dependencies:
        if isinstance(inner.call, Asking):
            yield inner.call
        yield from _asking(inner)


class _Parsed(Request):
    """A request whose body was read and parsed."""

    def __init__(self, request: Request, body: bytes, parsed: object) -> None:
        super().__init__(request.scope, request.receive)
        self._given, self._parsed = body, parsed

    async def body(self) -> bytes:
        """The bytes. An empty one never comes here."""
        return self._given

    async def json(self) -> Any:
        """What they say."""
        return self._parsed


def check_query(request: Request, known: set[str]) -> None:
    """Nothing, if every parameter is known and given once.

    Raises:  RejectedError
    """
    raw: bytes = request.scope["query_string"]
    if len(raw) > _QUERY_CHARS_MAX:
        raise RejectedError(f"query: at most {_QUERY_CHARS_MAX} characters")
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
            max_num_fields=_PARAMETERS_MAX,
        )
    except ValueError:
        raise RejectedError("query: not a list of name=value, percent-encoded UTF-8") from None
    names = [name for name, _ in pairs]
    if not _TENANT_WORDS.isdisjoint(names):
        ports_of(request).meter.stranger("query")
    if len(set(names)) < len(names):
        raise RejectedError("query: a parameter is given twice")
    if not known.issuperset(names):
        allowed = ", ".join(sorted(known)) or "none"
        raise RejectedError(f"query: an unknown parameter; known are: {allowed}")


async def read_body(request: Request, room: Room) -> bytes:
    """The body, whole; `room` grows with it.

    Raises:  MediaTypeError: it is not said to be plain JSON. BodyTooLargeError. BodyTimeoutError.
             QuotaError: the tenant's other bodies and answers leave no room for it.
    """
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().replace('"', "")
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise MediaTypeError("the body must be JSON: Content-Type: application/json")
    codings = request.headers.getlist("content-encoding")
    if any(coding.strip().lower() != "identity" for coding in codings):
        raise MediaTypeError("the body must be JSON as it is, without a Content-Encoding")
    said = request.headers.get("content-length", "0")
    # A longer number than that is no length of a body either.
    if not (said.isascii() and said.isdecimal()) or len(said) > len(str(BODY_BYTES_MAX)) + 1:
        raise _too_large()
    if int(said) > BODY_BYTES_MAX:
        raise _too_large()
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_READ_MS / 1_000):
            async for piece in request.stream():
                size += len(piece)
                if size > BODY_BYTES_MAX:
                    raise _too_large()
                room.grow(len(piece))
                pieces.append(piece)
    except TimeoutError:
        raise BodyTimeoutError("the body did not arrive in time") from None
    except ClientDisconnect:
        raise BodyTimeoutError("the body did not arrive whole") from None
    return b"".join(pieces)


def _too_large() -> BodyTooLargeError:
    return BodyTooLargeError(f"a body has at most {BODY_BYTES_MAX:,} bytes")
