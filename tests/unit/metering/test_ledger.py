"""Counting: each fact once, in the windows of its time, whoever counted before."""

from threadlog.limits import MINUTES_KEPT
from threadlog.metering.ledger import Ledger
from threadlog.metering.stall import Stall
from threadlog.metering.windows import Slot
from threadlog.ports.usage_log import UsageEntry, UsageRecord
from threadlog.telemetry.tenants import named_tenants

NOW_MS = 1_800_000_000_000
TOTAL = Slot("total", 0, "tenant")


def record(*offsets: int, at_ms: int = NOW_MS, topic_id: str = "log") -> UsageRecord:
    facts = tuple(
        UsageEntry(event_id=str(n), offset=n, at_ms=at_ms, kind="model", steps=1, input=10**n)
        for n in offsets
    )
    return UsageRecord(tenant_id="tenant", topic_id=topic_id, partition=0, facts=facts)


def ledger(writer: str = "one") -> Ledger:
    return Ledger("log", "facts", writer)


def told(one: Ledger, table: dict[str, object]) -> None:
    """The table is told what changed."""
    for key, value in one.changes(NOW_MS):
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


def test_F108_a_repeat_adds_nothing() -> None:
    one = ledger()
    assert one.take(0, 0, record(0, 1), NOW_MS)
    assert one.take(0, 1, record(0, 1, 2), NOW_MS)
    assert one.windows[TOTAL].sums["input"] == 111
    assert {window.sums["steps"] for window in one.windows.values()} == {3}


def test_F108_what_lies_behind_a_gap_is_not_counted_before_the_gap_is() -> None:
    one = ledger()
    assert one.take(0, 0, record(0), NOW_MS)
    assert not one.take(0, 2, record(2), NOW_MS)
    assert one.take(0, 1, record(1), NOW_MS)
    assert one.take(0, 2, record(2), NOW_MS)
    assert one.windows[TOTAL].sums["input"] == 111


def test_F108_a_writer_that_wakes_up_late_writes_over_nobody() -> None:
    table: dict[str, object] = {}
    old, new, third = ledger("old"), ledger("new"), ledger("third")
    old.recover(table)
    old.take(0, 0, record(0), NOW_MS)
    told(old, table)
    new.recover(table)
    new.take(0, 1, record(1), NOW_MS)
    new.take(0, 2, record(2), NOW_MS)
    told(new, table)
    old.take(0, 1, record(1), NOW_MS)
    told(old, table)
    third.recover(table)
    assert third.next_of(0) == 3
    assert third.windows[TOTAL].sums["input"] == 111


def test_windows_that_are_too_old_go_and_do_not_come_back() -> None:
    one, late_ms = ledger(), NOW_MS - MINUTES_KEPT * 60_000
    table: dict[str, object] = {}
    one.take(0, 0, record(0), late_ms)
    told(one, table)
    one.take(0, 1, record(1, at_ms=late_ms), NOW_MS)
    assert not any(s.span == "minute" and s.start == late_ms // 60_000 for s in one.windows)
    later_ms = NOW_MS + 500 * 86_400_000
    list(one.expired(later_ms))
    assert set(one.windows) == {TOTAL}


def test_facts_of_another_log_do_not_count() -> None:
    one = ledger()
    assert one.take(0, 0, record(0, topic_id="gone"), NOW_MS)
    assert one.windows == {}


def test_standing_still_is_told_only_while_there_is_something_to_do() -> None:
    stall = Stall(1_000)
    assert stall.sample(0, {0: 5}, is_waiting=True) is None
    assert stall.sample(999, {0: 5}, is_waiting=True) is None
    assert stall.sample(1_000, {0: 5}, is_waiting=True) == 1_000
    assert stall.sample(1_100, {0: 6}, is_waiting=True) is None
    assert stall.sample(9_000, {0: 6}, is_waiting=False) is None
    assert stall.sample(9_900, {0: 6}, is_waiting=True) is None


def test_tenants_beyond_the_bound_are_one() -> None:
    totals = {name: {"steps": n} for n, name in enumerate("abcd", 1)}
    assert named_tenants(totals, (), 2) == {
        "a": {"steps": 1},
        "b": {"steps": 2},
        "other": {"steps": 7},
    }
    assert named_tenants(totals, ("d",), 2) == {"other": {"steps": 6}, "d": {"steps": 4}}
