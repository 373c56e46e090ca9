"""The metrics of topics and of the clients of the log, as far as a process looks at them."""

from collections.abc import Mapping
from typing import get_args

from threadlog.telemetry.labels import Client, TopicSetting
from threadlog.telemetry.registry import Children, Registry


class LogMetrics:
    """Whether the log is what it must be, and how its clients are."""

    def __init__(self, registry: Registry) -> None:
        self._drift = Children(registry.gauge("threadlog_topic_config_drift"))
        self._foreign = Children(registry.gauge("threadlog_foreign_transaction_records"))
        self._rtt = Children(registry.gauge("threadlog_kafka_client_rtt_p99_seconds"))
        self._queue = Children(registry.gauge("threadlog_kafka_client_queue_p99_seconds"))
        self._throttle = Children(registry.gauge("threadlog_kafka_client_throttle_p99_seconds"))
        self._messages = Children(registry.gauge("threadlog_kafka_client_queue_messages"))
        self._rebalances = Children(registry.gauge("threadlog_kafka_client_rebalances"))

    def expect(self, topics: tuple[str, ...], *, reads: bool) -> None:
        """Topics are as they must be until something else is seen; `reads`: partitions, in a group.

        What was asked at the start of the process would not have let it start otherwise.
        """
        for topic in topics:
            for setting in get_args(TopicSetting):
                self._drift[topic, setting].set(0)
        clients: tuple[Client, ...] = ("producer", "reader", "group", "members")
        for client in clients if reads else clients[:1]:
            self.client(client, rtt_s=0, queue_s=0, throttle_s=0, messages=0, rebalances=0)

    def drift(self, topic: str, setting: TopicSetting, *, differs: bool) -> None:
        """Whether this setting of this topic differs from what is pinned."""
        self._drift[topic, setting].set(differs)

    def foreign(self, records_by_partition: Mapping[int, int]) -> None:
        """So many records stand behind a transaction that is open; others are no longer shown."""
        for (partition,) in list(self._foreign):
            if int(partition) not in records_by_partition:
                self._foreign.drop(partition)
        for number, records in records_by_partition.items():
            self._foreign[(str(number),)].set(records)

    def client(
        self,
        client: Client,
        *,
        rtt_s: float,
        queue_s: float,
        throttle_s: float,
        messages: int,
        rebalances: int,
    ) -> None:
        """What the clients of this kind have said of themselves last."""
        key = (client,)
        self._rtt[key].set(rtt_s)
        self._queue[key].set(queue_s)
        self._throttle[key].set(throttle_s)
        self._messages[key].set(messages)
        self._rebalances[key].set(rebalances)
