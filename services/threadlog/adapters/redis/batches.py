"""What a batch of rows becomes: the calls of `apply.lua` that bring it in. Pure.

One call is one step for Redis, and stands in everybody's way while it runs; so it carries at most
`VIEW_CALL_THREADS_MAX` threads' events and `VIEW_CALL_BYTES_MAX`. A larger batch takes several
calls, which is harmless wherever it ends early:

1. Rows of threads are final states, so they, the open threads and the watermark cannot be split:
   they move in the last call. All calls compare the watermark with the expected one; those before
   the last leave it where it is.
2. What the earlier calls write belongs to one position: index entries, ids, voids, facts, recent
   events. No reader takes anything of a position above the watermark, so it is not seen before
   the last call has moved it. A snapshot ahead of the watermark is a state like any other, and
   whoever loads one compares positions.
3. After a crash in between the watermark is the expected one. The same records are folded again
   from there, give the same rows in perhaps other batches, and each write may be repeated: a place
   in an index is written over with the same bytes, a recent event is compared, the rest are sets.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from threadlog.adapters.redis import rows
from threadlog.adapters.redis.connect import Argument
from threadlog.adapters.redis.layout import Keys, packed, place_of
from threadlog.limits import (
    RECENT_EVENTS_MAX,
    RECENT_IDLE_MS,
    VIEW_CALL_BYTES_MAX,
    VIEW_CALL_THREADS_MAX,
)
from threadlog.ports.usage import UsageFact
from threadlog.ports.views import (
    Judged,
    ThreadRow,
    ViewBatch,
)

_ACCEPTED = struct.Struct(">cIIIII16sQQ16s16sB")
_VOID = struct.Struct(">cIIQ16s")
_SNAPSHOT = struct.Struct(">cI")
_FACT = struct.Struct(">cII16sQ")
_ROW = struct.Struct(">cIIIB")
_NO_CAUSE = bytes(16)
_IS_INPUT, _HAS_CAUSE = 1, 2


@dataclass(slots=True)
class Call:
    """The keys and rows of one call."""

    meta: str
    keys: list[str] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    streams: set[str] = field(default_factory=set)
    size_bytes: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key(self.meta)

    def key(self, name: str) -> int:
        """The number of a key in this call."""
        number = self._numbers.get(name)
        if number is None:
            self.keys.append(name)
            number = self._numbers[name] = len(self.keys)
        return number

    def add(self, stream: str, head: bytes, body: bytes) -> None:
        """One more row, of this thread."""
        self.rows += (head, body)
        self.streams.add(stream)
        self.size_bytes += len(head) + len(body)

    def holds(self, stream: str, more: int) -> bool:
        """Whether a row of so many bytes, of this thread, still fits."""
        if not self.rows:
            return True
        is_new = stream not in self.streams
        fits = len(self.streams) + is_new <= VIEW_CALL_THREADS_MAX
        return fits and self.size_bytes + more <= VIEW_CALL_BYTES_MAX

    def arguments(self, batch: ViewBatch, channel: str, *, is_last: bool) -> list[Argument]:
        """The arguments of `apply.lua`."""
        target = batch.watermark if is_last else ""
        letters = len(batch.dead_letters) if is_last else 0
        head = [batch.expected, target, letters, RECENT_EVENTS_MAX, RECENT_IDLE_MS, channel]
        return [*head, *self.rows]


def calls_of(keys: Keys, batch: ViewBatch) -> list[Call]:
    """The calls that bring the batch in; only the last one moves the watermark."""
    calls = [Call(keys.meta)]
    for scope, body, head in _pieces(keys, batch):
        if not calls[-1].holds(scope.stream, len(body)):
            calls.append(Call(keys.meta))
        calls[-1].add(scope.stream, head(calls[-1]), body)
    last = [(keys.of(row.tenant_id, row.thread_id), row) for row in batch.threads]
    bodies = [rows.encode_row(row) for row in batch.threads]
    size = calls[-1].size_bytes + sum(map(len, bodies))
    streams = calls[-1].streams | {scope.stream for scope, _ in last}
    if calls[-1].rows and (size > VIEW_CALL_BYTES_MAX or len(streams) > VIEW_CALL_THREADS_MAX):
        calls.append(Call(keys.meta))
    for (scope, row), body in zip(last, bodies, strict=True):
        calls[-1].add(scope.stream, _row(calls[-1], scope, row), body)
    return calls


Piece = tuple[Keys, bytes, Callable[[Call], bytes]]


def _pieces(keys: Keys, batch: ViewBatch) -> Iterator[Piece]:
    """Everything but rows of threads: whose it is, its body, and its head in a given call."""
    for judged in batch.judged:
        scope = keys.of(judged.event.tenant_id, judged.event.thread_id)
        if judged.seq is None:
            yield scope, rows.encode_void(judged), partial(_void, scope=scope, judged=judged)
        else:
            line = rows.encode_event(judged.event)
            yield scope, line, partial(_accepted, scope=scope, judged=judged)
    for snapshot in batch.snapshots:
        scope = keys.of(snapshot.tenant_id, snapshot.thread_id)
        yield scope, rows.encode_snapshot(snapshot), partial(_snapshot, scope=scope)
    for fact in batch.usage:
        scope = keys.of(fact.tenant_id, fact.thread_id)
        yield scope, rows.encode_fact(fact), partial(_fact, scope=scope, fact=fact)


def _accepted(call: Call, *, scope: Keys, judged: Judged) -> bytes:
    event, seq = judged.event, judged.seq
    assert seq is not None
    flags = _IS_INPUT if event.idempotency_key is not None else 0
    if event.caused_by is not None:
        flags |= _HAS_CAUSE
    return _ACCEPTED.pack(
        b"J",
        call.key(scope.of_thread("idx")),
        call.key(scope.of_thread("ids")),
        call.key(scope.of_thread("recent")),
        call.key(scope.of_tenant("outside")),
        call.key(scope.of_tenant("streams")),
        packed(event.thread_id),
        judged.position,
        seq,
        packed(event.event_id),
        _NO_CAUSE if event.caused_by is None else packed(event.caused_by),
        flags,
    )


def _void(call: Call, *, scope: Keys, judged: Judged) -> bytes:
    return _VOID.pack(
        b"V",
        call.key(scope.of_thread("voids")),
        call.key(scope.of_thread("ids")),
        judged.position,
        packed(judged.event.event_id),
    )


def _snapshot(call: Call, *, scope: Keys) -> bytes:
    return _SNAPSHOT.pack(b"S", call.key(scope.of_thread("snap")))


def _fact(call: Call, *, scope: Keys, fact: UsageFact) -> bytes:
    return _FACT.pack(
        b"F",
        call.key(scope.of_thread("facts")),
        call.key(scope.of_tenant("streams")),
        packed(fact.thread_id),
        fact.position,
    )


def _row(call: Call, scope: Keys, row: ThreadRow) -> bytes:
    head = _ROW.pack(
        b"R",
        call.key(scope.of_thread("row")),
        call.key(scope.of_tenant("threads")),
        call.key(scope.open),
        row.status in ("open", "queued"),
    )
    return head + place_of(row.place) + scope.stream.encode()
