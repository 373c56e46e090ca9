"""The keys port on one file that gateways share and `threadlog keys` changes.

A gateway looks at the file at most once a second and reads it again when it is another one, so a
revoked key is refused within a second. It fails closed: while the file is missing, open to others,
damaged or cannot be read, no key is valid and one line says why; once mended it counts again.
Secrets are nowhere in it, and nothing here repeats one in an error, a log line or a `repr`.
"""

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from threadlog.adapters.keys.disk import Identity, locked, read_private, replace
from threadlog.adapters.keys.document import KeysDocument, decode, encode
from threadlog.adapters.keys.edits import find_key, new_record, with_key, without_key
from threadlog.adapters.keys.uses import latest, merge_uses, read_uses
from threadlog.api.keys import (
    KEY_ID_ALPHABET,
    KEY_ID_CHARS,
    SECRET_BYTES,
    Credential,
    KeyRecord,
    Scope,
    credential_of,
    format_key,
    parse_key,
    secret_hash,
)
from threadlog.clock import Clock
from threadlog.errors import (
    CorruptError,
    RefusedError,
    RejectedError,
    UsageError,
)
from threadlog.ids import TenantId
from threadlog.limits import KEYS_FILE_BYTES_MAX, KEYS_LOOK_MS

_log = logging.getLogger("threadlog.keys")
_NO_HASH = "0" * 64
"""Compared with when there is no such key, so that it takes as long as when there is one."""


@dataclass(frozen=True, slots=True)
class _Known:
    record: KeyRecord
    credential: Credential


class KeysFile:
    """Implements `ports.keys.Keys`, and changes the file. Only the port's calls are for a gateway.

    `records`, `create` and `revoke` read and write the file at once; a change waits for another.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._signing_key: bytes | None = None
        self._identity: Identity | None = None
        self._is_settled = False
        self._looked_ms: int | None = None
        self._told: str | None = None
        self._uses: dict[str, int] = {}

    def verify(self, token: str) -> Credential | None:
        parsed = parse_key(token)
        if parsed is None:
            return None
        self._look()
        key_id, secret = parsed
        known = self._known.get(key_id)
        expected = _NO_HASH if known is None else known.record.sha256
        is_same = hmac.compare_digest(secret_hash(secret), expected)
        now_ms = self._clock.now_ms()
        if known is None or not is_same or not known.record.is_active(now_ms):
            return None
        self._uses[key_id] = now_ms
        return known.credential

    def is_valid(self, credential: Credential) -> bool:
        self._look()
        known = self._known.get(credential.key_id)
        if known is None or known.credential != credential:
            return False
        return known.record.is_active(self._clock.now_ms())

    def signing_key(self) -> bytes | None:
        """32 random bytes, the same for all who share the file; None: there is no file to trust."""
        self._look()
        return self._signing_key

    async def save_uses(self) -> None:
        """When keys were used last is in `FILE.used`, if it can be: a read-only folder keeps none.

        Never raises, and never waits for another process; what was not saved is tried again.
        """
        self._look()
        uses, known = dict(self._uses), frozenset(self._known)
        # While the file cannot be read no key is known: the times of all would be thrown away.
        if not uses or not known:
            return
        if await asyncio.to_thread(merge_uses, self._path, uses, known):
            self._uses = {key: ms for key, ms in self._uses.items() if uses.get(key) != ms}

    def uses(self) -> Mapping[str, int]:
        """When each key was used last, in milliseconds since the epoch, as far as is known."""
        return latest(read_uses(self._path), self._uses)

    def records(self) -> Sequence[KeyRecord]:
        """All keys, oldest first; empty when there is no file.

        Raises:  RefusedError: the file cannot be read, or is open to others. CorruptError: it is
                 damaged.
        """
        found = self._read(self._path)
        return () if found is None else found[0].keys

    def create(
        self,
        tenant: TenantId,
        name: str,
        scopes: Sequence[Scope],
        expires_at_ms: int | None,
    ) -> tuple[KeyRecord, str]:
        """The new key is in the file; what is kept of it, and its text, which nobody can see again.

        Effects: makes the file with its signing key (0600), and its folder (0700). In a full file
                 the oldest key that is over is forgotten.
        Raises:  UsageError: a value does not fit. ConflictError: the name has two valid keys; says
                 which to revoke. RefusedError, CorruptError: as `records`, or it cannot be written.
        """
        now_ms = self._clock.now_ms()
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            raise UsageError("the key would end before it begins")
        secret = secrets.token_hex(SECRET_BYTES)
        record = new_record(
            id=_drawn_id(),
            tenant=tenant,
            name=name,
            scopes=tuple(scopes),
            sha256=secret_hash(secret),
            created_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
            revoked_at_ms=None,
        )
        self._change(lambda document: with_key(document, record))
        return record, format_key(record.id, secret)

    def revoke(self, key_id: str) -> KeyRecord:
        """The key is revoked, now or earlier, and every gateway refuses it within a second.

        Raises:  NotFoundError: there is no such key. RefusedError, CorruptError: as `create`.
        """
        find_key(self.records(), key_id)
        now_ms = self._clock.now_ms()
        changed = self._change(lambda document: without_key(document, key_id, now_ms))
        return find_key(changed.keys, key_id)

    def _change(self, edit: Callable[[KeysDocument], KeysDocument]) -> KeysDocument:
        """1. The lock is held. 2. What is there is read. 3. What comes of it is there instead."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self._path, waits=True) as real:
                found = self._read(real)
                if found is None:
                    fresh = KeysDocument(signing_key=secrets.token_hex(SECRET_BYTES), keys=())
                    found = fresh, None
                document, before = found
                changed = edit(document)
                if changed is not document:
                    replace(real, encode(changed), before)
        except OSError as error:
            raise RefusedError(f"cannot change {self._path}: {error.strerror}") from error
        self._looked_ms = None
        return changed

    def _read(self, path: Path) -> tuple[KeysDocument, os.stat_result | None] | None:
        """What is in the file now, and the file that was read; None when there is none."""
        try:
            content, found = read_private(path, KEYS_FILE_BYTES_MAX)
            return decode(content), found
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RefusedError(f"cannot read {path}: {error.strerror}") from error
        except CorruptError as error:
            raise CorruptError(f"{path} is damaged: {error}; restore it from a copy") from None

    def _look(self) -> None:
        """What is known is what the file said at most `KEYS_LOOK_MS` ago."""
        mono_ms = self._clock.mono_ms()
        if self._looked_ms is not None and mono_ms - self._looked_ms < KEYS_LOOK_MS:
            return
        self._looked_ms = mono_ms
        try:
            # A write within one tick of the clock of files shows in none of its numbers: a file
            # that is new is read a second time, at the next look.
            if self._is_settled and Identity.of(self._path.stat()) == self._identity:
                return
            found = self._read(self._path)
        except FileNotFoundError:
            found = None
        except OSError as error:
            return self._lose(f"cannot read {self._path}: {error.strerror}")
        except (RejectedError, CorruptError) as error:
            return self._lose(str(error))
        if found is None:
            had_one = self._identity is not None or self._told is not None
            return self._lose(f"{self._path} is gone" if had_one else None)
        self._learn(*found)

    def _learn(self, document: KeysDocument, opened: os.stat_result | None) -> None:
        identity = None if opened is None else Identity.of(opened)
        self._is_settled = identity is not None and identity == self._identity
        self._identity = identity
        self._known = {r.id: _Known(r, credential_of(r)) for r in document.keys}
        self._signing_key = bytes.fromhex(document.signing_key)
        if self._told is not None:
            _log.warning("%s can be read again: its keys are valid", self._path)
            self._told = None

    def _lose(self, why: str | None) -> None:
        """No key is valid from now on; said once for each reason."""
        self._known, self._signing_key = {}, None
        self._identity, self._is_settled = None, False
        if why is not None and why != self._told:
            _log.warning("no API key is valid: %s", why)
            self._told = why


def _drawn_id() -> str:
    return "".join(secrets.choice(KEY_ID_ALPHABET) for _ in range(KEY_ID_CHARS))
