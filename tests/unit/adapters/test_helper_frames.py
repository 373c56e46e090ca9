"""What the helper is told and answers arrives whole, or is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadlog.adapters.sandbox.helper_frames import pack, unpack

fields = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.binary())


@given(fields)
def test_frames_come_back_as_they_were(sent: dict[str, bytes]) -> None:
    assert unpack(pack(sent)) == sent


@given(fields)
def test_frames_cut_anywhere_are_refused(sent: dict[str, bytes]) -> None:
    data = pack(sent)
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"frame|subsection|decode"):
            unpack(data[:end])


@pytest.mark.parametrize(
    "data", [b"", b"x", b"-3:", b":", b"1:", b"3:en", b"3:end1:", b"2:no", b"1:\xff1:x3:end"]
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"frame|subsection|decode"):
        unpack(data)
