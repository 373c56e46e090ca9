"""Counts of tokens out of what providers send: a number that could be one, or nothing."""

from collections.abc import Mapping

_TOKENS_MAX = 2**53
"""No bill is larger; a number that is comes from a broken server."""


def count(counts: Mapping[str, object], name: str) -> int | None:
    """The member `name` where it is a count."""
    value = counts.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOKENS_MAX
    return value if is_count else None  # type: ignore[return-value]  # narrowed by is_count


def count_or_zero(counts: Mapping[str, object], name: str) -> int:
    """The same, 0 where there is none."""
    return count(counts, name) or 0


def details(usage: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The object `name` within a usage, empty where there is none."""
    value = usage.get(name)
    return value if isinstance(value, dict) else {}
