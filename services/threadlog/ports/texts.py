"""Large texts out of events: what every writer of events does with the blob port."""

from collections.abc import Sequence

from threadlog.events.content import Text
from threadlog.ids import TenantId
from threadlog.limits import INLINE_BYTES_MAX
from threadlog.ports.blobs import Blobs

_TEXT = "text/plain; charset=utf-8"


async def store_texts(blobs: Blobs, tenant: TenantId, texts: Sequence[str]) -> list[Text]:
    """The texts, the largest of them as references until the rest fits `INLINE_BYTES_MAX`.

    Effects: references are durable in the blob store on return.
    """
    sizes = [len(text.encode("utf-8", "surrogatepass")) for text in texts]
    left = sum(sizes)
    large: list[int] = []
    for at in sorted(range(len(texts)), key=sizes.__getitem__, reverse=True):
        if left <= INLINE_BYTES_MAX:
            break
        large.append(at)
        left -= sizes[at]
    if not large:
        return list(texts)
    encoded = [(texts[at].encode("utf-8", "replace"), _TEXT) for at in large]
    refs = await blobs.put(tenant, encoded)
    stored: list[Text] = list(texts)
    for at, ref in zip(large, refs, strict=True):
        stored[at] = ref
    return stored
