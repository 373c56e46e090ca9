"""What the clients are told: every setting of every kind of client, in one place.

Nothing is read from the environment here. The reasons for the values stand beside them; what is
not named keeps the client's default.
"""

from dataclasses import dataclass, field

from threadlog.adapters.kafka.statistics import ClientStatistics
from threadlog.ids import WorkerId
from threadlog.limits import USAGE_PARTITIONS_MAX

Settings = dict[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How the broker is reached and this process proves who it is; empty values are not passed on.

    Shapes:  `protocol` is `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`.
    """

    protocol: str = "plaintext"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_file: str = ""


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where the broker is, who we are, and how patient the clients are.

    Shapes:  `instance` is drawn at process start; `service`-`instance` is the client id of every
             client and the `worker` of every claim, so that the group tells who is alive.
             `statistics`: where these clients say how they are.
    Units:   `member_timeout_ms`: how long a silent member keeps its partitions. `poll_gap_ms`: how
             long a membership's thread may stand still. `delivery_timeout_ms`: when an append
             that was not acknowledged counts as failed.
    """

    bootstrap: str
    service: str
    instance: str
    prefix: str = "threadlog"
    partitions: int = 16
    member_timeout_ms: int = 6_000
    heartbeat_ms: int = 500
    poll_gap_ms: int = 60_000
    delivery_timeout_ms: int = 60_000
    security: KafkaSecurity = KafkaSecurity()
    statistics: ClientStatistics = field(
        default_factory=ClientStatistics, repr=False, compare=False
    )

    @property
    def worker(self) -> WorkerId:
        """This process, as claims and the broker know it."""
        return WorkerId(f"{self.service}-{self.instance}")

    @property
    def events_topic(self) -> str:
        """The topic of events."""
        return f"{self.prefix}.events"

    @property
    def dead_letters_topic(self) -> str:
        """The topic of pointers to bad records."""
        return f"{self.prefix}.dead-letters"

    @property
    def usage_topic(self) -> str:
        """The topic of usage facts."""
        return f"{self.prefix}.usage"

    @property
    def usage_partitions(self) -> int:
        """Partitions of it, and of metering's table: pinned, since the number of the log is."""
        return min(self.partitions, USAGE_PARTITIONS_MAX)

    @property
    def metering_group(self) -> str:
        """The group of metering, which is also what Faust calls its app."""
        return f"{self.prefix}.metering"

    @property
    def windows_topic(self) -> str:
        """The topic that metering's table is kept in, by the name that Faust gives it."""
        return f"{self.metering_group}-windows-changelog"

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic of ours."""
        return (self.events_topic, self.dead_letters_topic, self.usage_topic, self.windows_topic)

    @property
    def group(self) -> str:
        """The group whose members share the partitions."""
        return f"{self.prefix}.{self.service}"

    @property
    def alive_group(self) -> str:
        """The group whose members are the living processes of this service."""
        return f"{self.group}.alive"

    def admin(self) -> Settings:
        """Settings of a client that only asks and administers."""
        return self._common()

    def producer(self) -> Settings:
        """Settings of the one producer: durable, in order, no repeats when it retries."""
        return {
            **self._common(),
            "acks": "all",
            "enable.idempotence": True,
            # The client would wait for company; batches form by themselves under load.
            "linger.ms": 0,
            "batch.size": 256 * 1024,
            "compression.type": "lz4",
            "delivery.timeout.ms": self.delivery_timeout_ms,
            "queue.buffering.max.messages": 20_000,
            "queue.buffering.max.kbytes": 65_536,
            "message.max.bytes": 1_000_000,
        }

    def reader(self) -> Settings:
        """Settings of a consumer that follows partitions it was told to, outside any group."""
        return {
            **self._consumer(self.group),
            # A resumed partition waits for the fetch in flight.
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 1,
            # A full queue would rest for a second by default.
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 1_000,
            "queued.max.messages.kbytes": 16_384,
        }

    def lookup(self) -> Settings:
        """Settings of a consumer that fetches single records: small fetches, default queues.

        A lower `queued.min.messages` makes every hop wait for the queue's back-off.
        """
        return {
            **self._consumer(self.group),
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 1,
            "max.partition.fetch.bytes": 65_536,
            # The end of the partition is told, so that a place behind it is not waited for.
            "enable.partition.eof": True,
        }

    def member(self, group: str, *, strategy: str) -> Settings:
        """Settings of a consumer that belongs to `group`, and reads nothing.

        No static membership: that a process leaves is the signal.
        """
        return {
            **self._consumer(group),
            "partition.assignment.strategy": strategy,
            "group.protocol": "classic",
            "session.timeout.ms": self.member_timeout_ms,
            "heartbeat.interval.ms": self.heartbeat_ms,
            "max.poll.interval.ms": self.poll_gap_ms,
        }

    def _consumer(self, group: str) -> Settings:
        return {
            **self._common(),
            "group.id": group,
            # Every reader sees the same records, and a stranger's open transaction stalls nobody.
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # Never a silent jump to where there still are records.
            "auto.offset.reset": "error",
            "check.crcs": True,
        }

    def _common(self) -> Settings:
        security = self.security
        optional: Settings = {
            "sasl.mechanism": security.sasl_mechanism,
            "sasl.username": security.sasl_username,
            "sasl.password": security.sasl_password,
            "ssl.ca.location": security.ssl_ca_file,
        }
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.worker,
            "security.protocol": security.protocol,
            "reconnect.backoff.max.ms": 1_000,
            "socket.keepalive.enable": True,
            # A topic made by accident would have another number of partitions.
            "allow.auto.create.topics": False,
            "enable.metrics.push": False,
            **{name: value for name, value in optional.items() if value},
        }
