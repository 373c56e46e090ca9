"""Signing in for pages: a browser's own EventSource can send no header, but it sends a cookie.

The cookie holds the key itself, is out of reach of scripts, and goes to this gateway alone. A page
that sends it is one of this origin or of those that the operator named: `edge` refuses every other
one before a cookie is looked at.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from threadlog.gateway.auth import COOKIE, Caller, bearer_of, caller
from threadlog.gateway.strict import StrictRoute

router = APIRouter(route_class=StrictRoute)
Bearer = Annotated[Caller, Depends(caller(None, takes_cookie=False))]
_PATH = "/v1"


@router.post("/v1/sign-in", status_code=204)
async def sign_in(request: Request, asker: Bearer) -> Response:
    """Put the key of the Authorization header into a cookie, until the browser is closed."""
    answer = Response(status_code=204)
    answer.set_cookie(
        COOKIE,
        bearer_of(request),
        path=_PATH,
        secure=not asker.ports.options.is_local,
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post("/v1/sign-out", status_code=204)
async def sign_out() -> Response:
    """Take the cookie away, whatever is in it. The key stays valid: it ends when it is revoked."""
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path=_PATH, httponly=True, samesite="strict")
    return answer
