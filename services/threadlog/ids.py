"""Names of things: typed ids, their one spelling, and how they derive from their cause.

Ids that a retry must meet again are derived (uuid5) from identity, so that the same cause always
gives the same id. Parts are encoded before they are joined: no part can imitate two.
Source: CONTRACT 1, DESIGN law 7.
"""

import hashlib
import re
import struct
import uuid
from functools import lru_cache
from typing import NewType

TenantId = NewType("TenantId", str)
ThreadId = NewType("ThreadId", str)
EventId = NewType("EventId", str)
TurnId = NewType("TurnId", str)
CallId = NewType("CallId", str)
WorkerId = NewType("WorkerId", str)
WorkspaceId = NewType("WorkspaceId", str)
Seq = NewType("Seq", int)
Position = NewType("Position", int)
"""Where a record lies in its partition: SQLite's `sequence`, on Kafka the offset behind it.

So a position is also how much of a partition was read: Kafka's "next offset". Operators only.
"""
Partition = NewType("Partition", int)
"""A part of the log with an order of its own, counted from 0; an embedded log has one."""

LOCAL_TENANT = TenantId("local")
NO_SEQ = Seq(-1)
"""The head of a stream without an accepted event."""
NO_POSITION = Position(0)
"""Before the first record: positions start at 1."""

UUID_PATTERN = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TENANT_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"
_UUID = re.compile(UUID_PATTERN)
_WORD = struct.Struct("<I")
_TENANT = re.compile(TENANT_PATTERN)
_NAMESPACE = uuid.UUID("6a5d1f0e-53c0-5d0b-9a39-6f1c7d3b2e84").bytes


@lru_cache(maxsize=4_096, typed=True)
def derive(*parts: str | int) -> str:
    """The uuid5 text of `parts`, equal for equal parts and for no others.

    The last ones are remembered: planning an event and reading it back derive the same ids.

    Shapes:  each part is written with its length before it, so that ("ab", "c") differs from
             ("a", "bc").
    """
    name = "".join(f"{len(text := str(p))}:{text}" for p in parts)
    digest = bytearray(hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).digest())
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    return uuid_text(bytes(digest[:16]))


def uuid_text(packed: bytes) -> str:
    """The canonical text of a UUID of 16 bytes."""
    text = packed.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def draw() -> str:
    """A new random id. Only the edge calls it: an idempotency key, a worker's instance id."""
    return str(uuid.uuid4())


def is_uuid(text: str) -> bool:
    """Whether `text` is a UUID in its one canonical spelling (lower case, hyphens)."""
    return _UUID.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    """Whether `text` is a tenant id: `[a-z0-9][a-z0-9-]{0,62}`."""
    return _TENANT.fullmatch(text) is not None


def input_id(
    tenant: TenantId, thread: ThreadId, operation: str, key: str, ordinal: int = 0
) -> EventId:
    """The id of an input event; the same idempotency key always gives the same id."""
    return EventId(derive("input", tenant, thread, operation, key, ordinal))


def new_thread_id(tenant: TenantId, key: str) -> ThreadId:
    """The id of the thread that a creation with this idempotency key makes."""
    return ThreadId(derive("thread", tenant, key))


def turn_id(thread: ThreadId, number: int) -> TurnId:
    """The id of the thread's turn `number`, counted from 1; also the id of its `turn.started`."""
    return TurnId(derive("turn", thread, number))


def claim_id(subject: str, number: int, attempt: int, worker: WorkerId, decided_at: Seq) -> EventId:
    """The id of a claim: a void claim is never mistaken for a later one.

    Shapes:  for a step `subject` is the turn id and `number` the step's; for a call `subject` is
             the call id and `number` is 0.
    """
    return EventId(derive("claim", subject, number, attempt, worker, decided_at))


def call_id(responded: EventId, ordinal: int) -> CallId:
    """The id of one call of a response, and of its `tool.requested`."""
    return CallId(derive("call", responded, ordinal))


def caused_id(cause: str, kind: str, *parts: str | int) -> EventId:
    """The id of an event of `kind` that follows from `cause` at most once (for equal `parts`)."""
    return EventId(derive("caused", cause, kind, *parts))


def partition_of(key: str, partitions: int) -> Partition:
    """The partition of a record key: murmur2 modulo `partitions`, as Java's clients have it.

    Source:  DESIGN 4; `tests/contract/test_kafka_log.py` compares it with the client's own.
    """
    return Partition((_murmur2(key.encode()) & 0x7FFFFFFF) % partitions)


def _murmur2(data: bytes) -> int:
    """The 32-bit murmur2 of Kafka's default partitioner, unsigned."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    size = len(data)
    value = 0x9747B28C ^ size
    whole = size & ~3
    for (word,) in _WORD.iter_unpack(data[:whole]):
        mixed = word * factor & mask
        mixed = (mixed ^ mixed >> 24) * factor & mask
        value = value * factor & mask ^ mixed
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * factor & mask
    value = (value ^ value >> 13) * factor & mask
    return value ^ value >> 15
