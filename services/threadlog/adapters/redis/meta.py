"""The `meta` hash of a partition: whose views these are, how far they are, who may read them."""

from collections.abc import Sequence

from threadlog.adapters.redis.layout import FORMAT
from threadlog.errors import CorruptError, RefusedError, ViewsRebuildingError
from threadlog.ids import NO_POSITION, Position
from threadlog.ports.log import LogIdentity
from threadlog.thread.state import FOLD_VERSION

FIELDS = ("watermark", "rebuilding_until", "cluster_id", "topic_id", "partitions", "format", "fold")
"""What every read asks for, in this order."""
Values = Sequence[bytes | None]


def first_of(identity: LogIdentity, end: Position) -> list[str | int]:
    """Fields and values of views that hold nothing yet, of a log that ends at `end`."""
    return [
        *("watermark", NO_POSITION, "rebuilding_until", end, "dead_letters", 0),
        *("cluster_id", identity.cluster_id, "topic_id", identity.topic_id),
        *("partitions", identity.partitions, "format", FORMAT, "fold", FOLD_VERSION),
    ]


def belonging(values: Values, identity: LogIdentity) -> Position:
    """The watermark of views that are this log's, of this format and this fold.

    Raises:  ViewsRebuildingError: there are none.
             CorruptError: they are of another log.
             RefusedError: a newer version has written them, or another fold has numbered them.
    """
    if (watermark := values[0]) is None:
        raise ViewsRebuildingError(
            f"there are no views of {identity.topic} (yet, or any more): a projection makes them; "
            "is one running (threadlog serve projection)? Then try again"
        )
    _, _, cluster, topic, partitions, stored, fold = (value or b"" for value in values)
    if (found := _number(stored)) > FORMAT:
        raise RefusedError(
            f"the views of {identity.topic} in Redis have format {found}, newer than this"
            f" version's {FORMAT}; upgrade, or {_rebuild(identity, found)}"
        )
    expected = (identity.cluster_id, identity.topic_id, str(identity.partitions))
    if (cluster.decode(), topic.decode(), partitions.decode()) != expected or found != FORMAT:
        raise CorruptError(
            f"the views of {identity.topic} in Redis were made from another log: they say cluster"
            f" {cluster.decode()!r}, topic id {topic.decode()!r}, {partitions.decode()} partitions;"
            f" it is {expected[0]!r}, {expected[1]!r}, {expected[2]}. To {_rebuild(identity)}"
        )
    if fold.decode() != FOLD_VERSION:
        raise RefusedError(
            f"the views of {identity.topic} in Redis were made by fold {fold.decode() or 'none'!r},"
            f" this version's is {FOLD_VERSION!r}: it may judge events otherwise, so they must be"
            f" made again. To {_rebuild(identity)}"
        )
    return Position(_number(watermark))


def readable(values: Values, identity: LogIdentity) -> Position:
    """The watermark of views that may be read.

    Raises:  ViewsRebuildingError: they are gone, or do not hold again what they held once.
             CorruptError, RefusedError: as `belonging`.
    """
    watermark = belonging(values, identity)
    until = _number(values[1] or b"0")
    if watermark < until:
        raise ViewsRebuildingError(
            f"the views of {identity.topic} are being rebuilt: they are at {watermark} of {until}"
        )
    return watermark


def _rebuild(identity: LogIdentity, version: int = FORMAT) -> str:
    # Without its meta nothing is read of a partition, so that goes first: whoever runs all the
    # same must not find some of a thread's keys gone under a watermark that still stands.
    prefix = f"{{{identity.topic}:*}}:v{version}:"
    remove = "redis-cli --scan --pattern '{}' | xargs redis-cli unlink"
    return (
        "rebuild them, stop all services first; then run"
        f" `{remove.format(prefix + 'meta')}`, then"
        f" `{remove.format(prefix + '*')}`, and start the services again"
    )


def _number(value: bytes) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise CorruptError("the views' meta in Redis holds no number where one belongs") from error
