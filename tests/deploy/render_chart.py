"""What is made in helm/threadlog and not written: README table, names of settings, files, renders.

Run as `python -m tests.deploy.render_chart --write` or `--check`. The table is the comments of
values.yaml. The renders need helm; without it `--write` leaves them as they are, and says so.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from deploy.servers import ROOT
from tests.helpers.chart import CHART, GOLDEN, SETS, rendered
from threadlog.settings import Settings, _names

README, SCHEMA, VALUES = (
    CHART / name for name in ("README.md", "values.schema.json", "values.yaml")
)
BEGIN, END = "<!-- values: written by make chart -->", "<!-- values end -->"
FILES = {
    "files/rules": (ROOT / "deploy/prometheus/rules", "*.yml"),
    "files/dashboards": (ROOT / "deploy/grafana", "*.json"),
}
"""Folders of the chart that are copies, since a chart reads nothing outside of itself."""
OWNED = (
    *(
        "BLOBS__",
        "DATA_DIR",
        "FAULT",
        "GATEWAY__",
        "KEY",
        "KEY_FILE",
        "LOG__",
        "METRICS__",
        "MODEL",
    ),
    *("PRICES", "REDIS__", "REVISION", "SANDBOX", "SCRIPTED__", "TOOL_RUNNER__", "URL", "WORKER__"),
    *("KAFKA__BOOTSTRAP", "KAFKA__PARTITIONS", "KAFKA__PREFIX", "KAFKA__REPLICATION"),
    *("KAFKA__SASL_", "KAFKA__SECURITY_", "KAFKA__SSL_"),
)
"""Settings that have a key of their own, are secret, or mean nothing on a cluster; `_` at the end:
all that begin so.
"""


def free_settings() -> list[str]:
    """The settings that `settings` of the values may hold: no secret, and none that has a key."""
    names = sorted(_names(Settings, "THREADLOG_"))
    return [name for name in names if not _is_owned(name.removeprefix("THREADLOG_"))]


def _is_owned(name: str) -> bool:
    return any(name == each or (each.endswith("_") and name.startswith(each)) for each in OWNED)


def schema() -> str:
    """The schema of the values, with the names of settings as they are now."""
    found = json.loads(SCHEMA.read_text())
    found["properties"]["settings"]["propertyNames"] = {"enum": free_settings()}
    return json.dumps(found, indent=2) + "\n"


def rows() -> list[tuple[str, str, str]]:
    """(key, default, what it is) of every value, in the order of the file."""
    text = VALUES.read_text()
    return list(_rows(yaml.compose(text), yaml.safe_load(text), "", text.splitlines()))


def _rows(
    node: yaml.Node | None, values: dict[str, Any], prefix: str, lines: list[str]
) -> Iterator[tuple[str, str, str]]:
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name, said = f"{prefix}{key.value}", _comment(lines, key.start_mark.line)
        if said:
            yield name, json.dumps(values[key.value]), said
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _rows(value, values[key.value], f"{name}.", lines)
        else:
            raise ValueError(f"values.yaml: {name} has no comment")


def _comment(lines: list[str], at: int) -> str:
    """The comment right above a line, in one line; empty: there is none."""
    found: list[str] = []
    while at and lines[at - 1].lstrip().startswith("#"):
        at -= 1
        found.insert(0, lines[at].lstrip("# "))
    return " ".join(found)


def readme() -> str:
    """The page of the chart, with its table as it must be now."""
    before, _, rest = README.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    table = [f"| `{key}` | `{default}` | {said} |" for key, default, said in rows()]
    head = ["| key | default | what it is |", "|---|---|---|"]
    return "\n".join([f"{before}{BEGIN}", *head, *table, f"{END}{after}"])


def made() -> dict[Path, str]:
    """Every file that is made without helm, and its text."""
    found = {README: readme(), SCHEMA: schema()}
    for folder, (source, pattern) in FILES.items():
        for path in sorted(source.glob(pattern)):
            found[CHART / folder / path.name] = path.read_text()
    return found


def strays() -> list[Path]:
    """Copies whose source is gone."""
    there = [path for folder in FILES for path in (CHART / folder).glob("*")]
    return [path for path in there if path not in made()]


def _write() -> None:
    for path in strays():
        path.unlink()
    for path, text in made().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    GOLDEN.mkdir(exist_ok=True)
    for name in SETS:
        (GOLDEN / f"{name}.yaml").write_text(rendered(name))


def main(arguments: list[str]) -> int:
    """Writes them, or says which of those that need no helm are stale."""
    match arguments:
        case ["--write"]:
            _write()
            return 0
        case ["--check"]:
            stale = [path.name for path, text in made().items() if path.read_text() != text]
            print("stale, run make chart: " + ", ".join(stale) if stale else "current")
            return bool(stale)
        case _:
            print("usage: render_chart --write|--check", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
