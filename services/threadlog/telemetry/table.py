"""Every metric: its name, its labels, and what it says.

The metrics are made from this list, and docs/metrics.md is written from it. The values of a label
come from a closed set or from the configuration, never from an event: no id of a thread, event or
user, and no free text.
"""

from dataclasses import dataclass
from typing import Final, Literal, get_args

Name = Literal[
    "threadlog_http_requests_total",
    "threadlog_http_request_duration_seconds",
    "threadlog_http_requests_in_flight",
    "threadlog_stream_connections",
    "threadlog_stream_resumes_total",
    "threadlog_stream_dropped_frames_total",
    "threadlog_stream_closed_total",
    "threadlog_quota_rejections_total",
    "threadlog_events_appended_total",
    "threadlog_event_append_duration_seconds",
    "threadlog_event_append_errors_total",
    "threadlog_events_processed_total",
    "threadlog_event_processing_duration_seconds",
    "threadlog_lanes_active",
    "threadlog_commit_window_records",
    "threadlog_claims_total",
    "threadlog_consumer_lag_records",
    "threadlog_consumer_lag_records_max",
    "threadlog_consumer_lag_seconds",
    "threadlog_consumer_last_progress_timestamp_seconds",
    "threadlog_consumer_rebalances_total",
    "threadlog_turn_duration_seconds",
    "threadlog_turn_first_output_seconds",
    "threadlog_turns_open",
    "threadlog_event_end_to_end_seconds",
    "threadlog_snapshot_reads_total",
    "threadlog_snapshot_mismatches_total",
    "threadlog_refold_duration_seconds",
    "threadlog_refold_events",
    "threadlog_model_attempts_total",
    "threadlog_model_attempt_duration_seconds",
    "threadlog_model_first_chunk_seconds",
    "threadlog_model_tokens_total",
    "threadlog_tool_calls_total",
    "threadlog_tool_call_duration_seconds",
    "threadlog_tool_calls_orphaned",
    "threadlog_threads_quarantined",
    "threadlog_dead_letters_total",
    "threadlog_dead_letters_unresolved",
    "threadlog_topic_config_drift",
    "threadlog_foreign_transaction_records",
    "threadlog_kafka_client_rtt_p99_seconds",
    "threadlog_kafka_client_queue_p99_seconds",
    "threadlog_kafka_client_throttle_p99_seconds",
    "threadlog_kafka_client_queue_messages",
    "threadlog_kafka_client_rebalances",
    "threadlog_tenant_steps_total",
    "threadlog_tenant_tokens_total",
    "threadlog_tenant_tool_seconds_total",
    "threadlog_tenant_cost_usd_total",
    "threadlog_tenant_mismatch_total",
    "threadlog_build_info",
    "threadlog_dependency_up",
]
Kind = Literal["counter", "gauge", "histogram", "summary"]

Service = Literal["planner", "tool_runner", "projection", "gateway", "metering"]
Outcome = Literal["accepted", "void", "quarantined"]
ClaimResult = Literal["used", "lost", "released", "settled"]
SnapshotResult = Literal["hit", "miss", "behind", "mismatch"]
AppendFailure = Literal["unavailable", "rejected", "failed"]
"""Nothing was taken or it is unknown | it never will be | anything else."""
DeadLetterReason = Literal["no_envelope", "key", "invalid", "stopped", "failed"]
"""No event at all | key, tenant and thread disagree | the body does not fit its schema | its thread
was stopped before | the reader itself failed on it."""
MismatchPlace = Literal["record", "header", "query", "body"]
"""In the log | in a request, whose tenant is its credential's whatever else it says."""
ResumeOutcome = Literal["hit", "cold", "gap", "ahead"]
"""At the head | behind it, from the views | something was missing | beyond the head."""
StreamEnd = Literal[
    "client", "turn_finished", "shutdown", "slow_reader", "max_life", "reauthorise", "problem"
]
Dependency = Literal["kafka", "redis", "blobs"]

SHORT_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds, seconds, of what the runtime does itself."""
LONG_S: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
"""Bounds, seconds, of what waits for a model, a tool or a person."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. `buckets`: of a histogram only."""

    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = SHORT_S


ROWS: Final[dict[Name, Row]] = {
    "threadlog_http_requests_total": Row(
        "counter",
        "requests answered; `route` is the template",
        ("route", "method", "code"),
    ),
    "threadlog_http_request_duration_seconds": Row(
        "histogram",
        "from the head of a request to the end of its answer",
        ("route", "method"),
    ),
    "threadlog_http_requests_in_flight": Row("gauge", "requests being answered, streams too"),
    "threadlog_stream_connections": Row("gauge", "live streams that are open", ("surface",)),
    "threadlog_stream_resumes_total": Row(
        "counter",
        "streams begun: at the head, behind it, or beyond it; `gap` is an alarm",
        ("outcome",),
    ),
    "threadlog_stream_dropped_frames_total": Row(
        "counter", "frames left out for readers that are too slow", ("kind",)
    ),
    "threadlog_stream_closed_total": Row("counter", "streams ended, by why", ("reason",)),
    "threadlog_quota_rejections_total": Row(
        "counter", "requests that met a limit of their tenant", ("limit",)
    ),
    "threadlog_events_appended_total": Row(
        "counter",
        "events that the log has taken, durable",
        ("service", "type"),
    ),
    "threadlog_event_append_duration_seconds": Row(
        "histogram",
        "from handing a batch to the log until it is durable",
        ("service",),
    ),
    "threadlog_event_append_errors_total": Row(
        "counter",
        "batches that the log did not take, or may not have",
        ("service", "reason"),
    ),
    "threadlog_events_processed_total": Row(
        "counter",
        "records judged, by what became of them",
        ("service", "type", "outcome"),
    ),
    "threadlog_event_processing_duration_seconds": Row(
        "histogram",
        "one record: fold, decide and what follows at once",
        ("service", "type"),
    ),
    "threadlog_lanes_active": Row("gauge", "threads held in memory", ("service",)),
    "threadlog_commit_window_records": Row(
        "gauge",
        "records read whose work is not finished: a restart reads them again",
        ("service",),
    ),
    "threadlog_claims_total": Row(
        "counter",
        "claims: used, lost to another, released, or settled for a worker that is gone",
        ("service", "result"),
    ),
    "threadlog_consumer_lag_records": Row(
        "gauge",
        "records not yet read, over all partitions of this process",
        ("group", "topic"),
    ),
    "threadlog_consumer_lag_records_max": Row(
        "gauge",
        "records not yet read, of the partition that is furthest behind",
        ("group", "topic"),
    ),
    "threadlog_consumer_lag_seconds": Row(
        "gauge",
        "age of the oldest record not yet handled; 0 when caught up",
        ("group", "topic"),
    ),
    "threadlog_consumer_last_progress_timestamp_seconds": Row(
        "gauge",
        "when a partition last moved, or had nothing left to do, Unix time",
        ("group", "partition"),
    ),
    "threadlog_consumer_rebalances_total": Row(
        "counter", "how often partitions were dealt out anew", ("group",)
    ),
    "threadlog_turn_duration_seconds": Row(
        "histogram",
        "from `turn.started` to `turn.finished`, by the times in the events, of a planner's clock",
        ("outcome",),
        LONG_S,
    ),
    "threadlog_turn_first_output_seconds": Row(
        "histogram",
        "from `turn.started` until the first piece of a response came to the planner",
        (),
        LONG_S,
    ),
    "threadlog_turns_open": Row(
        "gauge", "turns that are open, of the partitions of this process", ()
    ),
    "threadlog_event_end_to_end_seconds": Row(
        "histogram",
        "from one hop to another; `append_to_view`: until a read shows it",
        ("hop",),
    ),
    "threadlog_snapshot_reads_total": Row(
        "counter", "loads of a thread, by what came of its snapshot", ("result",)
    ),
    "threadlog_snapshot_mismatches_total": Row(
        "counter", "snapshots that did not match their hash or their log"
    ),
    "threadlog_refold_duration_seconds": Row("histogram", "folding a thread to its head"),
    "threadlog_refold_events": Row("summary", "records folded to load a thread"),
    "threadlog_model_attempts_total": Row(
        "counter",
        "model requests that came to an end; `outcome`: `ok`, or why not",
        (
            "provider",
            "model",
            "outcome",
        ),
    ),
    "threadlog_model_attempt_duration_seconds": Row(
        "histogram",
        "one model request, until its response is whole or it failed",
        (
            "provider",
            "model",
        ),
        LONG_S,
    ),
    "threadlog_model_first_chunk_seconds": Row(
        "histogram",
        "from sending a model request to the first piece of its response",
        (
            "provider",
            "model",
        ),
        LONG_S,
    ),
    "threadlog_model_tokens_total": Row(
        "counter",
        "tokens, as the provider counted them",
        (
            "provider",
            "model",
            "kind",
        ),
    ),
    "threadlog_tool_calls_total": Row(
        "counter",
        "calls by outcome, each counted once by the service that wrote it",
        (
            "command",
            "outcome",
        ),
    ),
    "threadlog_tool_call_duration_seconds": Row(
        "histogram",
        "one call, from its start to its end, of the runner's clock",
        ("command",),
        LONG_S,
    ),
    "threadlog_tool_calls_orphaned": Row(
        "gauge",
        "started calls without an outcome past their deadline, of the partitions of this process",
        (),
    ),
    "threadlog_threads_quarantined": Row(
        "gauge",
        "threads that an error of ours stopped in this process; a restart tries them again",
        (),
    ),
    "threadlog_dead_letters_total": Row(
        "counter",
        "records set aside, by the service that did and why",
        ("source", "reason"),
    ),
    "threadlog_dead_letters_unresolved": Row(
        "gauge",
        "records set aside and not brought back, so far all, of the partitions of this process",
        ("source",),
    ),
    "threadlog_topic_config_drift": Row(
        "gauge",
        "1 while a topic differs from what is pinned, asked every minute",
        (
            "topic",
            "setting",
        ),
    ),
    "threadlog_foreign_transaction_records": Row(
        "gauge",
        "high watermark - last stable offset: what stands behind a stranger's open transaction",
        ("partition",),
    ),
    "threadlog_kafka_client_rtt_p99_seconds": Row(
        "gauge",
        "round trips to the slowest broker, 99th percentile of 10 s",
        ("client",),
    ),
    "threadlog_kafka_client_queue_p99_seconds": Row(
        "gauge",
        "records wait in the client before they are sent, 99th percentile of 10 s",
        ("client",),
    ),
    "threadlog_kafka_client_throttle_p99_seconds": Row(
        "gauge",
        "the broker makes the client wait, 99th percentile of 10 s",
        ("client",),
    ),
    "threadlog_kafka_client_queue_messages": Row(
        "gauge",
        "records in the client's queues: to be sent, or fetched and not taken",
        ("client",),
    ),
    "threadlog_kafka_client_rebalances": Row(
        "gauge",
        "rebalances that the memberships of this process have seen",
        ("client",),
    ),
    "threadlog_tenant_steps_total": Row(
        "counter", "steps that metering has counted for a tenant", ("tenant",)
    ),
    "threadlog_tenant_tokens_total": Row(
        "counter", "tokens that metering has counted for a tenant, by kind", ("tenant", "kind")
    ),
    "threadlog_tenant_tool_seconds_total": Row(
        "counter", "how long calls of a tenant ran, as metering has counted it", ("tenant",)
    ),
    "threadlog_tenant_cost_usd_total": Row(
        "counter", "cost of a tenant's steps whose price is known, as metering counted", ("tenant",)
    ),
    "threadlog_tenant_mismatch_total": Row(
        "counter",
        "a tenant met where another was expected; any is an alarm",
        ("where",),
    ),
    "threadlog_build_info": Row(
        "gauge",
        "always 1; what this process was built from",
        ("version", "revision", "event_schema", "fold_version"),
    ),
    "threadlog_dependency_up": Row(
        "gauge",
        "1 while what the process depends on answers, else 0",
        ("dependency",),
    ),
}

assert set(ROWS) == set(get_args(Name))

assert set(ROWS) == set(get_args(Name))
