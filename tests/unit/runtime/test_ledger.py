"""The ledger: the commit point never passes an open record, whatever the order of events."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from threadlog.ids import Position
from threadlog.runtime.ledger import Ledger


def test_an_empty_ledger_stands_where_its_reading_began() -> None:
    ledger = Ledger(Position(7))
    assert (ledger.commit_point, ledger.open_count) == (7, 0)


def test_records_without_consequences_are_done_when_they_are_handed_out() -> None:
    ledger = Ledger(Position(0))
    ledger.see(Position(5))
    assert ledger.commit_point == 5
    ledger.see(Position(3))
    assert ledger.commit_point == 5, "it does not go back"


def test_the_commit_point_lies_before_the_lowest_open_record() -> None:
    ledger = Ledger(Position(0))
    ledger.open(Position(4))
    ledger.open(Position(6))
    ledger.see(Position(9))
    assert (ledger.commit_point, ledger.open_count) == (3, 2)
    ledger.close(Position(4))
    assert ledger.commit_point == 5
    ledger.close(Position(6))
    assert (ledger.commit_point, ledger.open_count) == (9, 0)


def test_a_record_with_two_consequences_is_open_until_both_are_acknowledged() -> None:
    ledger = Ledger(Position(0))
    ledger.open(Position(4))
    ledger.open(Position(4))
    ledger.see(Position(9))
    ledger.close(Position(4))
    assert ledger.commit_point == 3
    ledger.close(Position(4))
    assert ledger.commit_point == 9


def test_the_commit_point_never_goes_back_to_a_record_that_it_has_passed() -> None:
    """What a retry or a late outcome appends follows from state, not from that record."""
    ledger = Ledger(Position(0))
    ledger.see(Position(9))
    assert not ledger.open(Position(9))
    assert (ledger.commit_point, ledger.open_count) == (9, 0)
    assert ledger.open(Position(10))


def test_what_is_open_behind_everything_seen_moves_nothing_forward() -> None:
    """Records that are still to come are held back before they are there."""
    ledger = Ledger(Position(5))
    ledger.open(Position(6))
    assert ledger.commit_point == 5
    ledger.see(Position(8))
    assert ledger.commit_point == 5
    ledger.close(Position(6))
    assert ledger.commit_point == 8


@given(st.lists(st.integers(1, 40)), st.integers(0, 40), st.randoms(use_true_random=False))
def test_once_all_is_closed_everything_seen_is_done(opened: list[int], seen: int, rng) -> None:  # type: ignore[no-untyped-def]  # a random.Random of hypothesis
    ledger = Ledger(Position(0))
    for position in opened:
        assert ledger.open(Position(position))
    ledger.see(Position(seen))
    rng.shuffle(opened)
    for position in opened:
        assert ledger.commit_point < position
        ledger.close(Position(position))
    assert (ledger.commit_point, ledger.open_count) == (seen, 0)


class Epochs(RuleBasedStateMachine):
    """One partition: records come, are opened and closed in any order, and epochs begin anew.

    The model is a list of what is open in each epoch; a completion knows the ledger that it opened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.position = 0
        self.ledgers = [Ledger(Position(0))]
        self.open: list[tuple[int, int]] = []
        self.last = 0

    @rule(count=st.integers(1, 5), opened=st.sets(st.integers(0, 4)))
    def records_come(self, count: int, opened: set[int]) -> None:
        """Some of the records of a batch have consequences when it was handed out."""
        for at in sorted(self.position + 1 + n for n in opened if n < count):
            assert self.ledgers[-1].open(Position(at))
            self.open.append((len(self.ledgers) - 1, at))
        self.position += count
        self.ledgers[-1].see(Position(self.position))

    @rule(ago=st.integers(0, 10))
    def a_record_has_consequences(self, ago: int) -> None:
        at = max(self.position - ago, 1)
        before = self.ledgers[-1].commit_point
        if self.ledgers[-1].open(Position(at)):
            self.open.append((len(self.ledgers) - 1, at))
        assert self.ledgers[-1].commit_point == before, "it never goes back"

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def one_is_acknowledged(self, data: st.DataObject) -> None:
        epoch, at = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        before = self.ledgers[-1].commit_point
        self.ledgers[epoch].close(Position(at))
        if epoch != len(self.ledgers) - 1:
            assert self.ledgers[-1].commit_point == before, "an old epoch moves nothing"

    @rule()
    def the_partition_is_owned_anew(self) -> None:
        self.ledgers.append(Ledger(Position(self.position)))

    @invariant()
    def no_commit_point_passes_an_open_record(self) -> None:
        for epoch, ledger in enumerate(self.ledgers):
            mine = Counter(at for e, at in self.open if e == epoch)
            assert ledger.open_count == len(mine)
            assert all(ledger.commit_point < at for at in mine)
            assert ledger.commit_point <= self.position
        if not any(epoch == len(self.ledgers) - 1 for epoch, _ in self.open):
            assert self.ledgers[-1].commit_point == self.position, "and it is not behind for ever"


TestEpochs = Epochs.TestCase
