"""Questions to the broker and changes of topics: the client's futures, awaited.

Each question ends within 10 s, and errors are ours.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import of_exception
from threadlog.errors import LogUnavailableError, RefusedError, ThreadlogError, TransientError

_ASK_S = 10.0
_ASK_AGAIN_S = 0.05
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client has no types here


class Setting(Protocol):
    """A setting of a topic that is to be made."""

    @property
    def topic(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def wanted(self) -> str: ...


class Admin:
    """The client's futures, awaited. It lives as long as they do."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    async def __aenter__(self) -> "Admin":
        try:
            self._client = AdminClient(self._config.admin(), logger=CLIENT_LOG)
        except KafkaException as error:
            raise of_exception(error, "admin client") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        self._client.poll(0)
        del self._client

    async def cluster_id(self) -> str:
        answer = await self._result(self._client.describe_cluster(request_timeout=_ASK_S))
        return str(answer.cluster_id)

    async def described(self, topics: list[str]) -> dict[str, TopicDescription]:
        """The topics that exist."""
        asked = self._client.describe_topics(TopicCollection(topics), request_timeout=_ASK_S)
        found = {}
        for topic, future in asked.items():
            try:
                found[topic] = await self._result(future, f"topic {topic}")
            except _MissingTopicError:
                continue
        return found

    async def earliest(self, topic: str, partitions: int) -> dict[int, int]:
        """The offset of the first record of each partition that is still there, or would come."""
        return await self.offsets(topic, range(partitions), _EARLIEST)

    async def offsets(
        self, topic: str, partitions: Sequence[int], spec: OffsetSpec, *, is_stable: bool = False
    ) -> dict[int, int]:
        """The offsets of this kind; `is_stable`: as who reads committed transactions alone."""
        places = {TopicPartition(topic, n): spec for n in partitions}
        level = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        deadline_s = asyncio.get_running_loop().time() + _ASK_S
        while True:
            asked = self._client.list_offsets(places, request_timeout=_ASK_S, isolation_level=level)
            try:
                return {p.partition: (await self._result(f)).offset for p, f in asked.items()}
            except LogUnavailableError:
                # A partition that moves has no leader for a moment.
                if asyncio.get_running_loop().time() > deadline_s:
                    raise
                await asyncio.sleep(_ASK_AGAIN_S)

    async def configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        if not topics:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        asked = self._client.describe_configs(resources, request_timeout=_ASK_S)
        return {
            resource.name: {
                name: entry.value for name, entry in (await self._result(future)).items()
            }
            for resource, future in asked.items()
        }

    async def create(self, topics: list[NewTopic]) -> None:
        if topics:
            asked = self._client.create_topics(
                topics, request_timeout=_ASK_S, operation_timeout=_ASK_S
            )
            for future in asked.values():
                await self._result(future)

    async def until_usable(self, topic: NewTopic) -> None:
        """The topic's partitions have leaders: a client that met it earlier would rest first."""
        deadline_s = asyncio.get_running_loop().time() + _ASK_S
        while True:
            found = (await self.described([topic.topic])).get(topic.topic)
            partitions = [] if found is None else found.partitions
            if sum(partition.leader is not None for partition in partitions) == (
                topic.num_partitions
            ):
                return
            if asyncio.get_running_loop().time() > deadline_s:
                raise LogUnavailableError(f"topic {topic.topic} was made but has no leaders yet")
            await asyncio.sleep(_ASK_AGAIN_S)

    async def configure(self, changes: Sequence[Setting]) -> None:
        resources = []
        for topic in sorted({change.topic for change in changes}):
            entries = [
                ConfigEntry(change.name, change.wanted, incremental_operation=AlterConfigOpType.SET)
                for change in changes
                if change.topic == topic
            ]
            resources.append(ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries))
        if resources:
            asked = self._client.incremental_alter_configs(resources, request_timeout=_ASK_S)
            for future in asked.values():
                await self._result(future)

    async def _result(self, future: "Future[Any]", doing: str = "topics") -> Any:
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            cause = error.args[0] if error.args else None
            if isinstance(cause, KafkaError) and cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _MissingTopicError("no such topic") from error
            raise self._unreachable(of_exception(error, doing)) from error

    def _unreachable(self, error: ThreadlogError) -> ThreadlogError:
        if isinstance(error, TransientError):
            where = self._config.bootstrap
            return LogUnavailableError(f"no answer from a broker at {where}: is it up? ({error})")
        return error


class _MissingTopicError(RefusedError):
    code = "missing_topic"
