"""Questions to a broker that change nothing and join no group, for `doctor`.

Every call blocks, for at most `ASK_S`: it is for a thread of its own. A broker that is away is told
after `AWAY_S`, with what the client met, and not when the time of a request has run out.
"""

import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from threadlog.adapters.kafka.advice import NEVER_PASSES
from threadlog.adapters.kafka.client_log import CLIENT_LOG
from threadlog.adapters.kafka.config import KafkaConfig
from threadlog.adapters.kafka.failures import mapped, of_exception
from threadlog.clock import Clock
from threadlog.errors import LogUnavailableError, ThreadlogError, TransientError

T = TypeVar("T")
ASK_S = 5.0
AWAY_S = 2.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """Who answers. `keeps_minutes`: for how long commits of an empty group stay; None: not said."""

    cluster_id: str
    brokers: int
    keeps_minutes: int | None


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A group as the broker knows it. `members`: client ids; `state` is empty: there is none."""

    state: str
    members: tuple[str, ...]


class Inspection:
    """Asks one broker. `close` ends its clients."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        """Raises: RefusedError: the client takes no such settings."""
        self._config = config
        self._clock = clock
        self._met: list[KafkaError] = []
        self._pause = threading.Event()
        """Never set: a wait that is no sleep of the process."""
        try:
            settings: Any = {**config.admin(), "error_cb": self._met.append}
            self._admin = AdminClient(settings, logger=CLIENT_LOG)
        except KafkaException as error:
            raise of_exception(error, "settings of the client") from error

    def broker(self) -> BrokerSeen:
        """A broker answers.

        Raises:  LogUnavailableError: none does; says why. RefusedError: it lets nobody in.
        """
        cluster = self._met_or(self._admin.describe_cluster(request_timeout=ASK_S))
        [node, *_] = cluster.nodes
        asked = ConfigResource(ResourceType.BROKER, str(node.id))
        [future] = self._admin.describe_configs([asked], request_timeout=ASK_S).values()
        try:
            entry = self._result(future, "settings of the broker").get("offsets.retention.minutes")
        except ThreadlogError:
            # Not everybody may ask for them, and they are worth no failure.
            entry = None
        minutes = None if entry is None or entry.value is None else int(entry.value)
        return BrokerSeen(str(cluster.cluster_id), len(cluster.nodes), minutes)

    def bounds(self, partitions: int) -> tuple[dict[int, int], dict[int, int]]:
        """The first offset that is there, and the end, of each partition of the events topic."""
        first = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # the client has no types here
        return first, self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # nor here

    def group(self, name: str) -> GroupSeen:
        """The members of a group. Raises: RefusedError: this user may not ask."""
        with warnings.catch_warnings():
            # As in `members`: the newer call ends the process when a connection drops.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                found: Any = self._admin.list_groups(name, timeout=ASK_S)
            except KafkaException as error:
                raise of_exception(error, f"group {name}") from error
        for group in found:
            if group.error is not None:
                raise mapped(group.error, f"group {name}") from KafkaException(group.error)
            if group.id == name:
                state = "" if group.state == "Dead" else str(group.state)
                return GroupSeen(state, tuple(sorted(m.client_id for m in group.members)))
        return GroupSeen("", ())

    def committed(self, group: str, partitions: int) -> dict[int, int]:
        """What an existing group has committed, where it has."""
        doing = f"commits of group {group}"
        with _Asker(self._config, group) as asker:
            asked = self._places(partitions)
            places = self._patiently(lambda: asker.committed(asked, timeout=ASK_S), doing)
        for place in places:
            if place.error is not None:
                raise mapped(place.error, f"commits of group {group}")
        return {place.partition: place.offset for place in places if place.offset >= 0}

    def appended_ms(self, partition: int, offset: int) -> int | None:
        """The time of the first record from there on; None: none came in time."""
        found = self._read({partition: offset}, 1)
        return found[0].timestamp()[1] if found else None

    def newest(
        self, first: Mapping[int, int], ends: Mapping[int, int], count: int
    ) -> list[tuple[str, bytes]]:
        """Key and value of the newest records, about `count` in all."""
        filled = {p: end for p, end in ends.items() if end > first[p]}
        share = max(1, count // max(1, len(filled)))
        starts = {p: max(first[p], end - share) for p, end in filled.items()}
        found = self._read(starts, count + len(starts))
        return [((m.key() or b"").decode(errors="replace"), m.value() or b"") for m in found]

    def close(self) -> None:
        """Nothing is asked any more."""
        self._admin.poll(0)

    def _met_or(self, future: "Future[Any]") -> Any:
        """The answer, or what the client met instead, as soon as that is sure."""
        deadline_ms = self._clock.mono_ms() + round(AWAY_S * 1_000)
        while not wait([future], _LOOK_S).done:
            self._admin.poll(0)
            is_final = any(error.code() in NEVER_PASSES for error in self._met)
            if self._met and (is_final or self._clock.mono_ms() >= deadline_ms):
                raise self._away()
        self._admin.poll(0)
        try:
            return future.result()
        except KafkaException as error:
            if self._met:
                raise self._away() from error
            raise of_exception(error, "broker") from error

    def _away(self) -> ThreadlogError:
        final = [error for error in self._met if error.code() in NEVER_PASSES]
        # That all are down is not why.
        first = next((e for e in self._met if e.code() != KafkaError._ALL_BROKERS_DOWN), None)
        cause = (final or [first or self._met[0]])[0]
        # How long an attempt took, and in which of the client's states, tells a person nothing.
        text = cause.str().partition(" (after")[0].rpartition("/bootstrap: ")[2]
        if final:
            error: ThreadlogError = mapped(cause, "broker")
        else:
            error = LogUnavailableError(f"no broker answers at {self._config.bootstrap}: {text}")
        error.__cause__ = KafkaException(cause)
        return error

    def _offsets(self, partitions: int, spec: OffsetSpec) -> dict[int, int]:
        places = {place: spec for place in self._places(partitions)}

        def ask() -> dict[int, int]:
            asked = self._admin.list_offsets(places, request_timeout=ASK_S)
            return {place.partition: future.result().offset for place, future in asked.items()}

        return self._patiently(ask, "ends of the partitions")

    def _patiently(self, ask: Callable[[], T], doing: str) -> T:
        """The answer; a leader or coordinator that is being chosen is waited for, for a moment."""
        deadline_ms = self._clock.mono_ms() + round(ASK_S * 1_000)
        while True:
            try:
                return ask()
            except KafkaException as error:
                cause = of_exception(error, doing)
                is_over = self._clock.mono_ms() >= deadline_ms
                if is_over or not isinstance(cause, TransientError):
                    raise cause from error
            self._pause.wait(_LOOK_S)

    def _places(self, partitions: int) -> list[TopicPartition]:
        return [TopicPartition(self._config.events_topic, n) for n in range(partitions)]

    def _result(self, future: "Future[Any]", doing: str) -> Any:
        try:
            return future.result(ASK_S + 1)
        except (KafkaException, TimeoutError) as error:
            raise of_exception(error, doing) from error

    def _read(self, starts: Mapping[int, int], count: int) -> list[Message]:
        """At most `count` records from these offsets to the ends, as far as they come in time."""
        found: list[Message] = []
        left = set(starts)
        topic = self._config.events_topic
        deadline_ms = self._clock.mono_ms() + round(ASK_S * 1_000)
        with _Asker(self._config, self._config.group) as asker:
            asker.assign([TopicPartition(topic, p, at) for p, at in starts.items()])
            while left and len(found) < count and self._clock.mono_ms() < deadline_ms:
                message = asker.poll(_LOOK_S)
                if message is None:
                    continue
                if message.error() is None:
                    found.append(message)
                elif message.partition() in left:
                    # Its end, or an error, which others tell of.
                    left.discard(message.partition() or 0)
        return found


class _Asker:
    """A consumer that belongs to no group and commits nothing; closed in the end."""

    def __init__(self, config: KafkaConfig, group: str) -> None:
        settings = {**config.lookup(), "group.id": group}
        self._consumer = Consumer(settings, logger=CLIENT_LOG)

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
