"""Slots: never more at a time than there are, and nobody who waits is forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from threadlog.tool_runner.slots import Slots


def test_there_are_as_many_places_as_it_says() -> None:
    slots, woken = Slots(2), list[str]()
    assert [slots.take(object(), lambda: woken.append("x")) for _ in range(3)] == [
        True,
        True,
        False,
    ]
    assert not woken


def test_whoever_waits_is_woken_once_however_often_it_asked() -> None:
    slots, woken, lane = Slots(0), list[str](), object()
    slots.take(lane, lambda: woken.append("old"))
    slots.take(lane, lambda: woken.append("new"))
    slots.give_back()
    assert woken == ["new"]
    slots.give_back()
    assert woken == ["new"], "it must ask again to be woken again"


def test_all_who_wait_are_woken_for_the_first_may_not_need_it_any_more() -> None:
    slots, woken = Slots(1), list[str]()
    lanes = {name: object() for name in "abc"}
    slots.take(object(), lambda: None)
    for name, lane in lanes.items():
        assert not slots.take(lane, lambda name=name: woken.append(name))  # type: ignore[misc]  # bound now
    slots.give_back()
    assert woken == ["a", "b", "c"]
    assert slots.take(lanes["c"], lambda: None)
    assert not slots.take(lanes["a"], lambda: None)


def test_one_who_asks_again_while_it_is_woken_waits_for_the_next_place() -> None:
    slots = Slots(0)
    got: list[str] = []
    lanes = {"a": object(), "b": object()}

    def ask(name: str) -> None:
        if slots.take(lanes[name], lambda: ask(name)):
            got.append(name)

    ask("a")
    ask("b")
    slots.give_back()
    assert got == ["a"]
    slots.give_back()
    assert got == ["a", "b"]


@given(st.integers(1, 4), st.lists(st.one_of(st.integers(0, 5), st.none()), max_size=60))
def test_never_more_than_there_are_and_a_free_place_is_never_withheld(
    slots_max: int, moves: list[int | None]
) -> None:
    """A number: this lane asks once more; None: whoever has a place longest gives it back."""
    slots = Slots(slots_max)
    lanes = [object() for _ in range(6)]
    wants, has = [0] * 6, list[int]()

    def ask(n: int) -> None:
        while wants[n] and slots.take(lanes[n], lambda: ask(n)):
            wants[n] -= 1
            has.append(n)

    for move in moves:
        if move is not None:
            wants[move] += 1
            ask(move)
        elif has:
            has.pop(0)
            slots.give_back()
        assert len(has) <= slots_max
        assert len(has) == slots_max or not any(wants)
