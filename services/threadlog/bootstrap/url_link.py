"""A command's link to a gateway at an address: nothing runs here, and nothing is sent but requests.

It needs a key, which says whose threads these are.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threadlog.api.reports import (
    InfoBody,
    ModelEntry,
    ModelsBody,
)
from threadlog.bootstrap.embedded import RunOptions
from threadlog.client.connection import Connection
from threadlog.client.http import HttpCommands
from threadlog.client.interface import CommandPort
from threadlog.client.reader import HttpReader
from threadlog.errors import RefusedError, UsageError
from threadlog.events.content import ModelRef
from threadlog.ids import TenantId, ThreadId
from threadlog.queries.reading import Reader
from threadlog.settings import Settings
from threadlog.settings_parts import URL, gateway_base

_ATTACHES = "attached_workspaces"
_SHOWN = 8
NO_COPY = "--copy: no files are sent to a gateway: let the first message say where to get them"


class UrlLink:
    """Implements `bootstrap.link.Link`. Leaving stops nothing: the services run elsewhere.

    Shapes:  `base`: the gateway's address. `attaches`: it works in folders of this machine.
    """

    def __init__(self, connection: Connection, base: str, info: InfoBody) -> None:
        self.base = base
        self.attaches = _ATTACHES in info.capabilities
        self._commands = HttpCommands(connection)
        self._reader = HttpReader(connection, TenantId(info.tenant_id))

    @property
    def commands(self) -> CommandPort:
        """Commands, sent to the gateway."""
        return self._commands

    @property
    def reader(self) -> Reader:
        """Reads of the gateway's views."""
        return self._reader

    async def copy_folder(self, source: Path, thread: ThreadId) -> None:
        """Nothing is copied.

        Raises:  UsageError: always; says what to do.
        """
        raise UsageError(NO_COPY)

    async def check_model(self, provider: str) -> None:
        """The gateway takes models of this provider, as far as it knows.

        Raises:  RefusedError: it takes others alone.
        """
        models = await self._commands.models()
        if not models.any and all(entry.provider != provider for entry in models.models):
            raise RefusedError(f"the gateway takes no model of {provider}: {_named(models)}")

    async def model_choice(self, named: str | None) -> ModelRef:
        """The model of a new thread: the one that is named, or what the gateway has for all.

        Shapes:  `named` is `provider/name`, or a name alone that the gateway knows.
        Raises:  UsageError: there is none, or more than one; the message names the flag.
        """
        models = await self._commands.models()
        if named is None:
            known = models.models if models.default is None else (models.default,)
            if len(known) == 1:
                return _ref(known[0])
            raise UsageError(f"say which model with --model PROVIDER/NAME: {_named(models)}")
        provider, slash, name = named.partition("/")
        if slash and provider and name:
            return ModelRef(provider=provider, name=name)
        found = [entry for entry in models.models if entry.name == named]
        if len(found) == 1:
            return _ref(found[0])
        raise UsageError(f"--model {named}: give PROVIDER/NAME: {_named(models)}")

    async def stopped(self, thread: ThreadId) -> None:
        """Never returns: what stops a thread is told by the services that run it."""
        await asyncio.Event().wait()

    def detach(self) -> None:
        """The turn goes on in any case."""


@asynccontextmanager
async def url_connected(settings: Settings, options: RunOptions) -> AsyncIterator[UrlLink]:
    """A link to the gateway of these settings, which has taken the key.

    Raises:  UsageError: there is no key, or a script, which only a planner can be given.
             UnauthenticatedError: the key is not valid. TransientError: it cannot be reached.
    """
    if options.script is not None:
        raise UsageError("--script: the planners behind the gateway ask the model: leave it out")
    async with _opened(settings) as link:
        yield link


@asynccontextmanager
async def url_reading(settings: Settings) -> AsyncIterator[Reader]:
    """A reader of the gateway of these settings.

    Raises:  as `url_connected`.
    """
    async with _opened(settings) as link:
        yield link.reader


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[UrlLink]:
    assert settings.url is not None, "the caller has looked"
    base = gateway_base(settings.url, URL)
    connection = Connection(base, settings.gateway_key())
    try:
        yield UrlLink(connection, base, await HttpCommands(connection).info())
    finally:
        await connection.close()


def _ref(entry: ModelEntry) -> ModelRef:
    return ModelRef(provider=entry.provider, name=entry.name)


def _named(models: ModelsBody) -> str:
    """The models that it has, as far as they are known."""
    names = [f"{entry.provider}/{entry.name}" for entry in models.models]
    if not names:
        return "the gateway names none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"the gateway has {', '.join(names[:_SHOWN])}{more}"
