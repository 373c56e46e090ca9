"""Names and shapes of everything stored in Redis. Pure.

All keys of a partition begin with `{<topic>:<partition>}:v1:`. The braces put them on one node, so
that one script may move them together; `v1` names this format. A tenant is [a-z0-9-] and a thread
id is UUID text, so `tenant:thread` joins without ambiguity; no other id stands in a key.

===================  ======  ==================================================================
`meta`               hash    watermark, whose log and fold, `rebuilding_until`, dead letters counted
`open`               set     `tenant:thread` of every open or queued thread
`threads:<tenant>`   zset    places of threads by last activity, all of score 0: ordered by bytes
`streams:<tenant>`   zset    threads with an accepted event or a usage fact, as 16 bytes
`outside:<tenant>`   zset    cause, thread, seq, position of effects whose cause is not known to
                             be an earlier accepted event of their own thread
`row:<thread>`       hash    `row`: JSON, `place`: where it stands in `threads`
`snap:<thread>`      string  a line of JSON, then the state
`idx:<thread>`       string  entry n of accepted event n, `ENTRY` bytes
`ids:<thread>`       hash    event id -> position of the first copy, seq + 1; of inputs and voids
`voids:<thread>`     zset    JSON [position, event id, reason], scored by position
`recent:<thread>`    stream  `<seq>-1` -> envelope and body; the newest ones only
`facts:<thread>`     hash    position -> JSON
`said:<thread>`      string  the pieces of the newest response while it streams; expires
===================  ======  ==================================================================
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from threadlog import ids
from threadlog.ids import EventId, Partition, Position, Seq, TenantId, ThreadId
from threadlog.ports.log import LogIdentity
from threadlog.ports.views import ThreadPlace

FORMAT = 2
ENTRY = 32
OUTSIDE = 0xFFFF_FFFF_FFFF_FFFF
"""The cause of an entry that names one which is not known in its thread."""
_ENTRY = struct.Struct(">QQ16s")
_PLACE = struct.Struct(">QQ16s")
_EFFECT = struct.Struct(">16s16sQQ")
_KNOWN = struct.Struct(">QQ")
PLACE_BYTES = _PLACE.size
_TIME_MAX = 2**63


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted event in its thread's index.

    Shapes:  `cause` None: it has none, or none that is known in this thread; `is_outside` then says
             that it names one.
    """

    seq: Seq
    position: Position
    event_id: EventId
    cause: Seq | None
    is_outside: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """An accepted event whose cause has to be looked for."""

    thread: ThreadId
    seq: Seq
    position: Position


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one partition."""

    prefix: str
    tenant: str = ""
    stream: str = ""

    @property
    def meta(self) -> str:
        """The hash that every read looks at first."""
        return f"{self.prefix}meta"

    @property
    def open(self) -> str:
        """The set of open and queued threads."""
        return f"{self.prefix}open"

    @property
    def moved(self) -> str:
        """The channel on which every new watermark is told."""
        return f"{self.prefix}moved"

    @property
    def live(self) -> str:
        """The channel of the thread."""
        return self.of_thread("live")

    def of(self, tenant: TenantId, thread: ThreadId | None = None) -> "Keys":
        """The same with the names of this tenant and thread."""
        return Keys(self.prefix, tenant, "" if thread is None else f"{tenant}:{thread}")

    def of_tenant(self, family: str) -> str:
        """`threads`, `streams` or `outside` of the tenant."""
        return f"{self.prefix}{family}:{self.tenant}"

    def of_thread(self, family: str) -> str:
        """`row`, `snap`, `idx`, `ids`, `voids`, `recent`, `facts` or `said` of the thread."""
        return f"{self.prefix}{family}:{self.stream}"


def keys_of(identity: LogIdentity, partition: Partition) -> Keys:
    """The keys of a partition of this log."""
    return Keys(f"{{{identity.topic}:{partition}}}:v{FORMAT}:")


def home_of(identity: LogIdentity, tenant: TenantId, thread: ThreadId) -> Partition:
    """The partition that holds the thread."""
    return ids.partition_of(f"{tenant}/{thread}", identity.partitions)


def packed(uuid_text: str) -> bytes:
    """The 16 bytes of an id. Inverse of `ids.uuid_text`."""
    return bytes.fromhex(uuid_text.replace("-", ""))


def entries(first: int, data: bytes) -> Iterator[Entry]:
    """The entries in this piece of an index, of which the first one has seq `first`."""
    whole = len(data) - len(data) % ENTRY
    for n, (position, cause, event_id) in enumerate(_ENTRY.iter_unpack(data[:whole])):
        is_outside = cause == OUTSIDE
        known = None if is_outside or not cause else Seq(cause - 1)
        name = EventId(ids.uuid_text(event_id))
        yield Entry(Seq(first + n), Position(position), name, known, is_outside)


def known_of(data: bytes) -> tuple[Position, Seq | None]:
    """What `ids` says of an event: where its first copy lies, and its seq if it was accepted."""
    first, following = _KNOWN.unpack(data)
    return Position(first), Seq(following - 1) if following else None


def effect_of(member: bytes) -> Effect:
    """A member of `outside`."""
    _, thread, seq, position = _EFFECT.unpack(member)
    return Effect(ThreadId(ids.uuid_text(thread)), Seq(seq), Position(position))


def effects_range(cause: EventId) -> tuple[bytes, bytes]:
    """The bounds between which the effects of `cause` stand in `outside`."""
    name = packed(cause)
    return b"[" + name, b"[" + name + b"\xff" * (_EFFECT.size - len(name) + 1)


def place_of(place: ThreadPlace) -> bytes:
    """Where a thread stands among its tenant's threads: by time, then by position, then by id.

    So no two threads share a place and a page can begin right behind any row, in any partition.
    """
    at = min(max(_milliseconds(place.updated_at), 0), _TIME_MAX)
    return _PLACE.pack(at, place.position, packed(place.thread_id))


def thread_at(place: bytes) -> ThreadId:
    """The thread that stands at a place."""
    return ThreadId(ids.uuid_text(_PLACE.unpack(place)[2]))


def _milliseconds(text: str) -> int:
    """Milliseconds of RFC 3339 text; 0 where a foreign writer's text is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    try:
        return int(time.timestamp() * 1_000)
    except OverflowError:
        return 0
