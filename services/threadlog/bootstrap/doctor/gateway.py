"""A gateway at an address: it can be reached, takes our key, and its views are fresh."""

from collections.abc import Sequence

from threadlog.api.answers import ThreadsBody
from threadlog.client.connection import Connection, parsed
from threadlog.client.http import HttpCommands
from threadlog.errors import (
    RejectedError,
    ScopeMissingError,
    ThreadlogError,
    TransientError,
    UnauthenticatedError,
    UsageError,
    ViewsRebuildingError,
)
from threadlog.limits import DOCTOR_LAG_FAIL_MS, DOCTOR_LAG_WARN_MS
from threadlog.ports.tools import Finding
from threadlog.settings import Settings
from threadlog.settings_parts import URL, gateway_base, is_private
from threadlog.version import VERSION

_KEY = "ask its operator for a key (threadlog keys create), and set THREADLOG_KEY_FILE to it"


async def gateway(settings: Settings) -> Sequence[Finding]:
    """What the gateway of these settings says, as far as it answers."""
    assert settings.url is not None, "the caller has looked"
    base = gateway_base(settings.url, URL)
    try:
        key = settings.gateway_key()
    except UsageError as error:
        return [Finding("fail", "key", str(error), _KEY)]
    found = [] if is_private(base) else [_open_to_all(base)]
    connection = Connection(base, key)
    try:
        info = await HttpCommands(connection).info()
        found.append(Finding("ok", "reach", f"{base}, tenant {info.tenant_id}"))
        return [*found, _version(info.version), await _freshness(connection)]
    except ThreadlogError as error:
        return [*found, _refused(error)]
    finally:
        await connection.close()


def _open_to_all(base: str) -> Finding:
    evidence = f"{base} is not encrypted: whoever is on the way can read the key"
    return Finding("warn", "encryption", evidence, "use https://")


def _refused(error: ThreadlogError) -> Finding:
    match error:
        case UnauthenticatedError():
            return Finding("fail", "key", str(error), _KEY)
        case ScopeMissingError():
            fix = "ask its operator for a key with that scope"
            return Finding("warn", "key", str(error), fix)
        case TransientError():
            fix = "see that it runs (threadlog serve gateway), and correct THREADLOG_URL or --url"
            return Finding("fail", "reach", str(error), fix)
        case _:
            fix = "correct THREADLOG_URL or --url: this is perhaps no gateway of Threadlog"
            return Finding("fail", "reach", str(error), fix)


def _version(theirs: str) -> Finding:
    if theirs == VERSION:
        return Finding("ok", "version", f"{theirs} on both sides")
    evidence = f"the gateway has {theirs}, this program {VERSION}"
    return Finding("warn", "version", evidence, "use the same version on both sides")


async def _freshness(connection: Connection) -> Finding:
    try:
        page = parsed(ThreadsBody, await connection.get("/v1/threads", {"limit": 1}))
    except ViewsRebuildingError as error:
        fix = "its operator sees to the projection: threadlog doctor there says more"
        return Finding("fail", "freshness", str(error), fix)
    except RejectedError as error:
        return Finding("warn", "freshness", f"not known: {error}", "use a key that may read")
    evidence = f"its views are {page.behind_ms / 1_000:.1f} s behind the log"
    if page.behind_ms < DOCTOR_LAG_WARN_MS:
        return Finding("ok", "freshness", evidence)
    fix = "its operator sees to the projection: threadlog doctor there says more"
    is_long = page.behind_ms >= DOCTOR_LAG_FAIL_MS
    return Finding("fail" if is_long else "warn", "freshness", evidence, fix)
