"""What metering shows of tenants: a bounded number of them by name, the rest as `other`."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from threadlog.telemetry.table import ROWS, Name

OTHER = "other"
_TOKENS: Name = "threadlog_tenant_tokens_total"
_KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
_SUMS: tuple[tuple[Name, str, int], ...] = (
    ("threadlog_tenant_steps_total", "steps", 1),
    ("threadlog_tenant_tool_seconds_total", "tool_ms", 1_000),
    ("threadlog_tenant_cost_usd_total", "cost_micros", 1_000_000),
)
"""Metric, amount, and how many of the amount are one of the metric's unit."""
Sums = Mapping[str, int]


def named_tenants(
    totals: Mapping[str, Sums], chosen: Sequence[str], tenants_max: int
) -> dict[str, Sums]:
    """The sums of each tenant that is shown, and of all others together.

    Shapes:  `chosen` empty: the first `tenants_max` by name, which does not change with their
             figures: a series that comes and goes looks like a counter that was reset.
    """
    names = frozenset(chosen or sorted(totals)[:tenants_max])
    shown: dict[str, Sums] = {}
    for tenant, sums in totals.items():
        name = tenant if tenant in names else OTHER
        known = shown.get(name, {})
        shown[name] = {kind: known.get(kind, 0) + amount for kind, amount in sums.items()}
    return shown


class TenantMetrics(Collector):
    """Counters of tenants, as they were counted elsewhere."""

    def __init__(self) -> None:
        self._tenants: Mapping[str, Sums] = {}

    def show(self, tenants: Mapping[str, Sums]) -> None:
        """These are shown, and no others."""
        self._tenants = tenants

    def describe(self) -> list[CounterMetricFamily]:
        """The families, without a sample."""
        return [_family(name) for name, _, _ in _SUMS] + [_family(_TOKENS)]

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For a scrape; on any thread."""
        tenants = self._tenants
        for name, amount, unit in _SUMS:
            family = _family(name)
            for tenant, sums in tenants.items():
                family.add_metric([tenant], sums.get(amount, 0) / unit)
            yield family
        family = _family(_TOKENS)
        for tenant, sums in tenants.items():
            for kind in _KINDS:
                family.add_metric([tenant, kind], sums.get(kind, 0))
        yield family


def _family(name: Name) -> CounterMetricFamily:
    row = ROWS[name]
    return CounterMetricFamily(name.removesuffix("_total"), row.text, labels=row.labels)
