"""Around every request: who may ask at all, what every answer carries, and what is counted."""

import logging
from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from threadlog.errors import DeniedError, NotFoundError
from threadlog.gateway.auth import check_origin
from threadlog.gateway.pages import Pages
from threadlog.gateway.ports import GatewayPorts
from threadlog.gateway.problems import problem_response
from threadlog.telemetry import scope as marks

_log = logging.getLogger("threadlog.gateway")
PROBES = frozenset({"/healthz", "/readyz"})
_UNMATCHED = "unmatched"


class Edge:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, ports: GatewayPorts) -> None:
        self._app = app
        self._ports = ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request is answered, and counted by the template of its route."""
        assert scope["type"] == "http"
        told: dict[str, str] = {}
        scope.setdefault("state", {})["told"] = told
        ports, status = self._ports, 500
        began_ms = ports.clock.mono_ms()
        ports.meter.began()
        span = None if scope["path"] in PROBES else ports.tracer.request(*_trace(scope))
        token = marks.bind(marks.Scope() if span is None else marks.Scope(trace=span.trace))

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _complete(message, told)
            await send(message)

        try:
            await self._answer(scope, receive, sending)
        except Exception:
            # The framework answers a bug, and raises it again when it is told and logged.
            if not scope["state"].get("is_told"):
                raise
        finally:
            seconds = (ports.clock.mono_ms() - began_ms) / 1_000
            ports.meter.answered(_template(scope), scope["method"], status, seconds)
            _log.debug("%s %s: %d", scope["method"], _template(scope), status)
            if span is not None:
                span.ended(_template(scope), scope["method"], status)
            marks.unbind(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        options, request = self._ports.options, Request(scope)
        answer = self._app
        if b"%" in scope.get("raw_path", b""):
            # No address of ours has anything to encode: each has one spelling.
            answer = problem_response(request, NotFoundError("no route"))
        elif scope["path"] not in PROBES:
            try:
                check_origin(_headers(scope), options.origins, options.hosts)
            except DeniedError as error:
                answer = problem_response(request, error)
        if request.headers.get("origin") in options.origins:
            answer = Pages(answer, options.origins)
        await answer(scope, receive, send)


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def _trace(scope: Scope) -> tuple[list[str], list[str]]:
    """What the headers say of a trace."""
    found = _headers(scope)
    return found.get("traceparent", []), found.get("tracestate", [])


def _complete(message: MutableMapping[str, Any], told: dict[str, str]) -> None:
    """What every answer carries."""
    headers = MutableHeaders(raw=list(message.get("headers", ())))
    headers.setdefault("Cache-Control", "no-store")
    headers["X-Content-Type-Options"] = "nosniff"
    for name, value in told.items():
        headers[name] = value
    message["headers"] = headers.raw


def _template(scope: Scope) -> str:
    route = scope.get("route")
    return str(getattr(route, "path", _UNMATCHED))
