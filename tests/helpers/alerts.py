"""The files of `deploy/prometheus` as values: rules, recorded names, the cases of each alert."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.arch.tree import ROOT
from tests.helpers.promql import Pending

PROMETHEUS = ROOT / "deploy/prometheus"
RULES = PROMETHEUS / "rules/threadlog.yml"
CASES = PROMETHEUS / "tests"
RUNBOOKS = ROOT / "docs/runbooks"

PENDING: Final[dict[str, Pending]] = {}
"""Metrics of the plan that alerts and panels name before the code has them; a test tells when one
has come."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One alerting rule; several may have one name."""

    name: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """One test group of promtool: what it says of itself, and what it expects at which times."""

    title: str
    series: tuple[str, ...]
    expected: tuple[tuple[dict[str, str], ...], ...]

    @property
    def is_quiet(self) -> bool:
        """Nothing fires at any time that it looks."""
        return not any(self.expected)


def rules() -> list[Rule]:
    """Every alert."""
    return [
        Rule(entry["alert"], entry["expr"], entry["labels"], entry["annotations"])
        for entry in _entries()
        if "alert" in entry
    ]


def recorded() -> dict[str, str]:
    """Every name that a recording rule makes, with its expression."""
    return {entry["record"]: entry["expr"] for entry in _entries() if "record" in entry}


def cases(alert: str) -> list[Case]:
    """The cases of an alert; each asks for this one alone."""
    found = []
    for test in yaml.safe_load((CASES / f"{alert}.yml").read_text())["tests"]:
        looks = test["alert_rule_test"]
        assert {look["alertname"] for look in looks} == {alert}, test["name"]
        expected = tuple(tuple(x["exp_labels"] for x in look["exp_alerts"]) for look in looks)
        series = tuple(each["series"] for each in test["input_series"])
        found.append(Case(test["name"], series, expected))
    return found


def case_files() -> list[Path]:
    """The files of `deploy/prometheus/tests`."""
    return sorted(CASES.glob("*.yml"))


def _entries() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [entry for group in document["groups"] for entry in group["rules"]]
