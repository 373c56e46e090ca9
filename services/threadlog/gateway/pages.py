"""What pages of other origins are told, so that a browser lets them read it."""

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from threadlog.errors import DeniedError
from threadlog.gateway.problems import problem_response

_METHODS = ("GET", "POST", "PATCH")
_ALLOWED = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "traceparent")
_EXPOSED = ("Location", "RateLimit", "RateLimit-Policy", "Retry-After")


class Pages(CORSMiddleware):
    """Lets pages of these origins ask, and read every answer; a refused preflight is a problem."""

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_credentials=True,
            allow_methods=_METHODS,
            allow_headers=_ALLOWED,
            expose_headers=_EXPOSED,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers preflights; every other answer is that of the application."""
        request = Request(scope)
        is_preflight = (
            scope["method"] == "OPTIONS" and "access-control-request-method" in request.headers
        )
        if not (is_preflight and "origin" in request.headers):
            await super().__call__(scope, receive, send)
            return
        answer: Response = self.preflight_response(request.headers)
        if answer.status_code >= 400:  # noqa: PLR2004  # HTTP's own number
            error = DeniedError(
                f"pages may send {', '.join(_METHODS)}, with the header fields "
                f"{', '.join(_ALLOWED)} besides those that are always allowed"
            )
            headers = {k: v for k, v in answer.headers.items() if k.startswith(("access-", "vary"))}
            answer = problem_response(request, error)
            answer.headers.update(headers)
        await answer(scope, receive, send)
