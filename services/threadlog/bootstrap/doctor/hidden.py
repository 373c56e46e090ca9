"""The secrets of the settings, so that no finding repeats one."""

from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from threadlog.errors import ThreadlogError
from threadlog.settings import AnthropicSettings, OpenAISettings, Settings


def hidden(settings: Settings) -> set[str]:
    """What no finding may say, wherever it would come from."""
    found: set[str] = set()
    texts: list[Callable[[], str | None]] = [
        settings.kafka.password,
        settings.redis.address,
        settings.gateway_key,
        lambda: OpenAISettings().api_key,
        lambda: AnthropicSettings().api_key,
    ]
    for read in texts:
        try:
            text = read()
        except ThreadlogError:
            continue
        if text:
            found.add(text)
    for address in (settings.redis.url, *found, OpenAISettings().base_url):
        try:
            password = urlsplit(address or "").password
        except ValueError:
            continue
        if password:
            found |= {password, unquote(password)}
    return found
