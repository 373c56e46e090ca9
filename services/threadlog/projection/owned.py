"""The projection on one partition of a log that several projections share."""

from threadlog.ids import NO_POSITION, Position
from threadlog.projection.service import Projection


class OwnedProjection:
    """Implements `runtime.assignment.PartitionService`.

    It goes on from the stored watermark; what the group has committed serves lag alone. Of two that
    both believe to own the partition, the compare-and-set of the watermark lets one win each batch.
    """

    is_busy = False

    def __init__(self, projection: Projection) -> None:
        self.projection = projection

    async def run(self, committed: Position | None) -> None:
        """Keeps the views of the partition, which were at least where the group has committed."""
        await self.projection.run(committed or NO_POSITION)

    async def let_go(self) -> Position | None:
        """Whoever comes next goes on from the stored watermark."""
        return self.commit_point

    def take_back(self, committed: Position | None) -> None:
        """Never called: it is never busy, so it ends when it is let go."""

    async def drain(self, timeout_ms: int) -> None:
        """Nothing of a projection runs outside."""

    @property
    def is_ready(self) -> bool:
        """Whether it has begun."""
        return self.projection.has_begun

    @property
    def commit_point(self) -> Position | None:
        """The watermark."""
        return self.projection.watermark if self.is_ready else None
