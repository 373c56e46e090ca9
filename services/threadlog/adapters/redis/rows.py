"""Values in Redis and back. Values are not trusted: what does not fit its type is Corrupt."""

from typing import TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from threadlog.errors import CorruptError, RecordError
from threadlog.events.codec import decode_event
from threadlog.events.envelope import Event
from threadlog.ids import EventId, Position, Seq, TenantId, ThreadId
from threadlog.ports.snapshots import Snapshot
from threadlog.ports.usage import UsageFact
from threadlog.ports.views import (
    Judged,
    ThreadRow,
)

T = TypeVar("T")
_ENVELOPE = [name for name in Event.model_fields if name not in ("body", "data")]
_ROW: TypeAdapter[ThreadRow] = TypeAdapter(ThreadRow)
_FACT: TypeAdapter[UsageFact] = TypeAdapter(UsageFact)
_NOT_KEPT = ("tenant_id", "thread_id", "begins_step", "appended_ms")
_FACT_MEMBERS = [n for n in UsageFact.__slots__ if n not in _NOT_KEPT]
_VALUES: TypeAdapter[list[str | int | None]] = TypeAdapter(list[str | int | None])
_VOID: TypeAdapter[tuple[Position, EventId, str]] = TypeAdapter(tuple[Position, EventId, str])
_HEAD: TypeAdapter[tuple[int, int, str, str]] = TypeAdapter(tuple[int, int, str, str])


def encode_row(row: ThreadRow) -> bytes:
    """A thread's row as JSON."""
    return orjson.dumps(row)


def decode_row(data: bytes, tenant: TenantId, thread: ThreadId) -> ThreadRow:
    """The row of this thread.

    Raises:  CorruptError: it does not decode, or is another thread's.
    """
    row = _decoded(_ROW, data)
    if (row.tenant_id, row.thread_id) != (tenant, thread):
        raise CorruptError(f"the stored row of thread {thread} is another's")
    return row


def encode_fact(fact: UsageFact) -> bytes:
    """A usage fact as JSON; tenant and thread stand in its key, the names of members nowhere."""
    return orjson.dumps([getattr(fact, name) for name in _FACT_MEMBERS])


def decode_fact(data: bytes, tenant: TenantId, thread: ThreadId) -> UsageFact:
    """The fact, of this thread.

    Raises:  CorruptError
    """
    values = _decoded(_VALUES, data)
    if len(values) != len(_FACT_MEMBERS):
        raise CorruptError("a usage fact in Redis has other members than this version's")
    named = dict(zip(_FACT_MEMBERS, values, strict=True))
    try:
        # Not strict: that would take no dict for a fact.
        return _FACT.validate_python({**named, "tenant_id": tenant, "thread_id": thread})
    except ValidationError as error:
        raise CorruptError("a usage fact in Redis does not fit its type") from error


def encode_event(event: Event) -> bytes:
    """A line of JSON with the envelope, then the body's bytes as they are in the log.

    Not a CloudEvents line: that takes seven times as long to read, and a page is read often.
    """
    fields = {name: getattr(event, name) for name in _ENVELOPE}
    return orjson.dumps(fields) + b"\n" + event.data


def decode_event_line(data: bytes) -> Event:
    """Inverse of `encode_event`.

    Raises:  RecordError: it is none.
    """
    head, _, body = data.partition(b"\n")
    try:
        fields = orjson.loads(head)
    except ValueError as error:
        raise RecordError("no JSON") from error
    if not isinstance(fields, dict):
        raise RecordError("no envelope")
    return decode_event(fields, body)


def encode_void(judged: Judged) -> bytes:
    """Where a void event lies, which it is, and why it is void."""
    return orjson.dumps([judged.position, judged.event_id, judged.void or ""])


def decode_void(data: bytes) -> tuple[Position, EventId, str]:
    """Inverse of `encode_void`.

    Raises:  CorruptError
    """
    return _decoded(_VOID, data)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """A line that says what the state behind it is the state of."""
    head = [snapshot.seq, snapshot.position, snapshot.fold_version, snapshot.sha256]
    return orjson.dumps(head) + b"\n" + snapshot.state


def decode_snapshot(data: bytes, tenant: TenantId, thread: ThreadId) -> Snapshot:
    """The snapshot, unchecked: the loader compares version and hash.

    Raises:  CorruptError
    """
    head, _, state = data.partition(b"\n")
    seq, position, fold_version, sha256 = _decoded(_HEAD, head)
    return Snapshot(
        tenant_id=tenant,
        thread_id=thread,
        seq=Seq(seq),
        position=Position(position),
        fold_version=fold_version,
        sha256=sha256,
        state=state,
    )


def _decoded(adapter: TypeAdapter[T], data: bytes) -> T:
    try:
        return adapter.validate_json(data, strict=True)
    except ValidationError as error:
        raise CorruptError("a value in Redis does not fit its type") from error
