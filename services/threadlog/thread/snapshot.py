"""State as canonical JSON and back, with its hash."""

import hashlib

import orjson
from pydantic import TypeAdapter, ValidationError

from threadlog.errors import CorruptError
from threadlog.thread.state import FOLD_VERSION, ThreadState

_ADAPTER = TypeAdapter(ThreadState)


def encode_state(state: ThreadState) -> bytes:
    """Canonical JSON: sorted keys, no insignificant space, no floats. Equal states, equal bytes."""
    plain = _ADAPTER.dump_python(state, mode="json", exclude_defaults=True)
    return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)


def state_hash(encoded: bytes) -> str:
    """The sha256 of an encoded state, in hex."""
    return hashlib.sha256(encoded).hexdigest()


def decode_state(encoded: bytes, fold_version: str, sha256: str) -> ThreadState:
    """The state, checked.

    Raises:  CorruptError: another fold version, a hash that does not match, or not a state; fold
             again from the log.
    """
    if fold_version != FOLD_VERSION:
        raise CorruptError(f"snapshot of fold version {fold_version}, this is {FOLD_VERSION}")
    if state_hash(encoded) != sha256:
        raise CorruptError("snapshot hash does not match")
    try:
        return _ADAPTER.validate_json(encoded)
    except ValidationError as error:
        raise CorruptError("snapshot is not a state") from error
