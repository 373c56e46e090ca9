"""The chart as Helm renders it: each set of values once in a run of the tests.

Guarantees: what is rendered does not depend on this machine: release, namespace and the version of
Kubernetes are fixed. `--kube-version` is always given, since a helm that was built from its module
takes itself for one of Kubernetes 1.20.
"""

import functools
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.servers import ROOT
from tests.helpers.outside import tool

CHART = ROOT / "helm/threadlog"
GOLDEN = ROOT / "tests/deploy/golden"
SETS = ("fenced", "minimal", "monitored", "relaxed", "scaled", "secured")
KUBERNETES = "1.34"
SERVICES = ("gateway", "planner", "tool-runner", "projection", "metering")
_FIXED = ("--namespace", "agents", "--kube-version", KUBERNETES)
_HELM_S = 30

Document = dict[str, Any]


def values_of(name: str) -> Path:
    """The file of one set of values."""
    return CHART / "ci" / f"{name}-values.yaml"


def helm(*arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """`helm ARGUMENTS` ran; `given` is its standard input."""
    return subprocess.run(
        [tool("helm"), *arguments],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        timeout=_HELM_S,
        check=False,
    )


def template(*arguments: str | Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """`helm template` of a release `threadlog` with these arguments ran."""
    return helm("template", "threadlog", CHART, *_FIXED, *arguments, given=given)


def lint(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`helm lint --strict` with these arguments ran."""
    return helm("lint", "--strict", CHART, *_FIXED, *arguments)


@functools.cache
def rendered(name: str, *more: str) -> str:
    """The manifests of one set of values, hooks and tests included."""
    operator = ("--api-versions", "monitoring.coreos.com/v1") if name == "monitored" else ()
    ran = template("-f", values_of(name), *operator, *more)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@functools.cache
def documents(name: str, *more: str) -> tuple[Document, ...]:
    """The same, read. Nobody may change them."""
    return tuple(each for each in yaml.load_all(rendered(name, *more), yaml.CSafeLoader) if each)


def of_kind(name: str, kind: str, *more: str) -> dict[str, Document]:
    """The objects of one kind, by their name without that of the release."""
    prefix = "agents-" if name == "scaled" else "threadlog-"
    return {
        each["metadata"]["name"].removeprefix(prefix): each
        for each in documents(name, *more)
        if each["kind"] == kind
    }


def pods(name: str, *more: str) -> Iterator[tuple[str, Document]]:
    """(name, spec) of every pod that a set of values would start."""
    for each in documents(name, *more):
        match each["kind"]:
            case "Pod":
                yield each["metadata"]["name"], each["spec"]
            case "Deployment" | "Job":
                yield each["metadata"]["name"], each["spec"]["template"]["spec"]
            case _:
                pass


def containers(spec: Document) -> list[Document]:
    """All containers of a pod."""
    return [*spec.get("initContainers", []), *spec["containers"]]


def environment(name: str, container: Document) -> dict[str, str | None]:
    """What a container is given; None: the value lies in a secret."""
    maps = {each["metadata"]["name"]: each["data"] for each in documents(name) if is_map(each)}
    found: dict[str, str | None] = {}
    for source in container.get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]
    for each in container["env"]:
        assert ("value" in each) != ("valueFrom" in each), each
        found[each["name"]] = each.get("value")
    return found


def is_map(document: Mapping[str, Any]) -> bool:
    """Whether it is a ConfigMap."""
    return bool(document["kind"] == "ConfigMap")
