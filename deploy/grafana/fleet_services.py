"""Sections of the fleet dashboard about what is behind it: services, log, safety nets, models."""

from typing import Final

from deploy.grafana.panels import Panel, Query, Section, quantile, rate

WORKERS: Final = Section(
    "Workers: rate, errors, duration",
    (
        Panel(
            title="Events handled",
            text="Records judged a second, by service.",
            unit="ops",
            queries=(Query(rate("threadlog_events_processed_total", "service"), "{{service}}"),),
        ),
        Panel(
            title="Events void or quarantined",
            text="Void: a repeat or a late result, harmless. Quarantined: a fault of ours.",
            unit="ops",
            queries=(
                Query(
                    rate(
                        "threadlog_events_processed_total",
                        "service, outcome",
                        where='{outcome!="accepted"}',
                    ),
                    "{{service}} {{outcome}}",
                ),
            ),
            alerts=("ThreadQuarantined",),
        ),
        Panel(
            title="Handling of one event, p99",
            text="Fold, decide and what follows at once, by service.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "threadlog_event_processing_duration_seconds", "service"),
                    "{{service}}",
                ),
            ),
        ),
    ),
)

LOG: Final = Section(
    "Log",
    (
        Panel(
            title="Events appended",
            text="A second, by service.",
            unit="ops",
            queries=(Query(rate("threadlog_events_appended_total", "service"), "{{service}}"),),
        ),
        Panel(
            title="Appends that failed",
            text="Batches a second that the log did not take, or may not have.",
            unit="ops",
            queries=(
                Query(
                    rate("threadlog_event_append_errors_total", "service, reason"),
                    "{{service}} {{reason}}",
                ),
            ),
            alerts=("AppendFailing",),
        ),
        Panel(
            title="Duration of appends, p99",
            text="Until a batch is durable, by service.",
            unit="s",
            queries=(
                Query(
                    quantile(0.99, "threadlog_event_append_duration_seconds", "service"),
                    "{{service}}",
                ),
            ),
            alerts=("AppendFailing",),
            limit=1,
        ),
    ),
)

NETS: Final = Section(
    "Safety nets: each should be flat",
    (
        Panel(
            title="Dead letters",
            text="Records set aside in five minutes, by reason.",
            unit="none",
            queries=(
                Query("sum by (reason) (increase(threadlog_dead_letters_total[5m]))", "{{reason}}"),
            ),
            alerts=("DeadLettersGrowing",),
            limit=1,
        ),
        Panel(
            title="What must never happen",
            text="Foreign tenants, snapshots that do not match, stream gaps.",
            unit="none",
            queries=(
                Query(
                    "sum by (where) (increase(threadlog_tenant_mismatch_total[5m]))", "{{where}}"
                ),
                Query("sum(increase(threadlog_snapshot_mismatches_total[5m]))", "snapshot"),
                Query(
                    'sum(increase(threadlog_stream_resumes_total{outcome="gap"}[5m]))', "stream gap"
                ),
            ),
            alerts=("TenantMismatch", "SnapshotMismatch", "StreamGap"),
            limit=1,
        ),
        Panel(
            title="Claims settled for workers that are gone",
            text="A second, by service: how often workers die with work in hand.",
            unit="ops",
            queries=(
                Query(
                    rate("threadlog_claims_total", "service", where='{result="settled"}'),
                    "{{service}}",
                ),
            ),
        ),
        Panel(
            title="Threads that stand still",
            text="Quarantined: the projection failed on one of their records.",
            unit="none",
            queries=(Query("sum(threadlog_threads_quarantined)", "threads"),),
            alerts=("ThreadQuarantined",),
        ),
        Panel(
            title="Topics that are not as pinned",
            text="1 for each setting of a topic that differs.",
            unit="none",
            queries=(
                Query(
                    "max by (topic, setting) (threadlog_topic_config_drift)",
                    "{{topic}} {{setting}}",
                ),
            ),
            alerts=("TopicConfigDrift",),
            limit=1,
        ),
        Panel(
            title="Records behind a stranger's transaction",
            text="By partition: readers see nothing of them until it ends.",
            unit="none",
            queries=(
                Query(
                    "max by (partition) (threadlog_foreign_transaction_records)", "{{partition}}"
                ),
            ),
            alerts=("ForeignTransaction",),
            limit=1,
        ),
    ),
)

STREAMS: Final = Section(
    "Streams and snapshots",
    (
        Panel(
            title="Open streams",
            text="Live streams, by surface.",
            unit="none",
            queries=(Query("sum by (surface) (threadlog_stream_connections)", "{{surface}}"),),
        ),
        Panel(
            title="Streams begun and ended",
            text="A second: how they were resumed, and why they ended.",
            unit="ops",
            queries=(
                Query(rate("threadlog_stream_resumes_total", "outcome"), "begun: {{outcome}}"),
                Query(rate("threadlog_stream_closed_total", "reason"), "ended: {{reason}}"),
            ),
            alerts=("StreamGap",),
        ),
        Panel(
            title="Loads of threads",
            text="A second, by what came of the snapshot.",
            unit="ops",
            queries=(Query(rate("threadlog_snapshot_reads_total", "result"), "{{result}}"),),
            alerts=("SnapshotMissHigh", "SnapshotMismatch"),
        ),
    ),
)

EFFECTS: Final = Section(
    "Models and tools",
    (
        Panel(
            title="Attempts on models",
            text="A second, by model and outcome.",
            unit="ops",
            queries=(
                Query(
                    rate("threadlog_model_attempts_total", "provider, model, outcome"),
                    "{{provider}}/{{model}} {{outcome}}",
                ),
            ),
            alerts=("ModelErrors",),
        ),
        Panel(
            title="Tokens",
            text="A second, by kind.",
            unit="short",
            queries=(Query(rate("threadlog_model_tokens_total", "kind"), "{{kind}}"),),
        ),
        Panel(
            title="Tool calls",
            text="A second, by outcome. `unknown`: the runner died between claim and result.",
            unit="ops",
            queries=(Query(rate("threadlog_tool_calls_total", "outcome"), "{{outcome}}"),),
            alerts=("OutcomeUnknown", "OrphanToolCalls"),
        ),
    ),
)

PARTS: Final = Section(
    "Parts",
    (
        Panel(
            title="Dependencies",
            text="1 while every process reaches it.",
            unit="bool_on_off",
            queries=(Query("min by (dependency) (threadlog_dependency_up)", "{{dependency}}"),),
            alerts=("DependencyDown",),
        ),
        Panel(
            title="Versions",
            text="Processes by version and fold. Two folds must not run side by side.",
            unit="none",
            queries=(
                Query("count by (version, revision, fold_version) (threadlog_build_info)", ""),
            ),
            shape="table",
            alerts=("VersionSkew",),
        ),
        Panel(
            title="Processes",
            text="Processes that are scraped, by service.",
            unit="none",
            queries=(
                Query(
                    "count by (service) (count by (service, instance)"
                    " (threadlog_event_append_errors_total))",
                    "{{service}}",
                ),
            ),
            alerts=("MetricsAbsent",),
        ),
    ),
)
