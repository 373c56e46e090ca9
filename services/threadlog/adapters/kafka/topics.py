"""What the broker must look like, and how it is made so.

Creating topics and setting their configuration is safe and repeatable. Everything else that
differs, above all the number of partitions, would move threads away from their history: it is
refused, with what to do about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from confluent_kafka.admin import (
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from threadlog.adapters.kafka.admin import Admin
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.errors import RefusedError
from threadlog.ports.log import LogIdentity

APPLY_COMMAND = "threadlog topics apply"
_ASK_S = 10.0
_ASK_AGAIN_S = 0.05
_MESSAGE_BYTES_MIN = 1_000_000
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client has no types here
Pinned = Literal["partitions", "cleanup.policy", "retention.ms", "retention.bytes"]
_PINNED: Final[Sequence[Pinned]] = ("cleanup.policy", "retention.ms", "retention.bytes")
_KEPT: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Nothing of the log is ever thrown away; checked at every start."""
_USAGE = {**_KEPT, "compression.type": "gzip"}
"""Kept like the log, so that metering can count it all again. Faust's client reads no LZ4 here, so
the broker packs it otherwise, whoever appends."""
_TABLE = {"cleanup.policy": "compact"}
"""Metering's table: the newest value of each key."""


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
        async with Admin(self._config) as admin:
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
        partitions = self._partitions()
        del partitions[self._config.windows_topic]
        async with Admin(self._config) as admin:
            await self._check_shapes(admin, partitions)
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
        partitions = self._partitions()
        async with Admin(self._config) as admin:
            described = await admin.described(list(partitions))
            configs = await admin.configs(list(described))
        found: dict[tuple[str, Pinned], bool] = {}
        for topic, wanted in partitions.items():
            there = described.get(topic)
            found[topic, "partitions"] = there is None or len(there.partitions) != wanted
            live, kept = configs.get(topic, {}), self._kept(topic)
            for setting in _PINNED:
                found[topic, setting] = setting in kept and live.get(setting) != kept[setting]
        return found

    async def foreign(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """Records of each partition that stand behind an open transaction; nobody of ours has one.

        Raises:  LogUnavailableError: nobody answers within 10 s.
        """
        topic = self._config.events_topic
        async with Admin(self._config) as admin:
            # In this order: what is appended in between makes none look open.
            ends = await admin.offsets(topic, partitions, _LATEST)
            stable = await admin.offsets(topic, partitions, _LATEST, is_stable=True)
        return {n: max(0, end - stable.get(n, end)) for n, end in ends.items()}

    async def check_metering(self) -> str:
        """The topics of usage facts and of metering's table are fit to run on.

        Without the latter Faust would say one line, run on, and lose what it has counted. The
        answer is the id of the topic of usage facts: offsets mean something only together with it.

        Raises:  RefusedError, LogUnavailableError: as `check`.
        """
        usage, windows = self._config.usage_topic, self._config.windows_topic
        async with Admin(self._config) as admin:
            wanted = self._partitions()
            await self._check_shapes(admin, {topic: wanted[topic] for topic in (usage, windows)})
            configs = await admin.configs([usage, windows])
            changes = _differing(usage, configs[usage], _USAGE)
            for change in (*changes, *_differing(windows, configs[windows], _TABLE)):
                raise RefusedError(self._refusal(change))
            return str((await admin.described([usage]))[usage].topic_id)

    async def _check_shapes(self, admin: Admin, wanted: Mapping[str, int]) -> None:
        described = await admin.described(list(wanted))
        for topic, partitions in wanted.items():
            found = described.get(topic)
            if found is None:
                raise RefusedError(self._refusal(Change(topic, "topic", None, "a topic")))
            if len(found.partitions) != partitions:
                count = str(len(found.partitions))
                raise RefusedError(
                    self._refusal(Change(topic, "partitions", count, str(partitions)))
                )

    def _partitions(self) -> dict[str, int]:
        """Every topic of ours, and its number of partitions where the log has its own."""
        config = self._config
        return {
            config.events_topic: config.partitions,
            config.dead_letters_topic: 1,
            config.usage_topic: config.usage_partitions,
            config.windows_topic: config.usage_partitions,
        }

    async def plan(self, wanted: TopicsWanted) -> Sequence[Change]:
        """Every difference to what is wanted; none: there is nothing to do."""
        async with Admin(self._config) as admin:
            return await self._plan(admin, wanted)

    async def apply(self, wanted: TopicsWanted) -> Sequence[Change]:
        """The topics are as wanted, and can be used; what was done.

        Raises:  RefusedError: something differs that only a person may change; nothing was done.
        """
        async with Admin(self._config) as admin:
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

    async def _plan(self, admin: Admin, wanted: TopicsWanted) -> list[Change]:
        topics = list(self._partitions())
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
        count = self._partitions()[topic]
        settings = {
            **self._kept(topic),
            "min.insync.replicas": str(min(2, wanted.replication)),
            "unclean.leader.election.enable": "false",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(1_048_588),
        }
        return NewTopic(
            topic,
            num_partitions=wanted.partitions if topic == self._config.events_topic else count,
            replication_factor=wanted.replication,
            config=settings,
        )

    def _kept(self, topic: str) -> Mapping[str, str]:
        """What is kept of the topic, and how."""
        if topic == self._config.windows_topic:
            return _TABLE
        return _USAGE if topic == self._config.usage_topic else _KEPT

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
