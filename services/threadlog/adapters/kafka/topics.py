"""What the broker must look like, and how it is made so.

Creating topics and setting their configuration is safe and repeatable. Everything else that
differs, above all the number of partitions, would move threads away from their history: it is
refused, with what to do about it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Literal

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
from threadlog.ports.log import LogIdentity

APPLY_COMMAND = "threadlog topics apply"
_ASK_S = 10.0
_ASK_AGAIN_S = 0.05
_MESSAGE_BYTES_MIN = 1_000_000
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the client has no types here
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
Pinned = Literal["partitions", "cleanup.policy", "retention.ms", "retention.bytes"]
_PINNED: Final[Sequence[Pinned]] = ("cleanup.policy", "retention.ms", "retention.bytes")
_KEPT: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Nothing of the log is ever thrown away; checked at every start."""


@dataclass(frozen=True, slots=True)
class TopicsWanted:
    """What to build: partitions of the events topic, and replicas of every topic."""

    partitions: int
    replication: int


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between what is there and what is wanted.

    Shapes:  `name`: a setting of the topic, `topic` when the topic is missing, else `partitions`
             or `replication`. `found` None: it is not there. `advice`: what a person must do, None
             where `apply` does it.
    """

    topic: str
    name: str
    found: str | None
    wanted: str
    advice: str | None = None

    def __str__(self) -> str:
        found = "nothing" if self.found is None else self.found
        text = f"topic {self.topic}: {self.name} is {found}, wanted {self.wanted}"
        return text if self.advice is None else f"{text}; {self.advice}"


class KafkaTopics:
    """Asks and changes the broker; each call has a client of its own."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    async def identity(self) -> LogIdentity:
        """Which log this is: positions mean something only together with it.

        Raises:  RefusedError: there is no such topic. LogUnavailableError: nobody answers.
        """
        async with _Admin(self._config) as admin:
            topic = self._config.events_topic
            described = await admin.described([topic])
            found = described.get(topic)
            if found is None:
                raise RefusedError(self._refusal(Change(topic, "topic", None, "the log")))
            return LogIdentity(
                await admin.cluster_id(), topic, str(found.topic_id), len(found.partitions)
            )

    async def check(self) -> None:
        """The topics are fit to run on.

        Raises:  RefusedError: one is missing, has another number of partitions, forgets, or has
                 forgotten.
                 LogUnavailableError: nobody answers within 10 s.
        """
        partitions = {self._config.events_topic: self._config.partitions}
        partitions[self._config.dead_letters_topic] = 1
        async with _Admin(self._config) as admin:
            described = await admin.described(list(partitions))
            for topic, wanted in partitions.items():
                found = described.get(topic)
                if found is None:
                    raise RefusedError(self._refusal(Change(topic, "topic", None, "the log")))
                if len(found.partitions) != wanted:
                    count = str(len(found.partitions))
                    raise RefusedError(
                        self._refusal(Change(topic, "partitions", count, str(wanted)))
                    )
            topic = self._config.events_topic
            for change in _differing(topic, (await admin.configs([topic]))[topic], _KEPT):
                raise RefusedError(self._refusal(change))
            # What forgot for a while, and was mended, lacks records all the same.
            for partition, offset in (await admin.earliest(topic, self._config.partitions)).items():
                if offset > 0:
                    raise RefusedError(
                        f"topic {topic}: partition {partition} begins at offset {offset}; the"
                        " records before it were deleted, so threads would lack their beginning:"
                        " restore the topic"
                    )

    async def drift(self) -> Mapping[tuple[str, Pinned], bool]:
        """Whether each pinned setting of each topic differs from what it must be.

        Raises:  LogUnavailableError: nobody answers within 10 s.
        """
        partitions = {self._config.events_topic: self._config.partitions}
        partitions[self._config.dead_letters_topic] = 1
        async with _Admin(self._config) as admin:
            described = await admin.described(list(partitions))
            configs = await admin.configs(list(described))
        found: dict[tuple[str, Pinned], bool] = {}
        for topic, wanted in partitions.items():
            there = described.get(topic)
            found[topic, "partitions"] = there is None or len(there.partitions) != wanted
            for setting in _PINNED:
                found[topic, setting] = configs.get(topic, {}).get(setting) != _KEPT[setting]
        return found

    async def foreign(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Records of each partition that stand behind an open transaction; nobody of ours has one.

        Raises:  LogUnavailableError: nobody answers within 10 s.
        """
        topic = self._config.events_topic
        async with _Admin(self._config) as admin:
            # In this order: what is appended in between makes none look open.
            ends = await admin.offsets(topic, partitions, _LATEST)
            stable = await admin.offsets(topic, partitions, _LATEST, is_stable=True)
        return {n: max(0, end - stable.get(n, end)) for n, end in ends.items()}

    async def plan(self, wanted: TopicsWanted) -> Sequence[Change]:
        """Every difference to what is wanted; none: there is nothing to do."""
        async with _Admin(self._config) as admin:
            return await self._plan(admin, wanted)

    async def apply(self, wanted: TopicsWanted) -> Sequence[Change]:
        """The topics are as wanted, and can be used; what was done.

        Raises:  RefusedError: something differs that only a person may change; nothing was done.
        """
        async with _Admin(self._config) as admin:
            changes = await self._plan(admin, wanted)
            refused = [str(change) for change in changes if change.advice is not None]
            if refused:
                raise RefusedError("\n".join(refused))
            await admin.create([self._new(c.topic, wanted) for c in changes if c.name == "topic"])
            await admin.configure([change for change in changes if change.name != "topic"])
            for change in changes:
                if change.name == "topic":
                    await admin.until_usable(self._new(change.topic, wanted))
            return changes

    async def _plan(self, admin: "_Admin", wanted: TopicsWanted) -> list[Change]:
        topics = [self._config.events_topic, self._config.dead_letters_topic]
        described = await admin.described(topics)
        configs = await admin.configs([topic for topic in topics if topic in described])
        changes: list[Change] = []
        for topic in topics:
            found, new = described.get(topic), self._new(topic, wanted)
            if found is None:
                text = f"{new.num_partitions} partitions, {new.replication_factor} replicas"
                changes.append(Change(topic, "topic", None, text))
            else:
                changes += _shape_changes(topic, found, new)
                changes += _differing(topic, configs[topic], _settings_of(new))
        return changes

    def _new(self, topic: str, wanted: TopicsWanted) -> NewTopic:
        is_log = topic == self._config.events_topic
        settings = {
            **_KEPT,
            "min.insync.replicas": str(min(2, wanted.replication)),
            "unclean.leader.election.enable": "false",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(1_048_588),
        }
        return NewTopic(
            topic,
            num_partitions=wanted.partitions if is_log else 1,
            replication_factor=wanted.replication,
            config=settings,
        )

    def _refusal(self, change: Change) -> str:
        return f"{change}: `{APPLY_COMMAND}` shows and mends what it can"


def _settings_of(topic: NewTopic) -> Mapping[str, str]:
    return topic.config or {}


def _shape_changes(topic: str, found: TopicDescription, new: NewTopic) -> list[Change]:
    """What nobody but a person can change."""
    changes = []
    count = len(found.partitions)
    if count != new.num_partitions:
        advice = (
            "the number is pinned, since it decides where a thread's records lie: set it to what "
            "the topic has, or take a new prefix and bring the threads over"
        )
        changes.append(Change(topic, "partitions", str(count), str(new.num_partitions), advice))
    replicas = min((len(partition.replicas) for partition in found.partitions), default=0)
    if replicas != new.replication_factor:
        advice = "reassign the partitions with the broker's own tools, or want what is there"
        changes.append(
            Change(topic, "replication", str(replicas), str(new.replication_factor), advice)
        )
    return changes


def _differing(topic: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> list[Change]:
    return [
        Change(topic, name, found.get(name), value)
        for name, value in wanted.items()
        if found.get(name) != value and not _is_enough(name, found.get(name))
    ]


def _is_enough(name: str, found: str | None) -> bool:
    """Whether a larger message than ours may pass."""
    is_size = name == "max.message.bytes" and found is not None
    return is_size and int(found or "0") >= _MESSAGE_BYTES_MIN


class _Admin:
    """The client's futures, awaited. It lives as long as they do."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config

    async def __aenter__(self) -> "_Admin":
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

    async def configure(self, changes: list[Change]) -> None:
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
