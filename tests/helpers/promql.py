"""What a PromQL expression names, held against the table of metrics.

A metric is one of `telemetry/table.py`, a series of one (`_bucket`, `_sum`, `_count`), or one
that a recording rule makes. A label must be in its row, or be one that a scrape adds; a value that
an expression matches must be in the closed set of its label, where there is one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import promql_parser as promql

from tests.arch.render_metrics import LABELS, SETS
from threadlog.telemetry.table import ROWS

TARGET_LABELS = frozenset({"job", "instance"})


@dataclass(frozen=True, slots=True)
class Known:
    """What may be asked of one series. `bounds`: the values of `le`, empty when it has none."""

    metric: str
    labels: frozenset[str]
    bounds: frozenset[str] = frozenset()


def known_series(recorded: frozenset[str] = frozenset()) -> dict[str, Known]:
    """Every series that may be asked for, by its name."""
    known = {name: Known(name, frozenset()) for name in recorded}
    for metric, row in ROWS.items():
        known |= _series(metric, row.kind, row.labels, row.buckets)
    return known


def findings(query: str, known: Mapping[str, Known]) -> list[str]:
    """What is wrong with a query, empty when nothing is.

    Raises:  ValueError: it is not PromQL.
    """
    wrong: list[str] = []
    parsed = promql.parse(query)
    for selector in _nodes(parsed, promql.VectorSelector):
        series = known.get(selector.name)
        if series is None:
            wrong.append(f"no metric {selector.name}")
            continue
        for matcher in selector.matchers.matchers:
            wrong += _matcher_findings(series, matcher)
    for node, labels in _grouped(parsed):
        for selector in _nodes(node, promql.VectorSelector):
            series = known.get(selector.name)
            for label in labels if series else ():
                if series and label not in series.labels | TARGET_LABELS:
                    wrong.append(f"{selector.name} has no label {label}")
    return sorted(set(wrong))


def metrics_of(query: str, known: Mapping[str, Known]) -> set[str]:
    """The metrics that a query asks for, without the suffixes of their series."""
    names = {selector.name for selector in _nodes(promql.parse(query), promql.VectorSelector)}
    return {known[name].metric if name in known else name for name in names}


def _series(
    name: str, kind: str, labels: tuple[str, ...], buckets: tuple[float, ...]
) -> dict[str, Known]:
    plain = frozenset(labels)
    if kind in ("histogram", "summary"):
        made = {f"{name}_{part}": Known(name, plain) for part in ("sum", "count")}
        if kind == "histogram":
            bounds = frozenset({*(str(float(bound)) for bound in buckets), "+Inf"})
            made[f"{name}_bucket"] = Known(name, plain | {"le"}, bounds if buckets else frozenset())
        return made
    return {name: Known(name, plain)}


def _matcher_findings(series: Known, matcher: Any) -> Iterator[str]:
    if matcher.name not in series.labels | TARGET_LABELS:
        yield f"{series.metric} has no label {matcher.name}"
        return
    allowed = series.bounds if matcher.name == "le" else _closed(series.metric, matcher.name)
    is_pattern = matcher.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
    for value in matcher.value.split("|") if is_pattern else [matcher.value]:
        if allowed and value not in allowed:
            yield f"{series.metric}: {matcher.name} is never {value}"


def _closed(metric: str, label: str) -> frozenset[str]:
    """The values of a label, empty where the set is open."""
    of_metric = SETS.get(f"`{metric}`, `{label}`")
    if of_metric is not None:
        return frozenset(get_args(of_metric)) | {"other"}
    return frozenset(get_args(LABELS.get(label)))


def _grouped(parsed: promql.Expr) -> Iterator[tuple[promql.Expr, list[str]]]:
    """Every aggregation and every matching of two sides, with the labels that it names."""
    for node in _nodes(parsed, promql.AggregateExpr):
        if node.modifier is not None:
            yield node.expr, list(node.modifier.labels)
    for node in _nodes(parsed, promql.BinaryExpr):
        if node.modifier is not None and node.modifier.matching is not None:
            yield node, list(node.modifier.matching.labels)


def _nodes(parsed: promql.Expr, kind: type) -> list[Any]:
    found: list[Any] = []

    def visit(node: promql.Expr) -> None:
        if isinstance(node, kind):
            found.append(node)

    promql.walk(parsed, visit)
    return found
