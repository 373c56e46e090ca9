"""What a change makes of the keys file. Pure: a document in, a document out."""

from collections.abc import Sequence

from pydantic import ValidationError

from threadlog.adapters.keys.document import KeysDocument
from threadlog.api.keys import KeyRecord
from threadlog.clock import rfc3339
from threadlog.errors import ConflictError, NotFoundError, RefusedError, UsageError
from threadlog.limits import KEYS_MAX, KEYS_PER_NAME_MAX


def new_record(**members: object) -> KeyRecord:
    """The record with these members.

    Raises:  UsageError: one of them does not fit; names it, and repeats no value.
    """
    try:
        return KeyRecord.model_validate(members)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "scopes"
        raise UsageError(f"{where}: {first['msg']}") from None


def with_key(document: KeysDocument, record: KeyRecord) -> KeysDocument:
    """The file with one more key, last. In a full one the oldest key that is over is forgotten.

    Raises:  ConflictError: its name has two valid keys, or its id is taken. RefusedError: the file
             is full of valid keys.
    """
    now_ms = record.created_at_ms
    if any(other.id == record.id for other in document.keys):
        raise ConflictError("another key has the id that was drawn: try again")
    _check_name(document.keys, record)
    return document.with_keys([*_with_room(document.keys, now_ms), record])


def without_key(document: KeysDocument, key_id: str, now_ms: int) -> KeysDocument:
    """The file in which the key is revoked; the same file when it was already.

    Raises:  NotFoundError: there is no such key.
    """
    found = find_key(document.keys, key_id)
    if found.revoked_at_ms is not None:
        return document
    revoked = found.model_copy(update={"revoked_at_ms": now_ms})
    return document.with_keys([revoked if other is found else other for other in document.keys])


def find_key(keys: Sequence[KeyRecord], key_id: str) -> KeyRecord:
    """The key with this id.

    Raises:  NotFoundError: there is none.
    """
    for record in keys:
        if record.id == key_id:
            return record
    raise NotFoundError(f"no key {key_id}; see them: threadlog keys ls")


def _check_name(keys: Sequence[KeyRecord], new: KeyRecord) -> None:
    """There is room for one more key under this name, which is how keys are rotated."""
    same = [record for record in keys if (record.tenant, record.name) == (new.tenant, new.name)]
    active = [record for record in same if record.is_active(new.created_at_ms)]
    if len(active) >= KEYS_PER_NAME_MAX:
        some = " and ".join(f"{r.id} (made {rfc3339(r.created_at_ms)[:16]}Z)" for r in active)
        raise ConflictError(
            f"{new.name} of {new.tenant} has {len(active)} valid keys, {some}: revoke the one that "
            f"is no longer used, threadlog keys revoke {active[0].id}, or choose another name"
        )


def _with_room(keys: Sequence[KeyRecord], now_ms: int) -> Sequence[KeyRecord]:
    if len(keys) < KEYS_MAX:
        return keys
    over = next((record for record in keys if not record.is_active(now_ms)), None)
    if over is None:
        raise RefusedError(f"the file holds {KEYS_MAX:,} valid keys, and no more fit: revoke some")
    return [record for record in keys if record is not over]
