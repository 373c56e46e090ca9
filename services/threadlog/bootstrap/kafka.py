"""What the Kafka clients of a process are told, from the settings."""

from threadlog.adapters.kafka.config import KafkaConfig, KafkaSecurity
from threadlog.settings import Settings

GATEWAY_DELIVERY_MS = 10_000
"""A person waits: a failed append is told before they give up."""
WORKER_DELIVERY_MS = 60_000


def kafka_config(settings: Settings, service: str, instance: str) -> KafkaConfig:
    """What the clients of this process are told.

    Raises:  UsageError: a secret cannot be read.
    """
    kafka = settings.kafka
    assert kafka.bootstrap is not None, "checked by Settings.check_cluster"
    is_worker = service not in ("gateway", "cli")
    return KafkaConfig(
        bootstrap=kafka.bootstrap,
        service=service,
        instance=instance,
        prefix=kafka.prefix,
        partitions=kafka.partitions,
        member_timeout_ms=kafka.member_timeout_ms,
        heartbeat_ms=kafka.heartbeat_ms,
        delivery_timeout_ms=WORKER_DELIVERY_MS if is_worker else GATEWAY_DELIVERY_MS,
        security=KafkaSecurity(
            protocol=kafka.security_protocol.lower(),
            sasl_mechanism=kafka.sasl_mechanism or "",
            sasl_username=kafka.sasl_username or "",
            sasl_password=kafka.password() or "",
            ssl_ca_file="" if kafka.ssl_ca is None else str(kafka.ssl_ca),
        ),
    )
