"""Panels of a Grafana dashboard as plain dicts, laid out in order; each has title, unit and text.

A panel knows its queries only; `dashboard` places them, numbers them and adds what all share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Unit = Literal["percentunit", "s", "short", "reqps", "ops", "bool_on_off", "none"]
Shape = Literal["timeseries", "stat", "table"]
Json = dict[str, object]

WIDTH: Final = 24
"""Columns of a dashboard, as Grafana counts them."""
_HEIGHTS: Final[dict[Shape, int]] = {"timeseries": 8, "stat": 4, "table": 8}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA: Final = 39


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and what its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `alerts`: whose runbooks it links. `limit`: red from there on; None: never red."""

    title: str
    text: str
    unit: Unit
    queries: tuple[Query, ...]
    shape: Shape = "timeseries"
    width: int = 8
    alerts: tuple[str, ...] = ()
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


def rate(metric: str, by: str, *, where: str = "") -> str:
    """How much a counter rises a second, by these labels."""
    return f"sum by ({by}) (rate({metric}{where}[5m]))"


def quantile(share: float, metric: str, *by: str) -> str:
    """The quantile of a histogram over five minutes, by these labels."""
    labels = ", ".join([*by, "le"])
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket[5m])))"


def dashboard(uid: str, title: str, text: str, sections: Sequence[Section]) -> Json:
    """The whole dashboard. The same sections give the same dict, always."""
    placed: list[Json] = []
    top = 0
    for section in sections:
        placed.append(
            {
                "id": len(placed) + 1,
                "type": "row",
                "title": section.title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
                "panels": [],
            }
        )
        top += 1
        left = height = 0
        for panel in section.panels:
            if left + panel.width > WIDTH:
                top, left, height = top + height, 0, 0
            height = max(height, _HEIGHTS[panel.shape])
            placed.append(_panel(panel, len(placed) + 1, left, top))
            left += panel.width
        top += height
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["threadlog"],
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": _SCHEMA,
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [_datasource(), _runbooks()]},
        "annotations": {"list": []},
        "panels": placed,
    }


def _panel(panel: Panel, number: int, left: int, top: int) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    is_table = panel.shape == "table"
    return {
        "id": number,
        "type": panel.shape,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHTS[panel.shape], "w": panel.width, "x": left, "y": top},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "links": [_link(alert) for alert in panel.alerts],
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": is_table,
                "format": "table" if is_table else "time_series",
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def _link(alert: str) -> Json:
    return {
        "title": f"Runbook: {alert}",
        "url": f"${{runbooks:raw}}/Threadlog{alert}.md",
        "targetBlank": True,
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }


def _runbooks() -> Json:
    where = "docs/runbooks"
    return {
        "name": "runbooks",
        "label": "Address of the runbooks",
        "type": "textbox",
        "query": where,
        "current": {"text": where, "value": where},
        "hide": 0,
    }
