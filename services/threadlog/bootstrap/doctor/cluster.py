"""The checks of a cluster, which share one broker and one Redis connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from threadlog.adapters.kafka.advice import advice
from threadlog.bootstrap.doctor import blobs, groups, kafka, metering, redis
from threadlog.bootstrap.doctor.facts import Facts
from threadlog.bootstrap.doctor.report import Check
from threadlog.clock import Clock
from threadlog.errors import RefusedError
from threadlog.settings import Settings


@asynccontextmanager
async def cluster_checks(
    settings: Settings, clock: Clock
) -> AsyncIterator[tuple[list[Check], list[Check]]]:
    """The checks of log, groups, Redis, views and blobs; and those of clocks."""
    facts = Facts(settings, clock)
    log = [
        Check("log", "broker", lambda: kafka.broker(facts), _of_broker),
        Check("log", "topics", lambda: kafka.topics(facts), advice),
        Check("log", "beginning", lambda: kafka.beginning(facts), advice),
        *(
            Check("groups", name, lambda name=name: groups.group(facts, name), advice)  # type: ignore[misc]  # bound now
            for name in groups.SERVICES
        ),
        Check("groups", metering.NAME, lambda: metering.metering(facts), advice),
        Check("groups", "offsets kept", lambda: kafka.commits_kept(facts), advice),
        Check("redis", "server", lambda: redis.server(facts), _of_redis),
        Check("views", "views", lambda: redis.views(facts), advice),
        Check("blobs", "folder", lambda: blobs.writable(facts)),
        Check("blobs", "contents", lambda: blobs.same_folder(facts), advice),
    ]
    try:
        yield log, [Check("clock", "redis clock", lambda: redis.skew(facts))]
    finally:
        await facts.close()


def _of_broker(error: BaseException) -> str:
    return advice(error) or (
        "start the broker, or correct THREADLOG_KAFKA__BOOTSTRAP, and "
        "THREADLOG_KAFKA__SECURITY_PROTOCOL where TLS or SASL is spoken"
    )


def _of_redis(error: BaseException) -> str:
    if isinstance(error, RefusedError):
        return "correct user and password in THREADLOG_REDIS__URL, or its file"
    return "start Redis, or correct THREADLOG_REDIS__URL"
