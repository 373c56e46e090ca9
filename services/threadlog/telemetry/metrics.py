"""The metrics of one process: typed methods over a registry of its own.

No global state: two in one process do not meet. A call costs about a microsecond and never waits,
so it may stand on the path of every event; how long something took is measured by the caller, who
has the clock. An event type, reason or result that is not in its closed set counts as `other`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from threadlog.events.catalog import BODIES, CATALOG_DIGEST
from threadlog.telemetry.table import (
    ROWS,
    AppendFailure,
    ClaimResult,
    DeadLetterReason,
    Dependency,
    MismatchPlace,
    Name,
    Outcome,
    Service,
    SnapshotResult,
)
from threadlog.thread.state import FOLD_VERSION
from threadlog.version import VERSION

_OTHER = "other"
# Types of events come from the log, where a newer writer or a stranger may have written any text.
_TYPES = {body.TYPE: body.TYPE for body in BODIES}
_M = TypeVar("_M", bound=MetricWrapperBase)


class _Children(dict[tuple[str, ...], _M], Generic[_M]):
    """The children of a metric by their label values, each resolved once: ten times as fast."""

    def __init__(self, parent: _M) -> None:
        self._parent = parent

    def __missing__(self, key: tuple[str, ...]) -> _M:
        child = self[key] = self._parent.labels(*key)
        return child

    def drop(self, *key: str) -> None:
        """This child is no longer shown."""
        if self.pop(key, None) is not None:
            self._parent.remove(*key)


class _Registry(CollectorRegistry):
    """A registry that does not show when each child was made: it would double what is scraped."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


class HttpMetrics:
    """What a gateway counts; `telemetry.gateway` does it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: Name) -> Counter:
            return Counter(*_head(name), registry=registry)

        def gauge(name: Name) -> Gauge:
            return Gauge(*_head(name), registry=registry)

        seconds: Name = "threadlog_http_request_duration_seconds"
        self.answered = _Children(counter("threadlog_http_requests_total"))
        self.seconds = _Children(
            Histogram(*_head(seconds), buckets=ROWS[seconds].buckets, registry=registry)
        )
        self.in_flight = gauge("threadlog_http_requests_in_flight")
        self.streams = _Children(gauge("threadlog_stream_connections"))
        self.resumes = _Children(counter("threadlog_stream_resumes_total"))
        self.dropped = _Children(counter("threadlog_stream_dropped_frames_total"))
        self.closed = _Children(counter("threadlog_stream_closed_total"))
        self.rejected = _Children(counter("threadlog_quota_rejections_total"))


class Metrics:
    """The metrics of a process. Cheap enough to have one where nobody will ever look.

    Shapes:  `revision`: the commit that the process was built from, empty when unknown.
    """

    def __init__(self, *, revision: str = "") -> None:
        self._registry = _Registry()
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._appended = _Children(counter("threadlog_events_appended_total"))
        self._append_s = _Children(histogram("threadlog_event_append_duration_seconds"))
        self._append_errors = _Children(counter("threadlog_event_append_errors_total"))
        self._processed = _Children(counter("threadlog_events_processed_total"))
        self._processing_s = _Children(histogram("threadlog_event_processing_duration_seconds"))
        self._lanes = _Children(gauge("threadlog_lanes_active"))
        self._window = _Children(gauge("threadlog_commit_window_records"))
        self._claims = _Children(counter("threadlog_claims_total"))
        self._lag = _Children(gauge("threadlog_consumer_lag_records"))
        self._lag_max = _Children(gauge("threadlog_consumer_lag_records_max"))
        self._lag_s = _Children(gauge("threadlog_consumer_lag_seconds"))
        self._progress = _Children(gauge("threadlog_consumer_last_progress_timestamp_seconds"))
        self._rebalances = _Children(counter("threadlog_consumer_rebalances_total"))
        self._hops = _Children(histogram("threadlog_event_end_to_end_seconds"))
        self._snapshots = _Children(counter("threadlog_snapshot_reads_total"))
        self._mismatches = counter("threadlog_snapshot_mismatches_total")
        self._refold_s = histogram("threadlog_refold_duration_seconds")
        self._refold_events = Summary(*_head("threadlog_refold_events"), registry=self._registry)
        self._dead_letters = _Children(counter("threadlog_dead_letters_total"))
        self._strangers = _Children(counter("threadlog_tenant_mismatch_total"))
        self.http = HttpMetrics(self._registry)
        self._up = _Children(gauge("threadlog_dependency_up"))
        build = gauge("threadlog_build_info")
        build.labels(VERSION, revision, CATALOG_DIGEST, FOLD_VERSION).set(1)
        # The first one must be seen to rise, from a zero that was scraped before.
        for where in get_args(MismatchPlace):
            self._strangers[(where,)].inc(0)

    def expect(self, service: Service) -> None:
        """What may never happen is shown from the start: an alert needs the zero before the one."""
        for failure in get_args(AppendFailure):
            self._append_errors[service, failure].inc(0)
        if service == "gateway":
            return
        if service == "projection":
            for reason in get_args(DeadLetterReason):
                self._dead_letters[service, reason].inc(0)
        else:
            for result in get_args(ClaimResult):
                self._claims[service, result].inc(0)

    def text(self) -> bytes:
        """All of it, in the text format of Prometheus."""
        return generate_latest(self._registry)

    def appended(self, service: Service, types: Sequence[str], seconds: float) -> None:
        """One batch is durable in the log, `seconds` after it was handed over."""
        appended = self._appended
        for event_type in types:
            appended[service, _TYPES.get(event_type, _OTHER)].inc()
        self._append_s[(service,)].observe(seconds)

    def append_failed(self, service: Service, reason: AppendFailure) -> None:
        """One batch was not taken, or nobody knows."""
        self._append_errors[service, _known(reason, _FAILURES)].inc()

    def processed(
        self,
        service: Service,
        event_type: str,
        outcome: Outcome,
        *,
        seconds: float | None = None,
    ) -> None:
        """One record was judged; `seconds`: how long it took, None when nobody measured."""
        kind = _TYPES.get(event_type, _OTHER)
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
        self._claims[service, _known(result, _ENDS)].inc()

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
        self._hops[("append_to_view",)].observe(seconds)

    def snapshot_read(self, result: SnapshotResult) -> None:
        """A thread was loaded, and this came of its snapshot."""
        self._snapshots[(_known(result, _RESULTS),)].inc()

    def mismatch(self) -> None:
        """A snapshot did not match."""
        self._mismatches.inc()

    def refolded(self, seconds: float, events: int) -> None:
        """A thread was folded to its head, over so many records."""
        self._refold_s.observe(seconds)
        self._refold_events.observe(events)

    def dead_letter(self, source: Service, reason: DeadLetterReason) -> None:
        """A record was set aside."""
        self._dead_letters[source, _known(reason, _REASONS)].inc()

    def tenant_mismatch(self, where: MismatchPlace) -> None:
        """A tenant was met where another was expected."""
        self._strangers[(where,)].inc()

    def up(self, dependency: Dependency, is_up: bool) -> None:
        """Whether what this process depends on answers."""
        self._up[(dependency,)].set(is_up)

    def _counter(self, name: Name) -> Counter:
        return Counter(*_head(name), registry=self._registry)

    def _gauge(self, name: Name) -> Gauge:
        return Gauge(*_head(name), registry=self._registry)

    def _histogram(self, name: Name) -> Histogram:
        return Histogram(*_head(name), buckets=ROWS[name].buckets, registry=self._registry)


_FAILURES = frozenset(get_args(AppendFailure))
_ENDS = frozenset(get_args(ClaimResult))
_RESULTS = frozenset(get_args(SnapshotResult))
_REASONS = frozenset(get_args(DeadLetterReason))


def _known(value: str, known: frozenset[str]) -> str:
    return value if value in known else _OTHER


def _head(name: Name) -> tuple[str, str, tuple[str, ...]]:
    row = ROWS[name]
    return name, row.text, row.labels
