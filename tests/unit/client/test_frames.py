"""Frames out of bytes, in whatever pieces they come."""

import pytest

from threadlog.client.frames import Frame, FrameParser
from threadlog.errors import CorruptError
from threadlog.limits import CLIENT_FRAME_BYTES_MAX

WIRE = (
    b"retry: 1500\n\n"
    b":\n\n"
    b'id: 7\ndata: {"text":"gr\xc3\xbc\xc3\x9fe \xe2\x80\xa8 \x85"}\r\n\r\n'.replace(
        b"\x85", b"\xc2\x85"
    )
    + b"event: delta\r\ndata:one\r\ndata:  two\r\nunknown: x\r\nbare\r\n\r\n"
    b"\n\n"
    b"retry: soon\n\n"
    b"id: 8\ndata: cut off"
)
FRAMES = [
    Frame(retry_ms=1_500),
    Frame(id="7", data='{"text":"grüße \u2028 \u0085"}'),
    Frame(name="delta", data="one\n two"),
    Frame(),
]


def frames_of(wire: bytes, size: int) -> list[Frame]:
    """The frames in the wire, which comes in pieces of this size."""
    parser, found = FrameParser(), list[Frame]()
    for at in range(0, len(wire), size):
        found += parser.feed(wire[at : at + size])
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_pieces_of_any_size_are_the_same_frames(size: int) -> None:
    assert frames_of(WIRE, size) == FRAMES


@pytest.mark.parametrize(
    "wire",
    [
        b"data: \xff\n",
        b"x" * (CLIENT_FRAME_BYTES_MAX + 1),
        b"data: x\n" * (CLIENT_FRAME_BYTES_MAX // 7 + 1),
    ],
    ids=["no text", "a line without an end", "a frame without an end"],
)
def test_what_is_no_frame_is_refused(wire: bytes) -> None:
    with pytest.raises(CorruptError):
        frames_of(wire, 65_536)


def test_a_long_line_costs_what_it_is_long() -> None:
    """A line of 4 MB in pieces of 1 KB: scanned once, not once a piece."""
    parser = FrameParser()
    for _ in range(4_000):
        assert parser.feed(b"y" * 1_000) == []
    assert parser._scanned == 4_000_000
