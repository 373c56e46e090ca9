"""`usage --verify`: whether metering has counted what the projection has, for each tenant."""

from threadlog.bootstrap.verifying import Compared, compared
from threadlog.cli.failures import ExitCode
from threadlog.cli.plain import one_line
from threadlog.cli.terminal import Screen
from threadlog.cli.thread_documents import ComparedTenant, State, VerifyDocument
from threadlog.settings import Settings

_CODES: dict[State, ExitCode] = {
    "equal": ExitCode.OK,
    "behind": ExitCode.TRANSIENT,
    "differs": ExitCode.DIFFERS,
}


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
