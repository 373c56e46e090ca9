"""Which gateway a command talks to, if to one: the flag, else the environment."""

from threadlog.cli.terminal import Screen
from threadlog.settings import Settings, load_settings
from threadlog.settings_parts import URL, gateway_base, is_private


def settings_at(url: str | None, screen: Screen) -> Settings:
    """The settings of the environment, with the gateway that `--url` names.

    Effects: says so, where somebody on the way could read the key.
    Raises:  UsageError: a setting is wrong, or the address is none of a gateway.
    """
    settings = load_settings().at(url)
    if settings.url is not None and not is_private(gateway_base(settings.url, URL)):
        screen.note(
            "threadlog: warning: http:// is not encrypted: whoever is on the way to the gateway "
            "can read the key and the threads; use https://"
        )
    return settings
