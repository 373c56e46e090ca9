"""The Faust app of metering: one agent over usage facts, one table of windows.

It makes no topic and elects no leader; its table is in memory, and kept in its changelog topic.
Nothing is told to the table but through `WindowsTable`, so that whoever writes can wait until the
broker has it.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

import faust
from faust.types import CodecArg, FutureMessage
from yarl import URL

from threadlog.ids import Partition, partition_of
from threadlog.metering.windows import Mark, Slot, place_of

_REQUEST_S = 40.0


@dataclass(frozen=True, slots=True)
class MeteringConfig:
    """Where the broker is and what is metered.

    Shapes:  `group`: of the workers, and the name of the app. `topic_id` of the log, `usage_id` of
             the topic of facts. `writer`: this life of the process.
             `protocol`: `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`; empty texts are unset.
    """

    bootstrap: str
    group: str
    usage_topic: str
    partitions: int
    topic_id: str
    usage_id: str
    writer: str
    member_timeout_ms: int = 6_000
    heartbeat_ms: int = 500
    protocol: str = "plaintext"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_file: str = ""

    def home(self, tenant: str) -> Partition:
        """Where a tenant's facts and windows lie."""
        return partition_of(tenant, self.partitions)


class WindowsTable(faust.Table[str, object]):
    """Windows by `Slot.key`. `sent`: what the broker may not have acknowledged yet."""

    def __init__(self, app: faust.App, home: Callable[[str], Partition]) -> None:
        super().__init__(
            app,
            name="windows",
            key_type=str,
            beacon=app.tables.beacon,
        )
        self.key_serializer, self.value_serializer = "raw", "json"
        self._home = home
        self.sent: list[FutureMessage] = []

    def partition_for_key(self, key: str) -> int:
        """With the facts of its tenant: whoever has those recovers it."""
        place = place_of(key)
        return place.partition if isinstance(place, Mark) else self._home(place.tenant)

    def send_changelog(
        self,
        partition: int | None,
        key: object,
        value: object,
        key_serializer: CodecArg = None,
        value_serializer: CodecArg = None,
    ) -> FutureMessage:
        """As Faust does it; what is sent is remembered."""
        sent = super().send_changelog(partition, key, value, key_serializer, value_serializer)
        self.sent.append(sent)
        return sent

    def holds(self, slot: Slot, partitions: frozenset[int]) -> bool:
        """Whether the window lies in one of these partitions."""
        return self._home(slot.tenant) in partitions


def make_app(config: MeteringConfig) -> faust.App:
    """The app, not started."""
    member_s = config.member_timeout_ms / 1_000
    return faust.App(
        config.group,
        broker=[URL(f"kafka://{server}") for server in config.bootstrap.split(",")],
        broker_credentials=_credentials(config),
        broker_client_id=f"metering-{config.writer}",
        broker_session_timeout=member_s,
        broker_heartbeat_interval=config.heartbeat_ms / 1_000,
        broker_request_timeout=max(_REQUEST_S, 2 * member_s),
        broker_commit_interval=1.0,
        store="memory://",
        key_serializer="raw",
        value_serializer="raw",
        producer_compression_type="gzip",
        table_standby_replicas=0,
        topic_allow_declare=False,
        topic_disable_leader=True,
        topic_partitions=config.partitions,
        # What is not settled is told again to whoever comes next; nobody waits for it.
        stream_wait_empty=False,
        web_enabled=False,
        autodiscover=False,
    )


def _credentials(config: MeteringConfig) -> faust.SASLCredentials | faust.SSLCredentials | None:
    context = None
    if config.protocol.endswith("ssl"):
        context = ssl.create_default_context(cafile=config.ssl_ca_file or None)
    if config.protocol.startswith("sasl_"):
        return faust.SASLCredentials(
            username=config.sasl_username,
            password=config.sasl_password,
            mechanism=config.sasl_mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)
