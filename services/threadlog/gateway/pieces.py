"""A stream in pieces of about what is written at once: not many small ones, not one large one."""

from collections.abc import AsyncIterator

from threadlog.gateway.frames import EventFrame, event_frame
from threadlog.limits import WRITE_PIECE_BYTES
from threadlog.ports.views import StoredEvent


async def joined(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, in as few pieces as are written at once."""
    waiting: list[bytes] = []
    size = 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= WRITE_PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def fitting(page: list[StoredEvent], wanted: int) -> tuple[list[EventFrame], bool]:
    """The first of these as frames, and whether there are no others now.

    Only as many as are written at once: a client that does not read holds them for as long as that.
    """
    pieces: list[EventFrame] = []
    size = 0
    for stored in page:
        if size >= WRITE_PIECE_BYTES:
            return pieces, False
        pieces.append(event_frame(stored))
        size += len(pieces[-1].data)
    return pieces, len(page) < wanted
