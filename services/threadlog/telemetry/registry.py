"""What a family of metrics is made of: metrics by their row of the table, children kept at hand."""

from collections.abc import Iterator, Set
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from threadlog.telemetry.owners import owners
from threadlog.telemetry.table import ROWS, Name, Service

OTHER = "other"
_M = TypeVar("_M", bound=MetricWrapperBase)
_OWNERS = {name.removesuffix("_total"): owners(name) for name in ROWS}


class Children(dict[tuple[str, ...], _M], Generic[_M]):
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


class Registry(CollectorRegistry):
    """Shows what the services of this process own; none said: everything.

    Not when each child was made: it would double what is scraped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.services: set[Service] = set()

    def collect(self) -> Iterator[Metric]:
        """What is shown now."""
        for metric in super().collect():
            if self.services and not self.services & set(_OWNERS[metric.name]):
                continue
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric

    def counter(self, name: Name) -> Counter:
        """The counter of this row."""
        return Counter(*_head(name), registry=self)

    def gauge(self, name: Name) -> Gauge:
        """The gauge of this row."""
        return Gauge(*_head(name), registry=self)

    def histogram(self, name: Name) -> Histogram:
        """The histogram of this row, with its bounds."""
        return Histogram(*_head(name), buckets=ROWS[name].buckets, registry=self)

    def summary(self, name: Name) -> Summary:
        """The summary of this row."""
        return Summary(*_head(name), registry=self)


def known(value: str, values: Set[str]) -> str:
    """The value, if it is one of the set; else `other`."""
    return value if value in values else OTHER


def observe(histogram: Histogram, seconds: float, trace_id: str | None) -> None:
    """One more; with the trace that it belongs to, for who asks for OpenMetrics."""
    if trace_id is None:
        histogram.observe(seconds)
    else:
        histogram.observe(seconds, {"trace_id": trace_id})


def _head(name: Name) -> tuple[str, str, tuple[str, ...]]:
    row = ROWS[name]
    return name, row.text, row.labels
