"""What an operator does about an error of the client, where its code says that. Pure."""

from confluent_kafka import KafkaError, KafkaException

NEVER_PASSES = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
}
"""No time mends these."""
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_OLD = {KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE}


def advice(error: BaseException) -> str | None:
    """What to do about an error of the client that stands behind `error`; None: nothing special."""
    while error.__cause__ is not None:
        error = error.__cause__
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else None
    code = cause.code() if isinstance(cause, KafkaError) else None
    if code in _FORBIDDEN:
        return (
            "let this user DESCRIBE, READ and WRITE the topics that begin with the prefix, and "
            "DESCRIBE and READ its groups, by ACLs of the broker"
        )
    if code in NEVER_PASSES:
        return (
            "correct THREADLOG_KAFKA__SECURITY_PROTOCOL, the SASL_ settings beside it, and "
            "THREADLOG_KAFKA__SSL_CA"
        )
    if code in _OLD:
        return "upgrade the broker: Apache Kafka 2.8 is the oldest whose topics have ids"
    return None
