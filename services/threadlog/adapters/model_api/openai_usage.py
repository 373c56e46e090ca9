"""What a reply of OpenAI's completions endpoint was billed, by kind of token."""

from collections.abc import Mapping

from threadlog.events.content import Usage

_TOKENS_MAX = 2**53
"""No bill is larger; a number that is comes from a broken server."""


def usage_of(usage: object) -> Usage | None:
    """The tokens by kind, or None when the provider sent no count that could be one.

    Units:   tokens; the provider's prompt counts cache reads, our `input` does not.
    """
    if not isinstance(usage, dict):
        return None
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if prompt is None and output is None:
        return None
    prompt, output = prompt or 0, output or 0
    details = _details(usage, "prompt_tokens_details")
    read = _first(details, "cached_tokens") or _first(usage, "prompt_cache_hit_tokens")
    read = min(read, prompt)
    written = _first(details, "cache_write_tokens") or _first(details, "cache_creation_tokens")
    written = min(written, prompt - read)
    reasoning = _first(_details(usage, "completion_tokens_details"), "reasoning_tokens")
    if reasoning and _count(usage, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # this server counts them apart
    return Usage(
        input=prompt - read - written,
        output=output,
        cache_read=read,
        cache_write=written,
        reasoning=min(reasoning, output),
    )


def _details(usage: Mapping[str, object], name: str) -> Mapping[str, object]:
    details = usage.get(name)
    return details if isinstance(details, dict) else {}


def _first(counts: Mapping[str, object], name: str) -> int:
    return _count(counts, name) or 0


def _count(counts: Mapping[str, object], name: str) -> int | None:
    value = counts.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _TOKENS_MAX
    return value if is_count else None  # type: ignore[return-value]  # narrowed by is_count
