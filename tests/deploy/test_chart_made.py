"""What is made in the chart is as its sources say now."""

import base64
import re

import pytest
import yaml

from tests.deploy.render_chart import FILES, README, VALUES, free_settings, made, rows, strays
from tests.helpers.chart import CHART, of_kind, template, values_of
from threadlog.version import VERSION


def test_F105_table_schema_and_copies_are_current() -> None:
    stale = [path.name for path, text in made().items() if path.read_text() != text]
    assert not stale, "run: make chart"
    assert not strays(), "run: make chart"


def test_F105_alerts_and_dashboards_are_those_of_the_copies() -> None:
    there = [path for folder in FILES for path in sorted((CHART / folder).glob("*"))]
    groups = [
        group
        for path in there
        if path.suffix == ".yml"
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    [rule] = of_kind("monitored", "PrometheusRule").values()
    assert rule["spec"]["groups"] == groups
    shown = {
        name: text
        for each in of_kind("monitored", "ConfigMap").values()
        if each["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in each["data"].items()
    }
    assert shown == {path.name: path.read_text() for path in there if path.suffix == ".json"}


def test_F105_chart_image_and_program_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
    [container] = of_kind("minimal", "Deployment")["planner"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == f"threadlog:{VERSION}"
    digest = of_kind("secured", "Deployment")["planner"]["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"threadlog@sha256:[0-9a-f]{64}", digest[0]["image"])


def test_F105_every_value_has_a_comment_and_a_row() -> None:
    page = README.read_text()
    assert len(rows()) > 100
    assert all(f"| `{key}` |" in page for key, _, _ in rows())
    assert VALUES.read_text().isascii() or "…" in VALUES.read_text()


def test_F105_settings_that_are_secret_or_set_by_the_chart_are_not_free() -> None:
    free = free_settings()
    assert "THREADLOG_KAFKA__HEARTBEAT_MS" in free
    words = ("PASSWORD", "KEY", "URL", "FAULT", "SANDBOX", "BOOTSTRAP", "PARTITIONS")
    assert not [name for name in free if any(word in name for word in words)]


# No command of helm shows the notes without a cluster: an object of the release carries them.
NOTES = """
extraObjects:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: notes}
    data: {notes: '{{ include "threadlog/templates/NOTES.txt" . | b64enc }}'}
"""


@pytest.mark.parametrize(
    ("name", "said", "unsaid"),
    [
        ("minimal", ("test threadlog", "topics.hook=apply", "INSECURE: what goes to Kafka",
                     "INSECURE: what goes to Redis", "not been run on a cluster", "OPEN: any pod",
                     "any model"), ("UNSAFE", "plain HTTP")),
        ("relaxed", ("UNSAFE: the tool-runner", "UNSAFE: 1 of each record", "logs job/"),
                    ("test threadlog",)),
        ("secured", ("ReadWriteMany",), ("INSECURE", "any model")),
        ("fenced", ("Topics were as they should be",), ("OPEN: any pod", "may reach anything")),
    ],
)  # fmt: skip
def test_F105_the_notes_say_what_is_next_and_what_is_insecure(
    name: str, said: tuple[str, ...], unsaid: tuple[str, ...]
) -> None:
    ran = template("-f", values_of(name), "-f", "-", given=NOTES)
    assert ran.returncode == 0, ran.stderr
    [notes] = [
        " ".join(base64.b64decode(each["data"]["notes"]).decode().split())
        for each in yaml.safe_load_all(ran.stdout)
        if each and each["metadata"]["name"] == "notes"
    ]
    assert not [text for text in said if text not in notes], notes
    assert not [text for text in unsaid if text in notes], notes
