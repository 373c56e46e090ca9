"""What every store of snapshots promises: the last one stored with a batch that was applied."""

from tests.contract.views_suite import Parts, apply
from tests.helpers.events import LOCAL, OTHER, thread_id
from threadlog.ids import Position, Seq, TenantId
from threadlog.ports.snapshots import Snapshot
from threadlog.ports.views import ViewBatch


def snapshot(seq: int, *, thread: int = 0, tenant: TenantId = LOCAL) -> Snapshot:
    return Snapshot(
        tenant_id=tenant,
        thread_id=thread_id(thread),
        seq=Seq(seq),
        position=Position(seq + 1),
        fold_version="fold/1",
        sha256=f"{seq:064x}",
        state=b'{"bytes":"\xff\x00 as they are"}' * seq,
    )


class SnapshotsSuite:
    """Inherit, and define the fixture `parts`."""

    async def test_the_newest_snapshot_of_each_thread_is_served(self, parts: Parts) -> None:
        newest = parts.snapshots.newest
        assert await newest(LOCAL, thread_id(0)) is None
        first = [snapshot(1), snapshot(2, thread=1), snapshot(3, tenant=OTHER)]
        await apply(parts, ViewBatch(Position(0), Position(5), snapshots=first))
        await apply(parts, ViewBatch(Position(0), Position(9), snapshots=[snapshot(64)]))
        assert await newest(LOCAL, thread_id(0)) == snapshot(64)
        assert await newest(LOCAL, thread_id(1)) == snapshot(2, thread=1)
        assert await newest(OTHER, thread_id(0)) == snapshot(3, tenant=OTHER)
        assert await newest(OTHER, thread_id(1)) is None

    async def test_of_two_in_one_batch_the_later_is_served(self, parts: Parts) -> None:
        both = [snapshot(1), snapshot(2)]
        await apply(parts, ViewBatch(Position(0), Position(5), snapshots=both))
        assert await parts.snapshots.newest(LOCAL, thread_id(0)) == snapshot(2)

    async def test_a_batch_that_is_not_applied_stores_none(self, parts: Parts) -> None:
        batch = ViewBatch(Position(8), Position(9), snapshots=[snapshot(1)])
        assert await parts.partition.apply(batch, urgent=True) == 0
        assert await parts.snapshots.newest(LOCAL, thread_id(0)) is None

    async def test_a_large_state_comes_back_whole(self, parts: Parts) -> None:
        await apply(parts, ViewBatch(Position(0), Position(1), snapshots=[snapshot(20_000)]))
        assert await parts.snapshots.newest(LOCAL, thread_id(0)) == snapshot(20_000)
