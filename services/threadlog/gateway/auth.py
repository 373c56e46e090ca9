"""Who asks: one credential in one header or one cookie, and nothing else.

The tenant comes from the credential. Whatever else in a request claims one is counted and ignored,
or refused as any unknown member is. A page of another origin is refused before anything is looked
at, whatever it carries; loopback needs its token like every other address.
"""

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from threadlog.api.keys import Credential, Scope
from threadlog.errors import DeniedError, QuotaError, ScopeMissingError, UnauthenticatedError
from threadlog.gateway.ports import GatewayPorts
from threadlog.telemetry.scope import learn

COOKIE = "threadlog_key"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine: a gateway on loopback is addressed under no other one, so that a page that
points its own name there is refused.
"""
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9.-]+)|\[(?P<address>[0-9A-Fa-f:.]+)\])(?::[0-9]{1,5})?")
_NO_CREDENTIAL = "give a key that is valid now: Authorization: Bearer KEY"
_CLAIMS = ("x-tenant", "x-tenant-id", "x-org-id", "ce-tenantid", "ce_tenantid", "tenant")
"""Headers by which other systems name a tenant."""
_DOCUMENTED = HTTPBearer(
    auto_error=False, scheme_name="key", description="A key of `threadlog keys create`."
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by which request, and the ports of the gateway that is asked."""

    credential: Credential
    ports: GatewayPorts
    request: Request


def ports_of(request: Request) -> GatewayPorts:
    """The ports of the gateway that serves this request."""
    ports = request.app.state.ports
    assert isinstance(ports, GatewayPorts)
    return ports


class Asking:
    """A dependency: the caller, who has `scope`. None: any valid key will do.

    The route class has it checked before anything else of the request is looked at.
    `takes_cookie` False: only a key in the header counts.
    """

    def __init__(self, scope: Scope | None, *, takes_cookie: bool = True) -> None:
        self._scope = scope
        self._takes_cookie = takes_cookie

    async def __call__(
        self, request: Request, _: Annotated[object, Depends(_DOCUMENTED)] = None
    ) -> Caller:
        """The caller that `check` has found."""
        found = request.state.caller
        assert isinstance(found, Caller)
        return found

    async def check(self, request: Request) -> None:
        """The request is by somebody who may make it, and counts.

        Raises:  UnauthenticatedError, QuotaError, ScopeMissingError
        """
        ports = ports_of(request)
        credential = ports.keys.verify(_token(request, takes_cookie=self._takes_cookie))
        if credential is None:
            raise UnauthenticatedError(_NO_CREDENTIAL)
        try:
            await request.app.state.requests.take(credential.tenant, request.state.told)
        except QuotaError as error:
            ports.meter.rejected(error.limit)
            raise
        if any(name in request.headers for name in _CLAIMS):
            ports.meter.stranger("header")
        request.state.caller = Caller(credential, ports, request)
        learn(tenant=credential.tenant)
        if self._scope is not None:
            may(request.state.caller, self._scope)


def caller(scope: Scope | None, *, takes_cookie: bool = True) -> Asking:
    """A dependency: the caller, who has this scope. None: any valid key will do."""
    return Asking(scope, takes_cookie=takes_cookie)


def may(caller_: Caller, scope: Scope) -> None:
    """Nothing, if the caller has this scope, too.

    Raises:  ScopeMissingError
    """
    if scope not in caller_.credential.scopes:
        raise ScopeMissingError(f"this needs the scope {scope}, which the key does not have")


def bearer_of(request: Request) -> str:
    """The token in the Authorization header.

    Raises:  UnauthenticatedError: none, or more than one.
    """
    return _token(request, takes_cookie=False)


def _token(request: Request, *, takes_cookie: bool) -> str:
    """The one token of the request.

    Raises:  UnauthenticatedError: none, or more than one.
    """
    given = [v for k, v in request.headers.raw if k == b"authorization"]
    cookies = _cookies(request) if takes_cookie else []
    if len(given) + len(cookies) != 1:
        raise UnauthenticatedError(_NO_CREDENTIAL)
    if cookies:
        return cookies[0]
    kind, _, token = given[0].decode("latin-1").partition(" ")
    if kind.lower() != "bearer":
        raise UnauthenticatedError(_NO_CREDENTIAL)
    return token


def _cookies(request: Request) -> list[str]:
    """Every value that our cookie is given: the framework shows the last one of one header."""
    sent = [v.decode("latin-1") for k, v in request.headers.raw if k == b"cookie"]
    pairs = [each.strip().partition("=") for value in sent for each in value.split(";")]
    return [value for name, _, value in pairs if name == COOKIE]


def check_origin(
    headers: dict[str, list[str]], origins: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    """Nothing, if no page of a stranger asks, under no name of a stranger.

    Raises:  DeniedError: the origin is none of `origins`, or the gateway is not called so.
    """
    named = headers.get("host", [])
    if len(named) != 1 or (hosts and _name_of(named[0]) not in hosts):
        raise DeniedError(
            "this gateway does not answer under that name: see THREADLOG_GATEWAY__HOSTS"
        )
    given = headers.get("origin", [])
    if not given:
        return
    own = {f"{scheme}://{named[0]}" for scheme in ("http", "https")} if hosts else set()
    if len(given) > 1 or given[0] not in {*origins, *own}:
        raise DeniedError("pages of that origin are not allowed: see THREADLOG_GATEWAY__ORIGINS")


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; what is none stays a name of nobody."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found["name"] or found["address"]).lower()
