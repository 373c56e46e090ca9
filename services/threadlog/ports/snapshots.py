"""The snapshots port: state at a seq, disposable. A snapshot that does not fit is never served."""

from dataclasses import dataclass
from typing import Protocol

from threadlog.ids import Position, Seq, TenantId, ThreadId


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, and what it is the state of.

    Shapes:  `state` is the canonical JSON of the state after every record up to and including
             `position`, of which the last accepted one has `seq`; `sha256` is its hash;
             `fold_version` names the fold and catalog that made it.
    """

    tenant_id: TenantId
    thread_id: ThreadId
    seq: Seq
    position: Position
    fold_version: str
    sha256: str
    state: bytes


class Snapshots(Protocol):
    """The newest snapshot of each thread. They are stored through `views.PartitionViews.apply`."""

    async def newest(self, tenant: TenantId, thread: ThreadId) -> Snapshot | None:
        """The newest stored snapshot, unchecked: the loader compares version and hash."""
        ...
