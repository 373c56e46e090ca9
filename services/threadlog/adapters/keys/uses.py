"""When keys were used last: `FILE.used` beside the keys file, as good as it can be.

It is for people who wonder whether a key may be revoked, and nothing depends on it: a file that is
missing, damaged or cannot be written costs no request. Gateways that share it keep the latest time.
"""

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

import orjson

from threadlog.adapters.keys.disk import locked, read_private, replace
from threadlog.errors import ThreadlogError
from threadlog.limits import KEYS_FILE_BYTES_MAX, TIME_MS_MAX


def uses_path(real: Path) -> Path:
    """Where the times lie for the keys file that really lies at `real`."""
    return real.with_name(f"{real.name}.used")


def read_uses(real: Path) -> dict[str, int]:
    """The last use of each key, in milliseconds since the epoch; empty when nothing is known."""
    with contextlib.suppress(OSError, ThreadlogError, ValueError):
        content, _ = read_private(uses_path(real), KEYS_FILE_BYTES_MAX)
        found = orjson.loads(content)
        if isinstance(found, dict):
            return {key: ms for key, ms in found.items() if _is_time(ms)}
    return {}


def merge_uses(path: Path, uses: Mapping[str, int], known: Collection[str]) -> bool:
    """Whether the file now holds these uses, the latest of each key, of `known` keys only."""
    try:
        with locked(path, waits=False) as real:
            merged = latest(read_uses(real), uses)
            kept = {key: ms for key, ms in merged.items() if key in known}
            replace(uses_path(real), orjson.dumps(kept) + b"\n", before=None)
    except (OSError, ThreadlogError):
        return False
    return True


def latest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The later use of each key."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in one.keys() | other.keys()}


def _is_time(value: object) -> bool:
    return type(value) is int and 0 <= value <= TIME_MS_MAX
