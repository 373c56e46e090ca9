"""`doctor` on a cluster: broker, Redis and blobs, each apart, so that half may be broken."""

import os
from collections.abc import Awaitable, Callable

from threadlog.adapters.kafka.topics import KafkaTopics
from threadlog.adapters.redis.connect import connected
from threadlog.bootstrap.kafka import kafka_config
from threadlog.errors import RefusedError, RejectedError, ThreadlogError
from threadlog.ids import draw
from threadlog.ports.tools import Finding
from threadlog.settings import Settings

Check = Callable[[Settings], Awaitable[tuple[Finding, ...]]]


async def _kafka(settings: Settings) -> str:
    settings.check_cluster()
    topics = KafkaTopics(kafka_config(settings, "cli", draw()))
    await topics.check()
    identity = await topics.identity()
    return f"{settings.kafka.bootstrap}, {identity.topic} with {identity.partitions} partitions"


async def _redis(settings: Settings) -> str:
    settings.check_cluster()
    url = settings.redis.address()
    assert url is not None, "checked by Settings.check_cluster"
    async with connected(url) as client:
        return f"{client.address}, evicts nothing"


async def _blobs(settings: Settings) -> str:
    settings.check_cluster()
    folder = settings.blobs_folder()
    assert folder is not None, "checked by Settings.check_cluster"
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise RefusedError(f"{existing} cannot be written by this user: chown it, or name another")
    return f"{folder}"


def _check(name: str, found: Callable[[Settings], Awaitable[str]]) -> Check:
    async def check(settings: Settings) -> tuple[Finding, ...]:
        try:
            return (Finding("ok", name, await found(settings)),)
        except RejectedError as error:
            return (Finding("fail", name, str(error), "see the message: it names what to do"),)
        except ThreadlogError as error:
            return (Finding("fail", name, str(error), "start it, or correct its address"),)

    return check


CHECKS: tuple[tuple[str, Check], ...] = (
    ("kafka", _check("kafka", _kafka)),
    ("redis", _check("redis", _redis)),
    ("blobs", _check("blobs", _blobs)),
)
"""Each check by its name; a setting that is missing is what each of them finds."""
