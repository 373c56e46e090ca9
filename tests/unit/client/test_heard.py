"""Pieces that are handed on make the text, whatever was lost or comes twice."""

from collections.abc import Sequence

import pytest

from threadlog.client.heard import Heard
from threadlog.ids import CallId, TurnId
from threadlog.ports.notify import LiveDelta, SoFar

TURN = TurnId("t")


def piece(n: int, text: str, *, attempt: int = 1, kind: str = "text") -> LiveDelta:
    return LiveDelta(TURN, 1, attempt, n, kind, text)


def so_far(n: int, text: str, thinking: str = "", *, attempt: int = 1) -> SoFar:
    return SoFar(TURN, 1, attempt, n, text, thinking)


def shown(given: Sequence[LiveDelta | SoFar]) -> str:
    """The text that somebody has who begins anew at number 0, as the command line does."""
    heard, text = Heard(), ""
    for each in given:
        pieces = (
            heard.so_far(each)
            if isinstance(each, SoFar)
            else [p for p in (heard.delta(each),) if p is not None]
        )
        for p in pieces:
            if p.kind == "text":
                text = p.text if p.n == 0 else text + p.text
    return text


@pytest.mark.parametrize(
    "given",
    [
        (piece(0, "a"), piece(1, "b"), piece(2, "c")),
        (so_far(2, "ab"), piece(2, "c")),
        (piece(0, "a"), so_far(2, "ab"), piece(2, "c")),
        (piece(0, "a"), piece(1, "b"), so_far(2, "ab"), piece(1, "b"), piece(2, "c")),
        (piece(0, "a"), piece(1, "b"), piece(2, "c"), so_far(1, "a")),
        (piece(0, "a"), piece(2, "c"), so_far(3, "abc")),
        (piece(1, "b"), so_far(2, "ab"), piece(2, "c")),
        (piece(0, "x"), piece(0, "a", attempt=2), so_far(3, "abc", attempt=2)),
        (so_far(3, "ab", "hm"), piece(3, "c")),
        (piece(0, "hm", kind="thinking"), piece(1, "a"), so_far(4, "abc", "hm!")),
    ],
)
def test_joined_pieces_are_the_text(given: tuple[LiveDelta | SoFar, ...]) -> None:
    assert shown(given) == "abc"


def test_a_hole_stays_one_until_it_is_known() -> None:
    assert shown((piece(0, "a"), piece(2, "c"))) == "ac"


def test_output_of_calls_passes() -> None:
    heard = Heard()
    output = LiveDelta(TURN, 1, 1, 0, "output", "x", CallId("c"))
    assert [heard.delta(output), heard.delta(output)] == [output, output]
