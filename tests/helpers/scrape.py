"""A page of metrics, judged: what it must show, and how much it may at most."""

from collections import Counter
from collections.abc import Iterable
from typing import get_args

from prometheus_client.parser import text_string_to_metric_families

from threadlog.events.catalog import BODIES
from threadlog.limits import METERED_TENANTS_MAX
from threadlog.telemetry import labels, table
from threadlog.telemetry.owners import owners
from threadlog.telemetry.table import ROWS, Name, Service

TYPES = len(BODIES) + 1
CLIENTS = len(get_args(labels.Client))
FREE = {"route": 40, "method": 8, "code": 30}
"""How many values of these there are at most: of our routes, of HTTP, of what we answer with."""


def series(page: str) -> Counter[str]:
    """How many series each metric has, by its name in the table."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(page):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] += len(family.samples)
    return found


def missing(page: str, service: Service) -> list[Name]:
    """What the service shows by its table and this page does not."""
    found = series(page)
    return [name for name in ROWS if service in owners(name) and not found[name]]


def strange(page: str, service: Service) -> list[str]:
    """What the page shows although it is not the service's."""
    own = {name for name in ROWS if service in owners(name)}
    return sorted(name for name, count in series(page).items() if count and name not in own)


def bound(name: Name, partitions: int, models: int) -> int:
    """Series of this metric at most, whatever is done to the process that shows it."""
    row, values = ROWS[name], 1
    for label in row.labels:
        values *= _values(name, label, partitions, models)
    match row.kind:
        case "histogram":
            return values * (len(row.buckets) + 3)
        case "summary":
            return values * 2
        case _:
            return values


def _values(name: Name, label: str, partitions: int, models: int) -> int:
    closed: dict[str, Iterable[object]] = {
        "kind": get_args(labels.TokenKind),
        "hop": get_args(labels.Hop),
        "where": get_args(table.MismatchPlace),
        "dependency": get_args(table.Dependency),
        "setting": get_args(labels.TopicSetting),
        "command": (*get_args(labels.Command), "other"),
        "outcome": (*labels.ATTEMPT_OUTCOMES, "other"),
        "limit": ("requests", "streams", "bytes"),
        "result": (*get_args(table.ClaimResult), "other"),
        "reason": (*get_args(table.StreamEnd), "other"),
    }
    if label in closed:
        return len(list(closed[label]))
    counts = {"type": TYPES, "partition": partitions, "model": models + 1, "client": CLIENTS}
    # A process has one service, one group, and looks at four topics; `other` is a tenant, too.
    counts |= {"topic": 4, "provider": 4, "tenant": METERED_TENANTS_MAX + 1, **FREE}
    return counts.get(label, 1)
