"""Slots: never more at a time than there are, and nobody who waits is forgotten."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from threadlog.tool_runner.slots import Slots


async def settled() -> None:
    """Everybody who was woken has looked, and whoever those left a place to."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_there_are_as_many_places_as_it_says() -> None:
    slots, woken = Slots(2), list[str]()
    taken = [slots.take(object(), lambda: woken.append("x")) for _ in range(3)]
    assert taken == [True, True, False]
    await settled()
    assert not woken


async def test_whoever_waits_is_woken_once_however_often_it_asked() -> None:
    slots, woken, lane = Slots(0), list[str](), object()
    slots.take(lane, lambda: woken.append("old"))
    slots.take(lane, lambda: woken.append("new"))
    slots.give_back()
    await settled()
    assert woken == ["new"]
    slots.give_back()
    await settled()
    assert woken == ["new"], "it must ask again to be woken again"


async def test_a_place_that_the_first_does_not_need_any_more_is_offered_to_the_next() -> None:
    slots, woken = Slots(1), list[str]()
    slots.take(object(), lambda: None)
    lanes = {name: object() for name in "abc"}

    def wake(name: str) -> None:
        woken.append(name)
        if name == "b":
            assert slots.take(lanes[name], lambda: None)

    for name, lane in lanes.items():
        assert not slots.take(lane, lambda name=name: wake(name))  # type: ignore[misc]  # bound now
    slots.give_back()
    assert woken == ["a"], "one place, one that looks"
    await settled()
    assert woken == ["a", "b"], "c waits on: b has the place"
    slots.give_back()
    await settled()
    assert woken == ["a", "b", "c"]


async def test_one_that_looks_a_round_later_is_not_overtaken_by_those_behind_it() -> None:
    """Lanes look by themselves, once the round of the loop is done."""
    slots, got = Slots(0), list[str]()
    loop = asyncio.get_running_loop()
    lanes = {"a": object(), "b": object()}

    def ask(name: str) -> None:
        def wake() -> None:
            loop.call_soon(ask, name)

        if slots.take(lanes[name], wake):
            got.append(name)

    ask("a")
    ask("b")
    slots.give_back()
    await settled()
    assert got == ["a"]
    slots.give_back()
    await settled()
    assert got == ["a", "b"]


@given(st.integers(1, 4), st.lists(st.one_of(st.integers(0, 5), st.none()), max_size=60))
def test_never_more_than_there_are_and_a_free_place_is_never_withheld(
    slots_max: int, moves: list[int | None]
) -> None:
    """A number: this lane asks once more; None: whoever has a place longest gives it back."""

    async def play() -> None:
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
            await settled()
            assert len(has) == slots_max or not any(wants)

    asyncio.run(play())
