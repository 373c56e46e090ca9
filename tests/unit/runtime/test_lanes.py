"""Lanes: which one leaves memory, and what may be missing once it has."""

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.events import LOCAL, thread_id
from threadlog.ids import NO_POSITION, Position
from threadlog.runtime.lanes import Lane, Lanes
from threadlog.thread.state import ThreadState

Own = list[str]


def key(n: int) -> str:
    return f"{LOCAL}/{thread_id(n)}"


def filled(lanes_max: int, *positions: int) -> Lanes[Own]:
    """A lane for each position, opened in that order."""
    lanes: Lanes[Own] = Lanes(list, lanes_max)
    for n, position in enumerate(positions):
        lanes.open(ThreadState(LOCAL, thread_id(n))).position = Position(position)
    return lanes


def held(lanes: Lanes[Own]) -> list[int]:
    """The numbers of the lanes in memory."""
    numbers = {thread_id(n): n for n in range(100)}
    return [numbers[lane.thread_id] for lane in lanes]


def test_a_lane_is_found_by_its_record_key() -> None:
    lanes = filled(5, 1, 2)
    found = lanes.get(key(1))
    assert found is not None
    assert found.stream == (LOCAL, thread_id(1))
    assert lanes.get(key(2)) is None
    assert lanes.get("") is None


def test_nothing_leaves_while_there_is_room() -> None:
    lanes = filled(3, 10, 20, 30)
    assert lanes.evict(lambda lane: True) == NO_POSITION
    assert len(lanes) == 3


def test_the_least_recently_used_leave_and_the_highest_position_among_them_is_told() -> None:
    lanes = filled(2, 40, 10, 30, 20)
    lanes.get(key(1))
    assert lanes.evict(lambda lane: True) == 40
    assert held(lanes) == [3, 1]


def test_lanes_that_load_or_are_busy_stay() -> None:
    lanes = filled(1, 10, 20, 30, 40)
    loading = lanes.get(key(0))
    assert loading is not None
    loading.backlog = []
    assert lanes.evict(lambda lane: lane.thread_id != thread_id(1)) == 40
    assert sorted(held(lanes)) == [0, 1]
    assert lanes.evict(lambda lane: False) == NO_POSITION, "none could go"


@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.booleans()), max_size=12),
)
def test_no_lane_that_left_is_ahead_of_the_position_that_was_told(
    lanes_max: int, made: list[tuple[int, bool, bool]]
) -> None:
    lanes = filled(lanes_max, *(position for position, _, _ in made))
    before = list(lanes)
    idle = set[int]()
    for lane, (_, is_idle, is_loading) in zip(before, made, strict=True):
        lane.backlog = [] if is_loading else None
        if is_idle and not is_loading:
            idle.add(id(lane))

    def is_idle_lane(lane: Lane[Own]) -> bool:
        return id(lane) in idle

    told = lanes.evict(is_idle_lane)
    left = [lane for lane in before if lanes.get(f"{LOCAL}/{lane.thread_id}") is None]
    assert told == max((lane.position for lane in left), default=NO_POSITION)
    assert all(id(lane) in idle for lane in left)
    excess = max(len(before) - lanes_max, 0)
    assert len(left) == min(excess, len(idle)), "as many as must go, no more"
