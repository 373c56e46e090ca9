"""The dashboards: as their code says, every query parses, and asks for what the code has."""

import json
from typing import Any

import pytest
import yaml

from deploy.grafana.fleet import SECTIONS, TARGET, UID, render
from deploy.grafana.panels import WIDTH
from tests.arch.tree import ROOT
from tests.helpers.alerts import recorded, rules
from tests.helpers.promql import findings, known_series

GRAFANA = ROOT / "deploy/grafana"
KNOWN = known_series(frozenset(recorded()))
PANELS = [panel for section in SECTIONS for panel in section.panels]


def test_F104_the_dashboard_is_what_its_code_says() -> None:
    assert TARGET.read_text() == render(), "run: make dashboards"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_F104_every_query_parses_and_asks_for_what_the_code_has(panel: Any) -> None:
    assert panel.queries
    for query in panel.queries:
        assert not findings(query.expr, KNOWN)


def test_every_panel_says_what_it_shows() -> None:
    assert len({panel.title for panel in PANELS}) == len(PANELS)
    for panel in json.loads(TARGET.read_text())["panels"]:
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith(".")
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["datasource"]["uid"] == "${datasource}"


def test_every_runbook_is_linked_by_a_panel() -> None:
    linked = {f"Threadlog{alert}" for panel in PANELS for alert in panel.alerts}
    assert linked == {rule.name for rule in rules()}
    named = {link["url"] for p in json.loads(render())["panels"] for link in p.get("links", ())}
    assert named == {f"${{runbooks:raw}}/{alert}.md" for alert in linked}


def test_panels_do_not_overlap_and_have_one_number_each() -> None:
    document = json.loads(render())
    assert document["uid"] == UID
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= WIDTH
        assert not cells & taken, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in document["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    provisioning = GRAFANA / "provisioning"
    source = yaml.safe_load((provisioning / "datasources/threadlog.yml").read_text())
    [entry] = source["datasources"]
    assert (entry["type"], entry["isDefault"]) == ("prometheus", True)
    assert entry["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((provisioning / "dashboards/threadlog.yml").read_text())
    [entry] = provider["providers"]
    assert entry["options"]["path"] == "/var/lib/grafana/dashboards"
    variables = [each["name"] for each in json.loads(render())["templating"]["list"]]
    assert variables == ["datasource", "runbooks"]


def test_a_query_that_asks_for_what_is_not_there_is_found() -> None:
    for query, wrong in {
        "threadlog_nothing_total": "no metric threadlog_nothing_total",
        "sum by (thread) (threadlog_claims_total)": "threadlog_claims_total has no label thread",
        'threadlog_claims_total{result="won"}': "threadlog_claims_total: result is never won",
        'threadlog_claims_total{result=~"used|won"}': "threadlog_claims_total: result is never won",
        'threadlog_event_append_duration_seconds_bucket{le="3.0"}': (
            "threadlog_event_append_duration_seconds: le is never 3.0"
        ),
        "threadlog_event_append_duration_seconds": (
            "no metric threadlog_event_append_duration_seconds"
        ),
    }.items():
        assert findings(query, KNOWN) == [wrong]
    with pytest.raises(ValueError, match="parenthesis"):
        findings("sum(", KNOWN)
