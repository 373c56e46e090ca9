"""What every blob store promises."""

import asyncio
import hashlib

import pytest

from tests.helpers.events import LOCAL, OTHER
from threadlog.limits import MIB
from threadlog.ports.blobs import Blobs, SizedBlobs

CONTENT = b"\x00\xff bytes, not text \r\n" * 10


class BlobsSuite:
    """Inherit, and define the fixture `blobs`: an open, empty store."""

    survives_reopening = False
    can_alter = False
    """Whether `alter` can damage a stored content behind the store's back."""

    async def reopened(self) -> Blobs:
        raise NotImplementedError

    async def alter(self, sha256: str, content: bytes) -> None:
        raise NotImplementedError

    async def test_content_comes_back_by_its_hash(self, blobs: SizedBlobs) -> None:
        contents = [(CONTENT, "text/plain"), (b"", "application/octet-stream"), (b"x", "image/png")]
        references = await blobs.put(LOCAL, contents)
        for (content, media_type), ref in zip(contents, references, strict=True):
            assert ref.sha256 == hashlib.sha256(content).hexdigest()
            assert (ref.bytes, ref.media_type) == (len(content), media_type)
            assert await blobs.get(LOCAL, ref.sha256) == content
            assert await blobs.size(LOCAL, ref.sha256) == len(content)
            assert await blobs.size(OTHER, ref.sha256) is None

    async def test_nothing_in_nothing_out(self, blobs: SizedBlobs) -> None:
        assert await blobs.put(LOCAL, []) == []
        assert await blobs.get(LOCAL, "0" * 64) is None
        assert await blobs.size(LOCAL, "0" * 64) is None

    async def test_putting_again_is_harmless(self, blobs: SizedBlobs) -> None:
        contents = [(CONTENT, "text/plain"), (CONTENT, "text/plain")]
        first = await blobs.put(LOCAL, contents)
        again = await asyncio.gather(*(blobs.put(LOCAL, contents) for _ in range(20)))
        assert all(references == first for references in again)
        assert await blobs.get(LOCAL, first[0].sha256) == CONTENT

    async def test_a_hash_is_no_permission(self, blobs: SizedBlobs) -> None:
        [ref] = await blobs.put(LOCAL, [(CONTENT, "text/plain")])
        assert await blobs.get(OTHER, ref.sha256) is None
        [theirs] = await blobs.put(OTHER, [(CONTENT, "text/plain")])
        assert theirs == ref
        assert await blobs.get(OTHER, ref.sha256) == CONTENT

    async def test_large_contents_share_a_call(self, blobs: SizedBlobs) -> None:
        contents = [(bytes([n]) * (4 * MIB), "application/octet-stream") for n in range(3)]
        references = await blobs.put(LOCAL, contents)
        for (content, _), ref in zip(contents, references, strict=True):
            assert await blobs.get(LOCAL, ref.sha256) == content

    @pytest.mark.parametrize("altered", [b"", b"something else", CONTENT[:-1], CONTENT + b"\x00"])
    async def test_an_altered_content_is_not_served(self, blobs: Blobs, altered: bytes) -> None:
        if not self.can_alter:
            pytest.skip("no way to damage this store")
        [ref] = await blobs.put(LOCAL, [(CONTENT, "text/plain")])
        await self.alter(ref.sha256, altered)
        assert await blobs.get(LOCAL, ref.sha256) is None

    async def test_a_stored_content_survives(self, blobs: SizedBlobs) -> None:
        if not self.survives_reopening:
            pytest.skip("lives in one process")
        [ref] = await blobs.put(LOCAL, [(CONTENT, "text/plain")])
        again = await self.reopened()
        assert await again.get(LOCAL, ref.sha256) == CONTENT
