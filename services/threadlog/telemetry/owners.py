"""Which services show which metric, and which metrics nobody can show yet."""

from collections.abc import Mapping
from typing import Final, get_args

from threadlog.telemetry.table import Name, Service

_GROUPS: Final[Mapping[tuple[Service, ...], tuple[Name, ...]]] = {
    ("gateway",): (
        "threadlog_http_requests_total",
        "threadlog_http_request_duration_seconds",
        "threadlog_http_requests_in_flight",
        "threadlog_stream_connections",
        "threadlog_stream_resumes_total",
        "threadlog_stream_dropped_frames_total",
        "threadlog_stream_closed_total",
        "threadlog_quota_rejections_total",
    ),
    ("planner", "tool_runner", "gateway"): (
        "threadlog_events_appended_total",
        "threadlog_event_append_duration_seconds",
        "threadlog_event_append_errors_total",
    ),
    ("planner", "tool_runner", "projection"): (
        "threadlog_events_processed_total",
        "threadlog_event_processing_duration_seconds",
        "threadlog_consumer_rebalances_total",
        "threadlog_event_end_to_end_seconds",
        "threadlog_snapshot_reads_total",
        "threadlog_snapshot_mismatches_total",
        "threadlog_refold_duration_seconds",
        "threadlog_refold_events",
        "threadlog_threads_quarantined",
    ),
    ("planner", "tool_runner", "projection", "metering"): (
        "threadlog_consumer_lag_records",
        "threadlog_consumer_lag_records_max",
        "threadlog_consumer_lag_seconds",
        "threadlog_consumer_last_progress_timestamp_seconds",
    ),
    ("planner", "tool_runner"): (
        "threadlog_lanes_active",
        "threadlog_commit_window_records",
        "threadlog_claims_total",
        "threadlog_tool_calls_total",
    ),
    ("planner",): (
        "threadlog_turn_duration_seconds",
        "threadlog_turn_first_output_seconds",
        "threadlog_turns_open",
        "threadlog_model_attempts_total",
        "threadlog_model_attempt_duration_seconds",
        "threadlog_model_first_chunk_seconds",
        "threadlog_model_tokens_total",
    ),
    ("tool_runner",): (
        "threadlog_tool_call_duration_seconds",
        "threadlog_tool_calls_orphaned",
    ),
    ("projection",): (
        "threadlog_dead_letters_total",
        "threadlog_dead_letters_unresolved",
        "threadlog_foreign_transaction_records",
    ),
    ("projection", "gateway"): ("threadlog_topic_config_drift",),
    ("metering",): (
        "threadlog_tenant_steps_total",
        "threadlog_tenant_tokens_total",
        "threadlog_tenant_tool_seconds_total",
        "threadlog_tenant_cost_usd_total",
    ),
    ("planner", "tool_runner", "projection", "gateway"): (
        "threadlog_kafka_client_rtt_p99_seconds",
        "threadlog_kafka_client_queue_p99_seconds",
        "threadlog_kafka_client_throttle_p99_seconds",
        "threadlog_kafka_client_queue_messages",
        "threadlog_kafka_client_rebalances",
        "threadlog_tenant_mismatch_total",
        "threadlog_dependency_up",
    ),
}
_BY_NAME: Final = {name: services for services, names in _GROUPS.items() for name in names}

LATER: Final[dict[str, str]] = {
    "shadow_refolds_total": "nothing folds a thread again beside its service yet",
    "approvals_pending, approval_wait_seconds": "calls do not ask for approval yet",
    "dead_letter_redrives_total": "records that were set aside cannot be brought back yet",
    "invariant_violations_total": "an error of ours stops its thread: threads_quarantined",
    "replay_divergences_total": "no service replays; `verify` will",
    "tenant_lag_seconds, budget_used_ratio": "there are no budgets, and lag is not kept by tenant",
}
"""Metrics that are designed and have no source, without their prefix, and why."""


def owners(name: Name) -> tuple[Service, ...]:
    """The services that show it; one that is not named here is shown by any."""
    return _BY_NAME.get(name, get_args(Service))
