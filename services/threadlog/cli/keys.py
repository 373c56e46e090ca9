"""`keys create|ls|revoke`: what may ask a gateway, and for which tenant.

The text of a key is printed once, by `create`, alone on stdout; nothing else ever holds it.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Self

from threadlog.api.keys import DEFAULT_SCOPES, KEY_ID_PATTERN, SCOPES, KeyRecord, Scope
from threadlog.bootstrap.keys import open_keys
from threadlog.cli.documents import Document
from threadlog.cli.plain import one_line
from threadlog.cli.tables import aligned
from threadlog.cli.terminal import Screen
from threadlog.clock import Clock, rfc3339
from threadlog.errors import RefusedError, UsageError
from threadlog.ids import TenantId, is_tenant
from threadlog.settings import Settings

_DAY_MS = 86_400_000
_DAYS_MAX = 3_650
_DAYS = re.compile(r"[0-9]{1,4}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    _DATE.pattern + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|[+-][0-9:]{5})"
)
_KEY_ID = re.compile(KEY_ID_PATTERN)

Status = Literal["active", "expired", "revoked"]


class KeyDocument(Document):
    """One key, and what `keys revoke --json` prints. Times are RFC 3339 text.

    `expires_at` null: it never ends by itself; `last_used_at` null: unknown.
    """

    key_id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    status: Status
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None

    @classmethod
    def of(cls, record: KeyRecord, now_ms: int, used_ms: int | None = None) -> Self:
        """The document of a key."""
        ended: Status = "expired" if record.revoked_at_ms is None else "revoked"
        return cls(
            key_id=record.id,
            tenant=record.tenant,
            name=record.name,
            scopes=record.scopes,
            status="active" if record.is_active(now_ms) else ended,
            created_at=rfc3339(record.created_at_ms),
            expires_at=_time(record.expires_at_ms),
            revoked_at=_time(record.revoked_at_ms),
            last_used_at=_time(used_ms),
        )


class KeyListDocument(Document):
    """`keys ls --json`: oldest first."""

    keys: tuple[KeyDocument, ...]


class NewKeyDocument(Document):
    """`keys create --json`. `key` is the whole key, which is shown nowhere else and never again."""

    key_id: str
    tenant: str
    name: str
    scopes: tuple[Scope, ...]
    expires_at: str | None
    key: str


def create(
    settings: Settings,
    screen: Screen,
    *,
    tenant: str,
    name: str,
    scopes: Sequence[str],
    expires_at_ms: int | None,
    is_json: bool,
) -> None:
    """The new key is on stdout, this once."""
    owner, chosen = checked_tenant(tenant), _checked_scopes(scopes) or DEFAULT_SCOPES
    record, key = open_keys(settings).create(owner, name, chosen, expires_at_ms)
    if is_json:
        document = NewKeyDocument(
            key_id=record.id,
            tenant=record.tenant,
            name=record.name,
            scopes=record.scopes,
            expires_at=_time(record.expires_at_ms),
            key=key,
        )
        screen.data(document.json_line())
    else:
        screen.data(key)
    ends = "does not end by itself" if expires_at_ms is None else f"ends {rfc3339(expires_at_ms)}"
    screen.note(f"key {record.id}, {name} of {owner}, may {' '.join(record.scopes)}; it {ends}")
    screen.note(f"it is in {settings.keys_file()}, which the gateways must read")
    screen.note("it is shown this once: keep it where your secrets are; only its hash is stored")


def show(
    settings: Settings, screen: Screen, clock: Clock, *, tenant: str | None, is_json: bool
) -> None:
    """The keys are on stdout, of one tenant or of all (None)."""
    only = None if tenant is None else checked_tenant(tenant)
    store, now_ms = open_keys(settings), clock.now_ms()
    records = [record for record in store.records() if only in (None, record.tenant)]
    used: Mapping[str, int] = store.uses() if records else {}
    keys = tuple(KeyDocument.of(record, now_ms, used.get(record.id)) for record in records)
    if is_json:
        screen.data(KeyListDocument(keys=keys).json_line())
        return
    for line in _table(keys):
        screen.data(line)
    if not keys:
        screen.note("there is no key; make one: threadlog keys create --name NAME")


def revoke(
    settings: Settings, screen: Screen, clock: Clock, key_id: str, *, is_sure: bool, is_json: bool
) -> None:
    """The key is revoked.

    Raises:  UsageError: this can be no id of a key, or nobody can be asked. RefusedError: the
             person did not say yes.
    """
    # What was given instead may be a whole key: it is not repeated.
    if not _KEY_ID.fullmatch(key_id):
        raise UsageError("give the id of a key, 12 characters; see them: threadlog keys ls")
    store = open_keys(settings)
    if not is_sure:
        _ask(screen, key_id)
    record = store.revoke(key_id)
    if is_json:
        used_ms = store.uses().get(key_id)
        screen.data(KeyDocument.of(record, clock.now_ms(), used_ms).json_line())
    screen.note(f"key {record.id}, {record.name} of {record.tenant}, is revoked")


def checked_tenant(text: str) -> TenantId:
    """The tenant. Raises UsageError when it can be none."""
    if not is_tenant(text):
        raise UsageError("--tenant: a to z, 0 to 9 and -, at most 63, such as acme")
    return TenantId(text)


def parse_expiry(text: str | None, now_ms: int) -> int | None:
    """When a key ends: a number of days from now, or a date or time of RFC 3339; None: never.

    Raises:  UsageError: it is neither.
    """
    if text is None:
        return None
    if _DAYS.fullmatch(text) and 1 <= int(text) <= _DAYS_MAX:
        return now_ms + int(text) * _DAY_MS
    try:
        if _DATE.fullmatch(text):
            return _ms(datetime.fromisoformat(text).replace(tzinfo=UTC))
        if _TIME.fullmatch(text):
            return _ms(datetime.fromisoformat(text))
    except ValueError:
        pass
    raise UsageError(
        f"--expires: days from now, 1 to {_DAYS_MAX}, or a date such as 2027-01-31 or "
        "2027-01-31T18:00:00Z"
    )


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1_000)


def _checked_scopes(given: Sequence[str]) -> tuple[Scope, ...]:
    """The scopes in their own order, each once."""
    if set(given) - set(SCOPES):
        raise UsageError(f"--scope: one of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def _ask(screen: Screen, key_id: str) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("nobody can be asked here: add --yes to revoke the key")
    screen.piece(f"revoke key {key_id}? Whoever uses it is refused at once. [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise RefusedError("nothing was revoked")


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)


def _table(keys: Sequence[KeyDocument]) -> list[str]:
    head = ("KEY", "TENANT", "NAME", "STATUS", "CREATED", "EXPIRES", "LAST USED", "SCOPES")
    lines = [
        (
            key.key_id,
            key.tenant,
            one_line(key.name),
            key.status,
            _minute(key.created_at),
            "never" if key.expires_at is None else _minute(key.expires_at),
            "unknown" if key.last_used_at is None else _minute(key.last_used_at),
            " ".join(key.scopes),
        )
        for key in keys
    ]
    return aligned([head, *lines]) if lines else []


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")
