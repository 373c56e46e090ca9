"""Which models this process can ask, and which one a new thread gets."""

import asyncio
import hashlib
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from threadlog.errors import ModelError, UsageError
from threadlog.events.content import ModelRef
from threadlog.planner.prices import NO_PRICES, Price, Prices
from threadlog.ports.model import Delta, Model, ModelReply, ModelRequest, always
from threadlog.settings import OpenAISettings, Settings

SCRIPTED = "scripted"
OPENAI = "openai"
PROVIDERS = (SCRIPTED, OPENAI)
_ADAPTERS = "threadlog.adapters.model_api"


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
            "OPENAI_BASE_URL for openai, --script for scripted",
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
    openai = OpenAISettings()
    if openai.api_key or openai.base_url:
        module = await _module("openai_model")
        models[OPENAI] = module.OpenAIModel(base_url=openai.base_url, api_key=openai.api_key)
    return models


def fingerprints(settings: Settings, script: Path | None) -> dict[str, str]:
    """What each configured provider is here, as a hash: equal where two processes ask the same.

    Raises:  UsageError: the script cannot be read.
    """
    found: dict[str, str] = {}
    script = script or settings.scripted.script
    if script is not None:
        try:
            found[SCRIPTED] = hashlib.sha256(script.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"cannot read the script {script}: {error.strerror}") from error
    openai = OpenAISettings()
    if openai.api_key or openai.base_url:
        both = f"{openai.base_url or ''}\n{openai.api_key or ''}"
        found[OPENAI] = hashlib.sha256(both.encode()).hexdigest()
    return found


async def close_models(models: Mapping[str, Model]) -> None:
    """No connection to a provider is open. Adapters that keep none have no `aclose`."""
    for model in models.values():
        close = getattr(model, "aclose", None)
        if close is not None:
            await close()


async def model_choice(settings: Settings, flag: str | None, script: Path | None) -> ModelRef:
    """The model of a new thread: the flag, the settings, or the only one that there is.

    Effects: may ask the server of `OPENAI_BASE_URL` for its models.
    Raises:  UsageError: there is none, or more than one; the message names the flag.
    """
    openai = OpenAISettings()
    has_openai = bool(openai.api_key or openai.base_url)
    script = script or settings.scripted.script
    if (named := flag or settings.model) is not None:
        if settings.is_cluster:
            # The planners have the keys; this process may have none.
            return _parse(named, has_script=True)
        return _checked(_parse(named, script is not None), script is not None, has_openai)
    if script is not None and has_openai:
        raise UsageError("both providers are configured: say which with --model")
    if script is not None:
        return ModelRef(provider=SCRIPTED, name=script.stem or SCRIPTED)
    if not has_openai:
        raise UsageError(
            "no model: set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server), "
            "or give --script FILE for the scripted model"
        )
    if openai.model:
        return ModelRef(provider=OPENAI, name=openai.model)
    module = await _module("openai_model")
    try:
        names = await module.list_models(openai.base_url, openai.api_key)
    except ModelError as error:
        raise UsageError(f"cannot list the models, name one with --model: {error}") from error
    if len(names) != 1:
        some = ", ".join(names[:5]) or "none"
        raise UsageError(f"name one of the server's {len(names)} models with --model: {some}")
    return ModelRef(provider=OPENAI, name=names[0])


def _parse(named: str, has_script: bool) -> ModelRef:
    provider, slash, name = named.partition("/")
    if slash and provider in PROVIDERS and name:
        return ModelRef(provider=provider, name=name)
    default = OPENAI
    if named == SCRIPTED and has_script:
        default = SCRIPTED
    return ModelRef(provider=default, name=named)


def _checked(model: ModelRef, has_script: bool, has_openai: bool) -> ModelRef:
    if model.provider == SCRIPTED and not has_script:
        raise UsageError(f"model {SCRIPTED}/{model.name} needs --script FILE")
    if model.provider == OPENAI and not has_openai:
        raise UsageError(
            f"model {model.name} needs OPENAI_API_KEY, or OPENAI_BASE_URL for a local server"
        )
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
