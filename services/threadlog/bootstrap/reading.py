"""Reading the log: no lock, no services, and none of what those would import."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadlog.adapters.sqlite.blobs import SqliteBlobs
from threadlog.adapters.sqlite.file import open_read_only
from threadlog.adapters.sqlite.moves import FileNotify
from threadlog.adapters.sqlite.views import SqliteViews
from threadlog.clock import SystemClock
from threadlog.ids import LOCAL_TENANT
from threadlog.queries.reading import Reader
from threadlog.settings import Settings


def has_log(settings: Settings) -> bool:
    """Whether there may be something to read."""
    is_elsewhere = settings.url is not None or settings.is_cluster
    return is_elsewhere or settings.log_file().exists()


@asynccontextmanager
async def reading(settings: Settings) -> AsyncIterator[Reader]:
    """A reader of the gateway, of the cluster, or of the file, whether or not a runtime holds it.

    Raises:  NotFoundError: there is no file yet. What `cluster.open_cluster` or
             `url_link.url_reading` raises.
    """
    if settings.url is not None:
        from threadlog.bootstrap.url_link import url_reading

        async with url_reading(settings) as remote:
            yield remote
        return
    if settings.is_cluster:
        from threadlog.bootstrap.cluster_link import cluster_reading

        async with cluster_reading(settings) as clustered:
            yield clustered
        return
    file = await open_read_only(settings.log_file())
    try:
        blobs = SqliteBlobs(file, clock=SystemClock())
        views = SqliteViews(file)
        yield Reader(views, blobs, FileNotify(views), LOCAL_TENANT)
    finally:
        await file.close()
