"""The blobs port in memory."""

from collections.abc import Sequence
from hashlib import sha256 as digest

from threadlog.events.content import BlobRef
from threadlog.ids import TenantId


class MemoryBlobs:
    """Implements `ports.blobs.Blobs`. `contents` may be altered by tests."""

    def __init__(self) -> None:
        self.contents: dict[tuple[TenantId, str], bytes] = {}

    async def put(self, tenant: TenantId, contents: Sequence[tuple[bytes, str]]) -> list[BlobRef]:
        references = []
        for content, media_type in contents:
            sha256 = digest(content).hexdigest()
            self.contents.setdefault((tenant, sha256), content)
            references.append(BlobRef(sha256=sha256, bytes=len(content), media_type=media_type))
        return references

    async def size(self, tenant: TenantId, sha256: str) -> int | None:
        content = self.contents.get((tenant, sha256))
        return None if content is None else len(content)

    async def get(self, tenant: TenantId, sha256: str) -> bytes | None:
        content = self.contents.get((tenant, sha256))
        if content is None or digest(content).hexdigest() != sha256:
            return None
        return content
