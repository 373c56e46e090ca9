"""The alerts: promtool takes them, each is tested both ways, explained, and names what exists."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helpers.alerts import (
    PROMETHEUS,
    RULES,
    RUNBOOKS,
    case_files,
    cases,
    recorded,
    rules,
)
from tests.helpers.outside import tool
from tests.helpers.promql import TARGET_LABELS, findings, known_series, metrics_of

NAMES = sorted({rule.name for rule in rules()})
CONFIGS = ["prometheus.yml", "loopback.yml"]
SEVERITIES = {"page", "ticket", "warning"}
PORTS = ["gateway:9101", "planner:9102", "tool-runner:9103", "projection:9104", "metering:9105"]


def promtool(*arguments: str | Path) -> None:
    command = [tool("promtool"), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_F104_promtool_takes_the_rules_and_the_configurations() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    for name in CONFIGS:
        promtool("check", "config", "--lint=all", "--lint-fatal", PROMETHEUS / name)


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_F104_every_case_of_every_alert_holds(path: Path) -> None:
    promtool("test", "rules", path)


def test_F104_every_alert_has_a_case_that_fires_and_one_that_stays_quiet() -> None:
    assert [path.stem for path in case_files()] == NAMES
    for name in NAMES:
        of_alert = cases(name)
        for case in of_alert:
            assert case.title.startswith("stays quiet" if case.is_quiet else "fires"), case.title
        assert {case.is_quiet for case in of_alert} == {True, False}, name


def test_F104_every_rule_of_an_alert_fires_in_some_case() -> None:
    """Two rules of one name differ in their plain labels: severity, reason, slo."""
    for rule in rules():
        plain = {k: v for k, v in rule.labels.items() if "{{" not in v}
        seen = [x for case in cases(rule.name) for look in case.expected for x in look]
        assert any(plain.items() <= labels.items() for labels in seen), (rule.name, plain)


def test_F104_every_alert_says_what_it_is_and_has_its_runbook() -> None:
    for rule in rules():
        assert re.fullmatch(r"Threadlog[A-Z][A-Za-z]+", rule.name)
        assert rule.labels["severity"] in SEVERITIES
        assert rule.labels["service"]
        assert set(rule.annotations) == {"summary", "description", "runbook_url"}
        assert all(rule.annotations.values())
        assert rule.annotations["runbook_url"] == f"docs/runbooks/{rule.name}.md"
    pages = sorted(path.stem for path in RUNBOOKS.glob("*.md") if path.stem != "README")
    assert pages == NAMES


def test_F104_alerts_ask_for_what_the_code_has() -> None:
    known = known_series(frozenset(recorded()))
    wrong = {
        name: found
        for name, query in [(r.name, r.expr) for r in rules()] + list(recorded().items())
        if (found := findings(query, known))
    }
    assert not wrong


def test_the_texts_of_an_alert_name_labels_that_it_may_have() -> None:
    known = known_series(frozenset(recorded()))
    labels = {series.metric: series.labels for series in known.values()}
    for rule in rules():
        metrics = metrics_of(rule.expr, known)
        allowed = TARGET_LABELS.union(*(labels[metric] for metric in metrics))
        texts = [*rule.labels.values(), *rule.annotations.values()]
        named = {label for text in texts for label in re.findall(r"\$labels\.(\w+)", text)}
        assert named <= allowed, rule.name


def test_F104_cases_feed_what_the_code_has() -> None:
    """A case about a series that nobody shows would prove nothing."""
    known = known_series(frozenset(recorded()))
    for name in NAMES:
        for case in cases(name):
            for series in case.series:
                assert not findings(series, known), (name, case.title)


def test_recorded_names_are_used() -> None:
    used = " ".join(rule.expr for rule in rules())
    assert not [name for name in recorded() if name not in used]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_service_is_scraped_and_keeps_its_labels(name: str) -> None:
    document = yaml.safe_load((PROMETHEUS / name).read_text())
    [job] = document["scrape_configs"]
    assert job["honor_labels"] is True
    [targets] = [entry["targets"] for entry in job["static_configs"]]
    assert [target.rpartition(":")[2] for target in targets] == [x.split(":")[1] for x in PORTS]
    if name == "prometheus.yml":
        assert targets == PORTS
