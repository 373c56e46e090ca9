"""A command's link to a cluster: it appends and reads by itself, and runs no service."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threadlog.bootstrap.cluster import Cluster, open_cluster
from threadlog.bootstrap.embedded import Notice, RunOptions, copy_folder, die
from threadlog.client.interface import CommandPort
from threadlog.errors import UsageError, ViewsRebuildingError
from threadlog.ids import ThreadId, draw
from threadlog.queries.reading import Reader
from threadlog.settings import Settings

SERVICE = "cli"
_VIEWS_S = 20.0
_LOOK_S = 0.2


class ClusterLink:
    """Implements `bootstrap.link.Link`. Leaving stops nothing: the services run elsewhere."""

    def __init__(self, cluster: Cluster, settings: Settings, actor: str) -> None:
        self._settings = settings
        self._commands = cluster.commands(actor)
        self._reader = cluster.reader()

    @property
    def commands(self) -> CommandPort:
        """Commands, appended by this process."""
        return self._commands

    @property
    def reader(self) -> Reader:
        """Reads of the views in Redis."""
        return self._reader

    async def copy_folder(self, source: Path, thread: ThreadId) -> None:
        """The folder's files are in the managed workspace of `thread`, which all runners share."""
        await copy_folder(self._settings, source, thread)

    async def check_model(self, provider: str) -> None:
        """Only the planners know which models they can ask: a request to none of theirs fails."""

    async def stopped(self, thread: ThreadId) -> None:
        """Never returns: what stops a thread is told by the services that run it."""
        await asyncio.Event().wait()

    def detach(self) -> None:
        """The turn goes on in any case."""


@asynccontextmanager
async def cluster_connected(
    settings: Settings, options: RunOptions, notice: Notice
) -> AsyncIterator[ClusterLink]:
    """A link to the cluster of these settings.

    Raises:  as `cluster.open_cluster`; UsageError: a script, which only a planner can be given.
    """
    if options.script is not None:
        raise UsageError(
            "--script: in a cluster the planner asks the model; start it with "
            "THREADLOG_SCRIPTED__SCRIPT=FILE and run with --model scripted/NAME"
        )
    async with open_cluster(settings, SERVICE, draw(), on_fatal=die) as cluster:
        link = ClusterLink(cluster, settings, options.actor)
        await _views_are_there(link.reader, notice)
        yield link


async def _views_are_there(reader: Reader, notice: Notice) -> None:
    """The views can be read; waited for, since services may have been started a moment ago.

    Raises:  ViewsRebuildingError: they could not, all the time.
    """
    loop = asyncio.get_running_loop()
    deadline_s, has_said = loop.time() + _VIEWS_S, False
    while True:
        try:
            await reader.views.threads(reader.tenant, limit=1)
        except ViewsRebuildingError:
            if loop.time() > deadline_s:
                raise
            if not has_said:
                notice(
                    "waiting for the views: a projection makes them (threadlog serve projection)"
                )
                has_said = True
            await asyncio.sleep(_LOOK_S)
        else:
            return


@asynccontextmanager
async def cluster_reading(settings: Settings) -> AsyncIterator[Reader]:
    """A reader of the cluster of these settings.

    Raises:  as `cluster.open_cluster`.
    """
    async with open_cluster(settings, SERVICE, draw(), on_fatal=die) as cluster:
        yield cluster.reader()
