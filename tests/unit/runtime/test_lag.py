"""Lag: records behind, and how old the oldest one must be."""

from hypothesis import given
from hypothesis import strategies as st

from threadlog.ids import Partition, Position
from threadlog.runtime.lag import Lag, is_moving

P0, P1 = Partition(0), Partition(1)


def sampled(lag: Lag, now_s: float, end: int, done: int) -> tuple[int, float]:
    records, oldest_s = lag.sample(now_s, {P0: Position(end)}, {P0: Position(done)})
    return records[P0], oldest_s


def test_a_worker_at_the_end_is_not_behind() -> None:
    lag = Lag()
    assert sampled(lag, 1.0, 10, 10) == (0, 0.0)
    assert sampled(lag, 9.0, 10, 10) == (0, 0.0)
    assert sampled(lag, 10.0, 10, 12) == (0, 0.0), "the end may be an older answer"


def test_a_record_is_as_old_as_the_first_sample_that_saw_it() -> None:
    lag = Lag()
    assert sampled(lag, 1.0, 5, 5) == (0, 0.0)
    assert sampled(lag, 2.0, 8, 5) == (3, 0.0)
    assert sampled(lag, 4.0, 20, 5) == (15, 2.0)
    assert sampled(lag, 5.0, 20, 7) == (13, 3.0), "record 8 was there at 2.0"
    assert sampled(lag, 6.0, 20, 8) == (12, 2.0), "record 9 was not seen before 4.0"
    assert sampled(lag, 7.0, 20, 20) == (0, 0.0)


def test_nothing_was_done_yet_where_nobody_says_what_was() -> None:
    lag = Lag()
    records, oldest_s = lag.sample(0.0, {P0: Position(3)}, {})
    assert (records, oldest_s) == ({0: 3}, 0.0)
    records, oldest_s = lag.sample(2.0, {P0: Position(3)}, {})
    assert (records, oldest_s) == ({0: 3}, 2.0)


def test_F103_a_partition_with_nothing_to_do_is_not_stuck() -> None:
    at = Position(7)
    assert is_moving(Position(6), at, 3)
    assert is_moving(None, at, 3), "whoever takes it over has its time"
    assert is_moving(at, at, 0)
    assert not is_moving(at, at, 3)
    assert not is_moving(at, at, None), "nobody has asked yet what is left"


def test_the_oldest_of_all_partitions_counts_and_those_that_left_are_forgotten() -> None:
    lag = Lag()
    ends, done = {P0: Position(3), P1: Position(9)}, {P0: Position(3), P1: Position(4)}
    lag.sample(0.0, ends, done)
    records, oldest_s = lag.sample(5.0, {P0: Position(4), P1: Position(9)}, done)
    assert (records, oldest_s) == ({0: 1, 1: 5}, 5.0)
    records, oldest_s = lag.sample(6.0, {P0: Position(4)}, done)
    assert (records, oldest_s) == ({0: 1}, 1.0)
    _, oldest_s = lag.sample(7.0, {P1: Position(9)}, done)
    assert oldest_s == 0.0, "it came anew"


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60))
def test_the_age_is_that_of_the_first_sample_behind_what_is_done(
    moves: list[tuple[int, int]],
) -> None:
    lag, end, done, seen = Lag(), 0, 0, list[tuple[int, int]]()
    for now, (grown, handled) in enumerate(moves):
        end += grown
        done = min(done + handled, end)
        seen.append((end, now))
        records, oldest_s = sampled(lag, float(now), end, done)
        first = next((when for at, when in seen if at > done), None)
        assert records == end - done
        assert oldest_s == (0 if first is None else now - first)
