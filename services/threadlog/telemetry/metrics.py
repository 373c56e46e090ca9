"""The metrics of one process: typed methods over a registry of its own.

No global state: two in one process do not meet. A call costs about a microsecond and never waits,
so it may stand on the path of every event; how long something took is measured by the caller, who
has the clock. An event type, reason or result that is not in its closed set counts as `other`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from prometheus_client.exposition import choose_encoder

from threadlog.events.catalog import BODIES, CATALOG_DIGEST
from threadlog.telemetry.http import HttpMetrics
from threadlog.telemetry.log_state import LogMetrics
from threadlog.telemetry.models import ModelMetrics
from threadlog.telemetry.registry import OTHER, Children, Registry, known, observe
from threadlog.telemetry.table import (
    AppendFailure,
    ClaimResult,
    DeadLetterReason,
    Dependency,
    MismatchPlace,
    Outcome,
    Service,
    SnapshotResult,
)
from threadlog.telemetry.tenants import TenantMetrics
from threadlog.telemetry.tools import ToolMetrics
from threadlog.telemetry.turns import TurnMetrics
from threadlog.thread.state import FOLD_VERSION
from threadlog.version import VERSION

# Types of events come from the log, where a newer writer or a stranger may have written any text.
_TYPES = {body.TYPE: body.TYPE for body in BODIES}


class Metrics:
    """The metrics of a process. Cheap enough to have one where nobody will ever look.

    Shapes:  `revision`: the commit that the process was built from, empty when unknown.
    """

    def __init__(self, *, revision: str = "") -> None:
        self._registry = registry = Registry()
        counter, gauge, histogram = registry.counter, registry.gauge, registry.histogram
        self._appended = Children(counter("threadlog_events_appended_total"))
        self._append_s = Children(histogram("threadlog_event_append_duration_seconds"))
        self._append_errors = Children(counter("threadlog_event_append_errors_total"))
        self._processed = Children(counter("threadlog_events_processed_total"))
        self._processing_s = Children(histogram("threadlog_event_processing_duration_seconds"))
        self._lanes = Children(gauge("threadlog_lanes_active"))
        self._window = Children(gauge("threadlog_commit_window_records"))
        self._claims = Children(counter("threadlog_claims_total"))
        self._lag = Children(gauge("threadlog_consumer_lag_records"))
        self._lag_max = Children(gauge("threadlog_consumer_lag_records_max"))
        self._lag_s = Children(gauge("threadlog_consumer_lag_seconds"))
        self._progress = Children(gauge("threadlog_consumer_last_progress_timestamp_seconds"))
        self._rebalances = Children(counter("threadlog_consumer_rebalances_total"))
        self._snapshots = Children(counter("threadlog_snapshot_reads_total"))
        self._mismatches = counter("threadlog_snapshot_mismatches_total")
        self._refold_s = histogram("threadlog_refold_duration_seconds")
        self._refold_events = registry.summary("threadlog_refold_events")
        self._dead_letters = Children(counter("threadlog_dead_letters_total"))
        self._strangers = Children(counter("threadlog_tenant_mismatch_total"))
        self._unresolved = Children(gauge("threadlog_dead_letters_unresolved"))
        self._quarantined = gauge("threadlog_threads_quarantined")
        self.http = HttpMetrics(registry)
        self.turns = TurnMetrics(registry)
        self.models = ModelMetrics(registry)
        self.tools = ToolMetrics(registry)
        self.log = LogMetrics(registry)
        self.tenants = TenantMetrics()
        registry.register(self.tenants)
        self._up = Children(gauge("threadlog_dependency_up"))
        build = gauge("threadlog_build_info")
        build.labels(VERSION, revision, CATALOG_DIGEST, FOLD_VERSION).set(1)
        # The first one must be seen to rise, from a zero that was scraped before.
        for where in get_args(MismatchPlace):
            self._strangers[(where,)].inc(0)

    def expect(self, service: Service) -> None:
        """This process shows what the service owns.

        What may never happen is shown from the start: an alert needs the zero before the one.
        """
        self._registry.services.add(service)
        if service == "gateway":
            self.http.expect()
        elif service != "metering":
            self._expect_worker(service)
        if service in ("planner", "tool_runner", "gateway"):
            for failure in get_args(AppendFailure):
                self._append_errors[service, failure].inc(0)

    def _expect_worker(self, service: Service) -> None:
        for found in get_args(SnapshotResult):
            self._snapshots[(found,)].inc(0)
        if service == "projection":
            for reason in get_args(DeadLetterReason):
                self._dead_letters[service, reason].inc(0)
            self._unresolved[(service,)].set(0)
            return
        for result in get_args(ClaimResult):
            self._claims[service, result].inc(0)
        self.tools.expect(runs=service == "tool_runner")
        if service == "planner":
            self.turns.expect()

    def page(self, accept: str = "") -> tuple[str, bytes]:
        """All of it, and of which type; OpenMetrics, with its exemplars, for who accepts that."""
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self._registry)

    def text(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return self.page()[1]

    def appended(
        self, service: Service, types: Sequence[str], seconds: float, trace_id: str | None = None
    ) -> None:
        """One batch is durable in the log, `seconds` after it was handed over."""
        appended = self._appended
        for event_type in types:
            appended[service, _TYPES.get(event_type, OTHER)].inc()
        observe(self._append_s[(service,)], seconds, trace_id)

    def append_failed(self, service: Service, reason: AppendFailure) -> None:
        """One batch was not taken, or nobody knows."""
        self._append_errors[service, known(reason, _FAILURES)].inc()

    def processed(
        self,
        service: Service,
        event_type: str,
        outcome: Outcome,
        *,
        seconds: float | None = None,
    ) -> None:
        """One record was judged; `seconds`: how long it took, None when nobody measured."""
        kind = _TYPES.get(event_type, OTHER)
        self._processed[service, kind, outcome].inc()
        if seconds is not None:
            self._processing_s[service, kind].observe(seconds)

    def lanes(self, service: Service, n: int) -> None:
        """So many threads are held in memory."""
        self._lanes[(service,)].set(n)

    def window(self, service: Service, n: int) -> None:
        """So many records are read and not finished."""
        self._window[(service,)].set(n)

    def claim(self, service: Service, result: ClaimResult) -> None:
        """One claim came to this end."""
        self._claims[service, known(result, _ENDS)].inc()

    def set_lag(
        self, group: str, topic: str, records_by_partition: Mapping[int, int], seconds: float
    ) -> None:
        """How far the partitions of this process are behind; none at all is not behind."""
        key, records = (group, topic), records_by_partition.values()
        self._lag[key].set(sum(records))
        self._lag_max[key].set(max(records, default=0))
        self._lag_s[key].set(seconds)

    def progress(self, group: str, partition: int, at_s: float) -> None:
        """A partition moved, or had nothing left to do, at this Unix time in seconds."""
        self._progress[group, str(partition)].set(at_s)

    def rebalanced(self, group: str) -> None:
        """Partitions were dealt out anew."""
        self._rebalances[(group,)].inc()

    def revoked(self, group: str, partitions: Iterable[int]) -> None:
        """These belong to another process now; here they would look as if they stood still."""
        for partition in partitions:
            self._progress.drop(group, str(partition))

    def reached_view(self, seconds: float) -> None:
        """A read shows an event, `seconds` after it was appended."""
        self.turns.hop("append_to_view", seconds)

    def snapshot_read(self, result: SnapshotResult) -> None:
        """A thread was loaded, and this came of its snapshot."""
        self._snapshots[(known(result, _RESULTS),)].inc()

    def mismatch(self) -> None:
        """A snapshot did not match."""
        self._mismatches.inc()

    def refolded(self, seconds: float, events: int) -> None:
        """A thread was folded to its head, over so many records."""
        self._refold_s.observe(seconds)
        self._refold_events.observe(events)

    def dead_letter(self, source: Service, reason: DeadLetterReason) -> None:
        """A record was set aside."""
        self._dead_letters[source, known(reason, _REASONS)].inc()

    def unresolved(self, source: Service, letters: int) -> None:
        """So many records are set aside and were not brought back."""
        self._unresolved[(source,)].set(letters)

    def quarantined(self, threads: int) -> None:
        """So many threads were stopped by an error in this process."""
        self._quarantined.set(threads)

    def tenant_mismatch(self, where: MismatchPlace) -> None:
        """A tenant was met where another was expected."""
        self._strangers[(where,)].inc()

    def up(self, dependency: Dependency, is_up: bool) -> None:
        """Whether what this process depends on answers."""
        self._up[(dependency,)].set(is_up)


_FAILURES = frozenset(get_args(AppendFailure))
_ENDS = frozenset(get_args(ClaimResult))
_RESULTS = frozenset(get_args(SnapshotResult))
_REASONS = frozenset(get_args(DeadLetterReason))
