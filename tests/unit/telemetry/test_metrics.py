"""Every metric of the table can be moved, and no text from an event becomes a label."""

import re
import threading
from typing import get_args

import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from threadlog.events.catalog import CATALOG_DIGEST
from threadlog.events.content import ModelRef, Usage
from threadlog.telemetry.gateway import HttpMeter
from threadlog.telemetry.metrics import Metrics
from threadlog.telemetry.owners import owners
from threadlog.telemetry.planner import TurnMeter
from threadlog.telemetry.table import ROWS, MismatchPlace, Name, Service
from threadlog.thread.state import FOLD_VERSION
from threadlog.version import VERSION

MODEL = ModelRef(provider="openai", name="gpt-x")
Samples = dict[str, dict[tuple[str, ...], float]]


def samples(metrics: Metrics) -> Samples:
    """Name of a sample -> the values of its labels -> its value; buckets left out."""
    found: Samples = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def moved() -> Metrics:
    """Metrics of which each was moved at least once."""
    metrics = Metrics(revision="abc123")
    metrics.appended("planner", ["turn.started", "step.started", "turn.started"], 0.02)
    metrics.append_failed("planner", "unavailable")
    metrics.processed("projection", "turn.started", "accepted", seconds=0.25)
    metrics.processed("projection", "turn.started", "void")
    metrics.lanes("planner", 7)
    metrics.window("planner", 3)
    metrics.claim("planner", "used")
    metrics.set_lag("g", "t", {0: 5, 3: 11}, 1.5)
    metrics.progress("g", 3, 1_790_000_000.0)
    metrics.rebalanced("g")
    metrics.reached_view(0.05)
    metrics.snapshot_read("hit")
    metrics.mismatch()
    metrics.refolded(0.5, 640)
    metrics.dead_letter("projection", "invalid")
    metrics.tenant_mismatch("record")
    http = HttpMeter(metrics)
    http.began()
    http.answered("/v1/info", "GET", 200, 0.01)
    http.answered("/v1/info", "BREW", 405, 0.01)
    http.stream_began("cold")
    http.stream_ended("client")
    http.frame_dropped("delta")
    http.rejected("requests")
    metrics.up("kafka", True)
    metrics.up("redis", False)
    http.stream_gap()
    move_turns(metrics)
    for service in get_args(Service):
        metrics.expect(service)
    return metrics


def move_turns(metrics: Metrics) -> None:
    metrics.models.allow([MODEL], ["openai"])
    turns, usage = TurnMeter(metrics), Usage(input=7, output=5)
    turns.attempt(MODEL, "ok", 1.5, usage)
    turns.attempt(ModelRef(provider="openai", name="canary"), "overloaded", 2.0, None)
    turns.attempt(ModelRef(provider="canary", name="canary"), "canary", 2.0, usage)
    turns.first_chunk(MODEL, 0.5)
    turns.first_output(0.75)
    turns.turn("completed", 12.0)
    turns.hop("accept_to_turn", 0.1)
    turns.not_started("not_started")
    metrics.turns.open(3)
    metrics.tools.call("read", "ok", 0.25)
    metrics.tools.call("canary", "canary", None)
    metrics.tools.orphaned(1)
    metrics.quarantined(2)
    metrics.unresolved("projection", 4)
    metrics.tenants.show({"local": {"steps": 3, "input": 7, "tool_ms": 1_500, "cost_micros": 2}})
    metrics.log.drift("t", "retention.ms", differs=True)
    metrics.log.foreign({0: 9, 1: 8})
    metrics.log.foreign({1: 7})
    metrics.log.client(
        "producer", rtt_s=0.25, queue_s=0.5, throttle_s=0.75, messages=6, rebalances=1
    )


def test_every_metric_of_the_table_is_there_and_can_be_moved() -> None:
    found = samples(moved())
    expected: set[str] = set()
    for name, row in ROWS.items():
        is_spread = row.kind in ("histogram", "summary")
        expected |= {f"{name}_count", f"{name}_sum"} if is_spread else {name}
    assert found.keys() == expected


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("http_requests_total", ("200", "GET", "/v1/info"), 1),
        ("http_requests_total", ("405", "other", "/v1/info"), 1),
        ("http_requests_in_flight", (), -1),
        ("stream_connections", ("http",), 0),
        ("stream_resumes_total", ("cold",), 1),
        ("stream_resumes_total", ("gap",), 1),
        ("stream_resumes_total", ("ahead",), 0),
        ("model_attempts_total", ("gpt-x", "ok", "openai"), 1),
        ("model_attempts_total", ("gpt-x", "interrupted", "openai"), 0),
        ("model_attempts_total", ("other", "overloaded", "openai"), 1),
        ("model_attempts_total", ("other", "other", "other"), 1),
        ("model_attempt_duration_seconds_sum", ("gpt-x", "openai"), 1.5),
        ("model_first_chunk_seconds_sum", ("gpt-x", "openai"), 0.5),
        ("model_tokens_total", ("gpt-x", "input", "openai"), 7),
        ("turn_duration_seconds_sum", ("completed",), 12.0),
        ("turn_duration_seconds_count", ("error",), 0),
        ("turn_first_output_seconds_sum", (), 0.75),
        ("turns_open", (), 3),
        ("tool_calls_total", ("ok", "read"), 1),
        ("tool_calls_total", ("unknown", "shell"), 0),
        ("tool_calls_total", ("none", "not_started"), 1),
        ("tool_calls_total", ("other", "other"), 1),
        ("tool_call_duration_seconds_sum", ("read",), 0.25),
        ("tool_calls_orphaned", (), 1),
        ("threads_quarantined", (), 2),
        ("tenant_steps_total", ("local",), 3),
        ("tenant_tokens_total", ("input", "local"), 7),
        ("tenant_tool_seconds_total", ("local",), 1.5),
        ("topic_config_drift", ("t", "retention.ms"), 1),
        ("foreign_transaction_records", ("1",), 7),
        ("kafka_client_rtt_p99_seconds", ("producer",), 0.25),
        ("kafka_client_queue_messages", ("producer",), 6),
        ("stream_closed_total", ("client",), 1),
        ("stream_dropped_frames_total", ("delta",), 1),
        ("quota_rejections_total", ("requests",), 1),
        ("events_appended_total", ("planner", "turn.started"), 2),
        ("event_append_duration_seconds_sum", ("planner",), 0.02),
        ("event_append_errors_total", ("planner", "unavailable"), 1),
        ("events_processed_total", ("accepted", "projection", "turn.started"), 1),
        ("event_processing_duration_seconds_count", ("projection", "turn.started"), 1),
        ("lanes_active", ("planner",), 7),
        ("commit_window_records", ("planner",), 3),
        ("claims_total", ("used", "planner"), 1),
        ("consumer_lag_records", ("g", "t"), 16),
        ("consumer_lag_records_max", ("g", "t"), 11),
        ("consumer_lag_seconds", ("g", "t"), 1.5),
        ("consumer_last_progress_timestamp_seconds", ("g", "3"), 1_790_000_000),
        ("consumer_rebalances_total", ("g",), 1),
        ("event_end_to_end_seconds_sum", ("append_to_view",), 0.05),
        ("snapshot_reads_total", ("hit",), 1),
        ("snapshot_mismatches_total", (), 1),
        ("refold_duration_seconds_sum", (), 0.5),
        ("refold_events_sum", (), 640),
        ("dead_letters_total", ("invalid", "projection"), 1),
        ("tenant_mismatch_total", ("record",), 1),
        ("dependency_up", ("kafka",), 1),
        ("dependency_up", ("redis",), 0),
    ],
)
def test_what_was_moved_is_shown(name: str, labels: tuple[str, ...], value: float) -> None:
    found = {
        tuple(sorted(each)): shown for each, shown in samples(moved())[f"threadlog_{name}"].items()
    }
    assert found[tuple(sorted(labels))] == value


def test_a_process_says_what_it_was_built_from() -> None:
    [labels] = samples(Metrics(revision="abc123"))["threadlog_build_info"]
    assert set(labels) == {VERSION, "abc123", CATALOG_DIGEST, FOLD_VERSION}


def test_two_in_one_process_do_not_meet() -> None:
    before = [metric.name for metric in REGISTRY.collect()]
    first, second = moved(), Metrics()
    assert "threadlog_lanes_active" in samples(first)
    assert "threadlog_lanes_active" not in samples(second)
    assert [metric.name for metric in REGISTRY.collect()] == before


def test_any_text_of_an_event_is_one_label() -> None:
    metrics = Metrics()
    for n in range(100):
        metrics.processed("planner", f"canary.{n}", "void", seconds=0.1)
        metrics.appended("planner", [f"canary.{n}"], 0.1)
    assert b"canary" not in metrics.text()
    found = samples(metrics)
    assert list(found["threadlog_events_processed_total"].values()) == [100]
    assert list(found["threadlog_events_appended_total"].values()) == [100]


def test_an_unknown_reason_or_result_counts_as_other() -> None:
    metrics = Metrics()
    metrics.append_failed("planner", "canary")  # type: ignore[arg-type] # what a typo would do
    metrics.snapshot_read("canary")  # type: ignore[arg-type] # what a typo would do
    metrics.dead_letter("planner", "canary")  # type: ignore[arg-type] # what a typo would do
    assert b"canary" not in metrics.text()
    assert metrics.text().count(b'"other"') == 3


def test_an_alarm_is_zero_before_it_rises() -> None:
    found = samples(Metrics())
    assert found["threadlog_tenant_mismatch_total"] == {(p,): 0 for p in get_args(MismatchPlace)}
    assert found["threadlog_snapshot_mismatches_total"] == {(): 0}


def test_a_partition_that_went_elsewhere_is_not_shown_as_standing_still() -> None:
    metrics = Metrics()
    for partition in range(3):
        metrics.progress("g", partition, 1.0)
    metrics.revoked("g", [0, 2, 9])
    assert metrics.text().count(b'partition="') == 1
    metrics.progress("g", 0, 2.0)
    assert metrics.text().count(b'partition="') == 2


def test_no_partitions_are_not_behind() -> None:
    metrics = Metrics()
    metrics.set_lag("g", "t", {0: 5}, 3.0)
    metrics.set_lag("g", "t", {}, 0.0)
    found = samples(metrics)
    for name in ("records", "records_max", "seconds"):
        assert list(found[f"threadlog_consumer_lag_{name}"].values()) == [0]


def test_bounds_are_the_tables() -> None:
    text = moved().text().decode()
    names: list[Name] = [name for name, row in ROWS.items() if row.kind == "histogram"]
    for name in names:
        found = re.findall(rf'^{name}_bucket{{.*?le="([^"]+)"', text, re.MULTILINE)
        # A histogram with several children shows them for each.
        bounds = [float(bound) for bound in dict.fromkeys(found)]
        assert bounds == [*ROWS[name].buckets, float("inf")]


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(2_000):
            metrics.claim("planner", "used")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(samples(metrics)["threadlog_claims_total"].values()) == [8_000]


def test_who_accepts_openmetrics_is_given_the_traces_and_nobody_else() -> None:
    metrics = Metrics()
    metrics.turns.finished("completed", 1.5, trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
    metrics.appended("planner", ["turn.started"], 0.02, "4bf92f3577b34da6a3ce929d0e0e4737")
    kind, plain = metrics.page()
    assert kind.startswith("text/plain")
    assert b"4bf92f" not in plain
    kind, page = metrics.page("application/openmetrics-text;version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    found = [
        sample.exemplar.labels["trace_id"]
        for family in openmetrics(page.decode())  # type: ignore[no-untyped-call] # it has no types
        for sample in family.samples
        if sample.exemplar is not None
    ]
    assert [trace[-1] for trace in sorted(found)] == ["6", "7"]


@pytest.mark.parametrize("service", get_args(Service))
def test_a_process_shows_what_its_service_owns_and_nothing_else(service: Service) -> None:
    metrics = moved()
    alone = Metrics()
    alone.expect(service)
    shown = {f"{name}" for name in ROWS if service in owners(name)}
    families = {
        f"{f.name}_total" if f.type == "counter" else f.name
        for f in text_string_to_metric_families(alone.text().decode())
    }
    assert families == shown
    assert len(samples(metrics)) > len(samples(alone))
