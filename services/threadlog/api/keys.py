"""API keys of machines: their text, what is kept of one, and what one lets its bearer do. Pure.

A key is `threadlog_live_<id>_<secret><checksum>`: an id of 12 characters, a secret of 256 bits and
a CRC-32 of all that stands before it, so that a slip of the hand or a key that was cut is refused
without a look at any key that exists. It has one spelling. What is kept is the SHA-256 of the
secret: nobody can guess 256 bits, so no slow hash is needed. Source: SURFACES 13, CONTRACT 7.
"""

import hashlib
import re
import zlib
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from threadlog.ids import TENANT_PATTERN, TenantId
from threadlog.limits import TIME_MS_MAX

Scope = Literal[
    "threads:read",
    "threads:write",
    "content:read",
    "approvals:answer",
    "replay:run",
    "ops:read",
    "ops:write",
    "admin",
]
"""One right. None holds another: a key with `admin` alone reads no thread."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_SCOPES: tuple[Scope, ...] = ("threads:read", "threads:write", "content:read")

KEY_ID_CHARS = 12
KEY_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
KEY_ID_PATTERN = rf"[a-z0-9]{{{KEY_ID_CHARS}}}"
KEY_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}"
SECRET_BYTES = 32
KEY_PATTERN = r"\bthreadlog_live_[a-z0-9]{12}_[0-9a-f]{72}\b"
"""What scanners of source code look for; a match is one of ours if `parse_key` takes it, too."""

_HEAD = "threadlog_live_"
_SHA256 = "[0-9a-f]{64}"
_KEY = re.compile(
    rf"{_HEAD}(?P<id>{KEY_ID_PATTERN})_(?P<secret>[0-9a-f]{{{2 * SECRET_BYTES}}})"
    r"(?P<checksum>[0-9a-f]{8})"
)
_TimeMs = Annotated[int, Field(ge=0, le=TIME_MS_MAX)]


class KeyRecord(BaseModel):
    """What is kept of one key.

    Shapes:  `sha256` is of the 32 bytes of the secret.
    Units:   milliseconds since the epoch. `expires_at_ms` None: it never ends by itself;
             `revoked_at_ms` None: nobody revoked it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", hide_input_in_errors=True)

    id: str = Field(pattern=f"^{KEY_ID_PATTERN}$")
    tenant: TenantId = Field(pattern=f"^{TENANT_PATTERN}$")
    name: str = Field(pattern=f"^{KEY_NAME_PATTERN}$")
    scopes: tuple[Scope, ...] = Field(min_length=1, max_length=len(SCOPES))
    sha256: str = Field(pattern=f"^{_SHA256}$", repr=False)
    created_at_ms: _TimeMs
    expires_at_ms: _TimeMs | None
    revoked_at_ms: _TimeMs | None

    @model_validator(mode="after")
    def _scopes_differ(self) -> "KeyRecord":
        if len(set(self.scopes)) < len(self.scopes):
            raise ValueError("a scope is named twice")
        return self

    def is_active(self, now_ms: int) -> bool:
        """Whether the key is neither revoked nor past its time."""
        is_over = self.expires_at_ms is not None and now_ms >= self.expires_at_ms
        return self.revoked_at_ms is None and not is_over


@dataclass(frozen=True, slots=True)
class Credential:
    """Who asks, as their key says it; nothing else in a request can change the tenant.

    Shapes:  `actor` is `key:<id>`, as it stands in events.
    Units:   `expires_at_ms` as in `KeyRecord`.
    """

    key_id: str
    tenant: TenantId
    scopes: frozenset[Scope]
    actor: str
    expires_at_ms: int | None


def credential_of(record: KeyRecord) -> Credential:
    """What the bearer of this key may do."""
    return Credential(
        key_id=record.id,
        tenant=record.tenant,
        scopes=frozenset(record.scopes),
        actor=f"key:{record.id}",
        expires_at_ms=record.expires_at_ms,
    )


def format_key(key_id: str, secret: str) -> str:
    """The text of a key, checksum included; the only place where it is whole.

    Shapes:  `secret` is 64 lower-case hexadecimal characters.
    """
    body = f"{_HEAD}{key_id}_{secret}"
    return f"{body}{_checksum(body)}"


def parse_key(text: str) -> tuple[str, str] | None:
    """(id, secret) of a key in its one spelling; None for any other text."""
    found = _KEY.fullmatch(text)
    if found is None or _checksum(text[: found.start("checksum")]) != found["checksum"]:
        return None
    return found["id"], found["secret"]


def secret_hash(secret: str) -> str:
    """The SHA-256, in hexadecimal, by which a secret is known again."""
    return hashlib.sha256(bytes.fromhex(secret)).hexdigest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
