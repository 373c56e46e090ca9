"""The topics of a cluster: what `threadlog topics` shows and does."""

from collections.abc import Sequence

from threadlog.adapters.kafka.topics import Change, KafkaTopics, TopicsWanted
from threadlog.bootstrap.kafka import kafka_config
from threadlog.errors import UsageError
from threadlog.ids import draw
from threadlog.settings import Settings

Difference = Change


async def planned(settings: Settings) -> Sequence[Change]:
    """What differs from the settings.

    Raises:  UsageError: no Kafka is set. LogUnavailableError: the broker does not answer.
    """
    return await _topics(settings).plan(_wanted(settings))


async def applied(settings: Settings) -> Sequence[Change]:
    """The topics are as the settings want them; what was done.

    Raises:  RefusedError: something differs that only a person may change; nothing was done.
    """
    return await _topics(settings).apply(_wanted(settings))


def _topics(settings: Settings) -> KafkaTopics:
    if not settings.is_cluster:
        raise UsageError("set THREADLOG_KAFKA__BOOTSTRAP, for example to 127.0.0.1:9092")
    return KafkaTopics(kafka_config(settings, "cli", draw()))


def _wanted(settings: Settings) -> TopicsWanted:
    return TopicsWanted(settings.kafka.partitions, settings.kafka.replication)
