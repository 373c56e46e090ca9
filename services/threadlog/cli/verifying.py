"""`usage --verify`: whether metering has counted what the projection has, for each tenant."""

from typing import Literal

from threadlog.bootstrap.verifying import Compared, compared
from threadlog.cli.documents import Document
from threadlog.cli.failures import ExitCode
from threadlog.cli.plain import one_line
from threadlog.cli.terminal import Screen
from threadlog.settings import Settings

State = Literal["equal", "behind", "differs"]
_CODES: dict[State, ExitCode] = {
    "equal": ExitCode.OK,
    "behind": ExitCode.TRANSIENT,
    "differs": ExitCode.DIFFERS,
}


class ComparedTenant(Document):
    """One tenant. `behind`: facts that metering has not counted yet; `metered` holds them, too.

    Units:   steps, tokens, millionths of a US dollar, milliseconds.
    """

    tenant: str
    state: State
    behind: int
    exact: dict[str, int]
    metered: dict[str, int]


class VerifyDocument(Document):
    """`usage --verify --json`: `state` is the worst of all tenants."""

    state: State
    tenants: tuple[ComparedTenant, ...]


async def verify_usage(settings: Settings, screen: Screen, *, is_json: bool) -> ExitCode:
    """What was found is on stdout."""
    tenants = tuple(_document(one) for one in await compared(settings))
    worst: State = max((one.state for one in tenants), key=list(_CODES).index)
    if is_json:
        screen.data(VerifyDocument(state=worst, tenants=tenants).json_line())
    else:
        for one in tenants:
            screen.data(one_line(_line(one)))
    return _CODES[worst]


def _document(one: Compared) -> ComparedTenant:
    state: State = "equal"
    if one.exact != one.metered:
        state = "differs"
    elif one.behind:
        state = "behind"
    return ComparedTenant(
        tenant=one.tenant,
        state=state,
        behind=one.behind,
        exact=one.exact,
        metered=one.metered,
    )


def _line(one: ComparedTenant) -> str:
    match one.state:
        case "equal":
            return f"{one.tenant}: equal"
        case "behind":
            return f"{one.tenant}: metering is behind by {one.behind} facts; the rest is equal"
        case "differs":
            parts = [
                f"{name} {one.metered[name]} and not {amount}"
                for name, amount in one.exact.items()
                if one.metered[name] != amount
            ]
            behind = f", {one.behind} facts behind" if one.behind else ""
            return f"{one.tenant}: differs{behind}: metering has {', '.join(parts)}"
