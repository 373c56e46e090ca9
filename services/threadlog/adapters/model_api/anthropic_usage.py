"""What a reply of Anthropic's messages endpoint was billed, by kind of token.

Counts come twice, when the message starts and when it ends, and each is the total so far: the
later one holds, and one that is missing at the end holds as it was at the start.
"""

from collections.abc import Mapping

from threadlog.adapters.model_api.token_counts import count, count_or_zero, details
from threadlog.events.content import Usage


def later(counts: Mapping[str, object], usage: object) -> Mapping[str, object]:
    """`counts` with what `usage`, sent later, says anew."""
    if not isinstance(usage, dict):
        return counts
    return {**counts, **{name: value for name, value in usage.items() if value is not None}}


def usage_of(counts: Mapping[str, object]) -> Usage | None:
    """The tokens by kind, or None when the provider sent no count that could be one.

    Units:   tokens; neither the provider's input nor ours counts what a cache held or took.
    """
    prompt, output = count(counts, "input_tokens"), count(counts, "output_tokens")
    if prompt is None and output is None:
        return None
    thought = count_or_zero(details(counts, "output_tokens_details"), "thinking_tokens")
    return Usage(
        input=prompt or 0,
        output=output or 0,
        cache_read=count_or_zero(counts, "cache_read_input_tokens"),
        cache_write=count_or_zero(counts, "cache_creation_input_tokens"),
        reasoning=min(thought, output or 0),
    )
