"""The blob port: large content, addressed by tenant and sha256. A hash is no permission."""

from collections.abc import Sequence
from typing import Protocol

from threadlog.events.content import BlobRef
from threadlog.ids import TenantId


class Blobs(Protocol):
    """A content-addressed store."""

    async def put(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        """Every (content, media type) is stored, durable on return; references in that order.

        Effects: repeating it stores nothing twice and refreshes the time it was last touched.
        Raises:  TransientError: unknown what was stored; put the same again.
        """
        ...

    async def get(self, tenant: TenantId, sha256: str) -> bytes | None:
        """The content, or None when the tenant has none or its bytes no longer match the hash."""
        ...


class SizedBlobs(Blobs, Protocol):
    """A store that is near: it can say how large a content is before it is read."""

    async def size(self, tenant: TenantId, sha256: str) -> int | None:
        """How many bytes the content has, without reading it; None: the tenant has none."""
        ...
