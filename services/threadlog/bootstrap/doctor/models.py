"""Which models can be asked from here, and with `--live` whether they let us in."""

import asyncio
from collections.abc import Sequence

from threadlog.bootstrap.models import configured, list_names
from threadlog.errors import ModelError, ThreadlogError
from threadlog.ports.tools import Finding
from threadlog.settings import Settings

_VARIABLES = {"openai": "OPENAI", "anthropic": "ANTHROPIC"}
_ADDRESS = "see that its server is up, and correct {}_BASE_URL"


async def models(settings: Settings) -> Sequence[Finding]:
    """Which providers have a key or an address here, and whether the default model is of one."""
    found = []
    providers = configured()
    for name, provider in providers.items():
        key = "with a key" if provider.api_key else "without a key"
        found.append(Finding("ok", name, f"{provider.base_url or 'its own address'}, {key}"))
    script = settings.scripted.script
    if script is not None:
        found.append(_script(settings))
    if settings.model is not None:
        provider_name, slash, _ = settings.model.partition("/")
        prefix = _VARIABLES.get(provider_name)
        if slash and prefix is not None and provider_name not in providers:
            level = "ok" if settings.is_cluster else "fail"
            if level == "fail":
                evidence = f"THREADLOG_MODEL names {provider_name}, of which there is no key here"
                found.append(Finding("fail", "default", evidence, f"set {prefix}_API_KEY"))
    if found:
        return found
    if settings.is_cluster:
        return [Finding("ok", "key", "none here; in a cluster only planners need one")]
    fix = (
        "set OPENAI_API_KEY or ANTHROPIC_API_KEY, or OPENAI_BASE_URL for a server of yours, "
        "or run with --script FILE"
    )
    return [Finding("warn", "key", "no model is configured", fix)]


def _script(settings: Settings) -> Finding:
    script = settings.scripted.script
    assert script is not None, "the caller has looked"
    if script.is_file():
        return Finding("ok", "scripted", str(script))
    fix = "correct THREADLOG_SCRIPTED__SCRIPT"
    return Finding("fail", "scripted", f"{script} is no file", fix)


async def live() -> Sequence[Finding]:
    """Whether each provider lists its models, which costs nothing."""
    return await asyncio.gather(*(_live(name) for name in configured()))


async def _live(name: str) -> Finding:
    check, prefix = f"{name} live", _VARIABLES[name]
    try:
        names = await list_names(name)
    except ModelError as error:
        is_key = error.error_class == "unauthenticated"
        fix = f"set {prefix}_API_KEY to a valid key" if is_key else _ADDRESS.format(prefix)
        return Finding("fail", check, str(error), fix)
    except ThreadlogError as error:
        return Finding("fail", check, str(error), _ADDRESS.format(prefix))
    return Finding("ok", check, f"it lets us in, and lists {len(names)} models")
