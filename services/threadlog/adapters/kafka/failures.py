"""What the client's errors mean for us: each code lands in one family of `threadlog.errors`.

Two lists are explicit, what is the operator's or caller's to mend, and what says that the log
cannot be trusted. Everything else may pass, and of an append it is unknown whether it arrived.
"""

from confluent_kafka import KafkaError, KafkaException

from threadlog.errors import (
    CorruptError,
    HistoryTruncatedError,
    LogUnavailableError,
    RefusedError,
    RejectedError,
    ThreadlogError,
    TransientError,
)

_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.SECURITY_DISABLED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_CONFIG,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError._NOT_CONFIGURED,
}
_TRUNCATED = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}
_CORRUPT = {
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._LOG_TRUNCATION,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
}
_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._WAIT_COORD,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._FATAL,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def mapped(error: KafkaError, doing: str) -> ThreadlogError:
    """The error of ours that says what `error` means, met while `doing` something."""
    text = f"{doing}: {error.str()} ({error.name()})"
    code = error.code()
    if code in _TOO_LARGE:
        return RejectedError(text)
    if code in _REFUSED:
        return RefusedError(text)
    if code in _TRUNCATED:
        return HistoryTruncatedError(
            f"the log's beginning is gone, or this is another log: {text}; "
            "records that were not read are missing"
        )
    if code in _CORRUPT:
        return CorruptError(text)
    if code in _PASSING or error.fatal():
        return LogUnavailableError(text)
    return TransientError(text)


def of_exception(error: Exception, doing: str) -> ThreadlogError:
    """The same for what the client raises."""
    if isinstance(error, ThreadlogError):
        return error
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return mapped(error.args[0], doing)
    if isinstance(error, BufferError):
        return TransientError(f"{doing}: too much waits for the broker already")
    return LogUnavailableError(f"{doing}: {type(error).__name__}: {error}")


def ends_reading(error: KafkaError) -> bool:
    """Whether the partition will give no more records to a consumer that met this error."""
    lost = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
    code = error.code()
    return error.fatal() or code in _REFUSED | _TRUNCATED | _CORRUPT | lost | {
        KafkaError.UNKNOWN_TOPIC_OR_PART
    }


def ends_membership(error: KafkaError) -> bool:
    """Whether a member of a group can not come back from this error by itself."""
    # It holds no records, so what is wrong with them is not its concern.
    return error.fatal() or error.code() in _REFUSED
