"""Which models this process can ask, and which one a new thread gets."""

import asyncio
import hashlib
import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threadlog.errors import ModelError, UsageError
from threadlog.events.content import ModelRef
from threadlog.planner.prices import NO_PRICES, Price, Prices
from threadlog.ports.model import Delta, Model, ModelReply, ModelRequest, always
from threadlog.settings import AnthropicSettings, OpenAISettings, Settings

SCRIPTED = "scripted"
OPENAI = "openai"
ANTHROPIC = "anthropic"
PROVIDERS = (SCRIPTED, OPENAI, ANTHROPIC)
_ADAPTERS = "threadlog.adapters.model_api"
_Found = OpenAISettings | AnthropicSettings


@dataclass(frozen=True, slots=True)
class _Remote:
    """A provider with an address: where its settings, its adapter and its variables are found."""

    settings: type[_Found]
    module: str
    adapter: str
    variables: str

    @property
    def needs(self) -> str:
        """What to set, as a person reads it."""
        return f"{self.variables}_API_KEY, or {self.variables}_BASE_URL for a local server"


_REMOTES: Mapping[str, _Remote] = {
    OPENAI: _Remote(OpenAISettings, "openai_model", "OpenAIModel", "OPENAI"),
    ANTHROPIC: _Remote(AnthropicSettings, "anthropic_model", "AnthropicModel", "ANTHROPIC"),
}


class MissingModel:
    """Stands for every provider that is not configured here: each attempt fails for good."""

    renderer = "missing/1"

    def render(self, request: ModelRequest) -> bytes:
        """A body that is never sent."""
        return orjson.dumps({"provider": request.model.provider, "model": request.model.name})

    async def send(
        self,
        body: bytes,
        on_delta: Callable[[Delta], None],
        *,
        may_start: Callable[[], bool] = always,
    ) -> ModelReply:
        """Fails.

        Raises:  ModelError
        """
        provider = orjson.loads(body)["provider"]
        raise ModelError(
            f"provider {provider} is not configured in this process: set OPENAI_API_KEY or "
            "OPENAI_BASE_URL for openai, ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL for anthropic, "
            "--script for scripted",
            error_class="unauthenticated",
            retryable=False,
        )


async def load_models(settings: Settings, script: Path | None) -> Mapping[str, Model]:
    """A model adapter for each provider that is configured.

    Effects: imports the SDKs of those providers alone, off the event loop.
    Raises:  UsageError: the script or an address is wrong.
    """
    models: dict[str, Model] = {}
    script = script or settings.scripted.script
    if script is not None:
        scripted = await _module("scripted")
        source = await _module("script")
        models[SCRIPTED] = scripted.ScriptedModel(source.load_script(script))
    for provider, found in configured().items():
        remote = _REMOTES[provider]
        adapter = getattr(await _module(remote.module), remote.adapter)
        models[provider] = adapter(base_url=found.base_url, api_key=found.api_key)
    return models


def fingerprints(settings: Settings, script: Path | None) -> dict[str, str]:
    """What each configured provider is here, as a hash: equal where two processes ask the same.

    Raises:  UsageError: the script cannot be read.
    """
    hashes: dict[str, str] = {}
    script = script or settings.scripted.script
    if script is not None:
        try:
            hashes[SCRIPTED] = hashlib.sha256(script.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"cannot read the script {script}: {error.strerror}") from error
    for provider, found in configured().items():
        both = f"{found.base_url or ''}\n{found.api_key or ''}"
        hashes[provider] = hashlib.sha256(both.encode()).hexdigest()
    return hashes


async def close_models(models: Mapping[str, Model]) -> None:
    """No connection to a provider is open. Adapters that keep none have no `aclose`."""
    for model in models.values():
        close = getattr(model, "aclose", None)
        if close is not None:
            await close()


async def model_choice(settings: Settings, flag: str | None, script: Path | None) -> ModelRef:
    """The model of a new thread: the flag, the settings, or the only one that there is.

    Effects: may ask the only provider's server for its models.
    Raises:  UsageError: there is none, or more than one; the message names the flag.
    """
    remotes = configured()
    script = script or settings.scripted.script
    if (named := flag or settings.model) is not None:
        if settings.is_cluster:
            # The planners have the keys; this process may have none.
            return _parse(named, remotes, has_script=True)
        model = _parse(named, remotes, has_script=script is not None)
        return _checked(model, remotes, has_script=script is not None)
    here = [*((SCRIPTED,) if script is not None else ()), *remotes]
    if len(here) > 1:
        which = " or ".join(f"{provider}/NAME" for provider in here)
        raise UsageError(
            f"{len(here)} providers are configured ({', '.join(here)}): "
            f"say which with --model, {which}"
        )
    if script is not None:
        return ModelRef(provider=SCRIPTED, name=script.stem or SCRIPTED)
    if not remotes:
        raise UsageError(
            "no model: set OPENAI_API_KEY or ANTHROPIC_API_KEY (or OPENAI_BASE_URL or "
            "ANTHROPIC_BASE_URL for a local server), "
            "or give --script FILE for the scripted model"
        )
    [(provider, found)] = remotes.items()
    return ModelRef(provider=provider, name=found.model or await _only_name(provider))


def known_model(settings: Settings, script: Path | None) -> ModelRef | None:
    """The model of a new thread, as far as it is known without asking a server; None: it is not."""
    named, remotes = settings.model, configured()
    if named is not None:
        provider, slash, name = named.partition("/")
        is_whole = slash and provider in PROVIDERS and name
        return ModelRef(provider=provider, name=name) if is_whole else None
    script = script or settings.scripted.script
    if script is not None and not remotes:
        return ModelRef(provider=SCRIPTED, name=script.stem or SCRIPTED)
    if script is None and len(remotes) == 1:
        [(provider, found)] = remotes.items()
        return None if found.model is None else ModelRef(provider=provider, name=found.model)
    return None


def named_models(settings: Settings) -> frozenset[ModelRef]:
    """The models that the settings name, in whatever place: they have labels of their own.

    Raises:  UsageError: the price list cannot be read.
    """
    named = [*load_prices(settings).models, *settings.gateway.models]
    named += [f"{provider}/{found.model}" for provider, found in configured().items()]
    named += [settings.model or ""]
    found = {known_model(settings, None)} - {None}
    for text in named:
        provider, _, name = text.partition("/")
        if provider in PROVIDERS and name not in ("", "None"):
            found.add(ModelRef(provider=provider, name=name))
    return frozenset(each for each in found if each is not None)


def configured() -> dict[str, _Found]:
    """The providers with an address that can be asked from here, by name."""
    found = {provider: remote.settings() for provider, remote in _REMOTES.items()}
    return {provider: settings for provider, settings in found.items() if settings.is_set}


async def list_names(provider: str) -> tuple[str, ...]:
    """The models that a configured provider's server lists; asking costs nothing.

    Raises:  ModelError: it did not answer so. UsageError: the address or key cannot be one.
    """
    found = configured()[provider]
    module = await _module(_REMOTES[provider].module)
    names: tuple[str, ...] = await module.list_models(found.base_url, found.api_key)
    return names


async def _only_name(provider: str) -> str:
    """The only model that the provider's server has."""
    try:
        names = await list_names(provider)
    except ModelError as error:
        raise UsageError(f"cannot list the models, name one with --model: {error}") from error
    if len(names) != 1:
        some = ", ".join(names[:5]) or "none"
        raise UsageError(f"name one of the server's {len(names)} models with --model: {some}")
    return names[0]


def _parse(named: str, remotes: Collection[str], *, has_script: bool) -> ModelRef:
    """`provider/name`, or a name alone: of the script, else of the only provider."""
    provider, slash, name = named.partition("/")
    if slash and provider in PROVIDERS and name:
        return ModelRef(provider=provider, name=name)
    if named == SCRIPTED and has_script:
        return ModelRef(provider=SCRIPTED, name=named)
    if len(remotes) > 1:
        which = " or ".join(f"{provider}/{named}" for provider in remotes)
        raise UsageError(f"{len(remotes)} providers are configured: say --model {which}")
    return ModelRef(provider=next(iter(remotes), OPENAI), name=named)


def _checked(model: ModelRef, remotes: Collection[str], *, has_script: bool) -> ModelRef:
    if model.provider == SCRIPTED and not has_script:
        raise UsageError(f"model {SCRIPTED}/{model.name} needs --script FILE")
    if model.provider in _REMOTES and model.provider not in remotes:
        raise UsageError(f"model {model.name} needs {_REMOTES[model.provider].needs}")
    return model


class _PriceBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    input: int = Field(ge=0)
    output: int = Field(ge=0)
    cache_read: int = Field(default=0, ge=0)
    cache_write: int = Field(default=0, ge=0)


class _PricesBody(BaseModel):
    """The price list file: millionths of a US dollar for a million tokens, by `provider/name`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: str = Field(min_length=1, max_length=64)
    models: dict[str, _PriceBody]


def load_prices(settings: Settings) -> Prices:
    """The price list of the settings, or one that knows no price.

    Raises:  UsageError: the file cannot be read or is no price list.
    """
    if settings.prices is None:
        return NO_PRICES
    try:
        body = _PricesBody.model_validate_json(settings.prices.read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"THREADLOG_PRICES: {settings.prices} is no price list") from error
    prices = {
        name: Price(p.input, p.output, p.cache_read, p.cache_write)
        for name, p in body.models.items()
    }
    return Prices(body.version, prices)


async def _module(name: str) -> Any:
    """An adapter's module, imported off the loop: an SDK takes most of a second."""
    return await asyncio.to_thread(importlib.import_module, f"{_ADAPTERS}.{name}")
