"""What a reply of OpenAI's completions endpoint was billed, by kind of token."""

from threadlog.adapters.model_api.token_counts import count, count_or_zero, details
from threadlog.events.content import Usage


def usage_of(usage: object) -> Usage | None:
    """The tokens by kind, or None when the provider sent no count that could be one.

    Units:   tokens; the provider's prompt counts cache reads, our `input` does not.
    """
    if not isinstance(usage, dict):
        return None
    prompt, output = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    if prompt is None and output is None:
        return None
    prompt, output = prompt or 0, output or 0
    of_prompt = details(usage, "prompt_tokens_details")
    read = count_or_zero(of_prompt, "cached_tokens")
    read = min(read or count_or_zero(usage, "prompt_cache_hit_tokens"), prompt)
    written = count_or_zero(of_prompt, "cache_write_tokens")
    written = min(written or count_or_zero(of_prompt, "cache_creation_tokens"), prompt - read)
    reasoning = count_or_zero(details(usage, "completion_tokens_details"), "reasoning_tokens")
    if reasoning and count(usage, "total_tokens") == prompt + output + reasoning:
        output += reasoning  # this server counts them apart
    return Usage(
        input=prompt - read - written,
        output=output,
        cache_read=read,
        cache_write=written,
        reasoning=min(reasoning, output),
    )
