"""State as canonical JSON and back, with its hash.

The ids of the last inputs are most of a state's bytes, so they are packed: 256 of them take 6 KiB,
at any age of the thread.
"""

import base64
import hashlib
from itertools import accumulate
from operator import sub

import orjson
from pydantic import TypeAdapter, ValidationError

from threadlog.errors import CorruptError
from threadlog.ids import uuid_text
from threadlog.thread.state import FOLD_VERSION, ThreadState

_ADAPTER = TypeAdapter(ThreadState)
_ID_BYTES = 16


def encode_state(state: ThreadState) -> bytes:
    """Canonical JSON: sorted keys, no insignificant space, no floats. Equal states, equal bytes."""
    plain = _ADAPTER.dump_python(state, mode="json", exclude_defaults=True)
    if "window" in plain.get("inputs", {}):
        plain["inputs"]["window"] = _packed(plain["inputs"]["window"])
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
        plain = orjson.loads(encoded)
        if "window" in plain.get("inputs", {}):
            plain["inputs"]["window"] = _unpacked(**plain["inputs"]["window"])
        return _ADAPTER.validate_python(plain)
    except (ValidationError, ValueError, TypeError, AttributeError) as error:
        raise CorruptError("snapshot is not a state") from error


def _packed(window: list[tuple[str, int]]) -> dict[str, object]:
    """The ids as bytes in base64; of the seqs the first, and by how much each next one differs."""
    ids = bytes.fromhex("".join([event_id for event_id, _ in window]).replace("-", ""))
    seqs = [seq for _, seq in window]
    steps = [seqs[0], *map(sub, seqs[1:], seqs)]
    return {"ids": base64.b64encode(ids).decode(), "steps": steps}


def _unpacked(ids: str, steps: list[int]) -> list[tuple[str, int]]:
    """Inverse of `_packed`."""
    packed = base64.b64decode(ids, validate=True)
    starts = range(0, len(packed), _ID_BYTES)
    texts = [uuid_text(packed[start : start + _ID_BYTES]) for start in starts]
    return list(zip(texts, accumulate(steps), strict=True))
