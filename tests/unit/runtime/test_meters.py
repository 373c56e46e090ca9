"""What is counted of appends and of what a service does, and what strangers cannot break."""

from typing import get_args

import pytest

from tests.helpers.events import message, thread_id
from tests.helpers.fakes import FaultyLog
from tests.unit.telemetry.test_metrics import Samples, samples
from threadlog.adapters.memory.log import MemoryLog
from threadlog.bootstrap.metered import MeteredLog
from threadlog.clock import ManualClock
from threadlog.errors import LogUnavailableError, RejectedError, TransientError
from threadlog.ids import Position
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.service import ServiceMeter
from threadlog.telemetry.table import MismatchPlace

NOW_MS = 1_790_000_000_000


async def test_appends_are_counted_by_type_and_failures_by_what_is_known_of_them() -> None:
    metrics, inner = Metrics(), MemoryLog()
    faulty = FaultyLog(inner)
    log = MeteredLog(faulty, metrics, "planner", ManualClock())
    event = message("hello", thread_id())
    await log.append([event, event])
    for fault, error in (
        ("refused", RejectedError),
        ("lost", TransientError),
        ("full", LogUnavailableError),
        ("unacknowledged", TransientError),
    ):
        faulty.faults.append(fault)  # type: ignore[arg-type]  # one of them
        with pytest.raises(error):
            await log.append([event])
    found = samples(metrics)
    assert found["threadlog_events_appended_total"] == {("planner", "message.received"): 2}
    assert found["threadlog_event_append_duration_seconds_count"] == {("planner",): 1}
    assert found["threadlog_event_append_errors_total"] == {
        ("rejected", "planner"): 1,
        ("unavailable", "planner"): 3,
    }
    assert await log.end() == await inner.end() == 3
    assert await anext(aiter(log.subscribe(Position(1)))) == inner.entries[1:]


def metered() -> tuple[Metrics, ServiceMeter]:
    metrics = Metrics()
    return metrics, ServiceMeter(metrics, "projection", lambda: NOW_MS)


HOP = "threadlog_event_end_to_end_seconds"


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z", "9" * 64, "\x00"]
)
def test_a_time_that_nobody_can_read_is_not_counted_and_breaks_nothing(text: str) -> None:
    metrics, meter = metered()
    meter.in_view(text)
    assert f"{HOP}_count" not in samples(metrics)


def test_a_time_is_counted_and_one_of_a_clock_ahead_is_none_at_all() -> None:
    metrics, meter = metered()
    meter.in_view("2026-09-21T14:13:18Z")
    meter.in_view("2026-09-21T23:00:00+00:00")
    found: Samples = samples(metrics)
    assert found[f"{HOP}_count"] == {("append_to_view",): 2}
    assert found[f"{HOP}_sum"] == {("append_to_view",): 2.0}


def test_a_snapshot_that_is_too_new_counts_as_behind_and_one_that_does_not_match_is_an_alarm() -> (
    None
):
    metrics, meter = metered()
    for result in ("hit", "miss", "ahead", "mismatch"):
        meter.loaded(result, 0.5, 7)
    found = samples(metrics)
    reads = {labels[0]: value for labels, value in found["threadlog_snapshot_reads_total"].items()}
    assert reads == {"hit": 1, "miss": 1, "behind": 1, "mismatch": 1}
    assert list(found["threadlog_snapshot_mismatches_total"].values()) == [1]
    assert list(found["threadlog_refold_duration_seconds_count"].values()) == [4]


def test_only_a_key_that_disagrees_is_a_tenant_met_elsewhere() -> None:
    metrics, meter = metered()
    places = {(where,): 0 for where in get_args(MismatchPlace)}
    assert samples(metrics)["threadlog_tenant_mismatch_total"] == places
    for reason in ("no_envelope", "invalid", "stopped", "failed", "key"):
        meter.dead_letter(reason)
    found = samples(metrics)
    assert found["threadlog_tenant_mismatch_total"] == places | {("record",): 1}
    assert sum(found["threadlog_dead_letters_total"].values()) == 5


def test_a_judgement_is_counted_with_its_outcome_and_its_time() -> None:
    metrics, meter = metered()
    meter.judged("message.received", None, 0.25)
    meter.judged("message.received", "repeat", 0.5)
    found = samples(metrics)
    outcomes = found["threadlog_events_processed_total"]
    assert list(outcomes.values()) == [1, 1]
    assert {"accepted", "void"} <= {value for labels in outcomes for value in labels}
    assert sum(found["threadlog_event_processing_duration_seconds_sum"].values()) == 0.75
