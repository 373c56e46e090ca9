"""What the chart renders: known to Kubernetes, known to us, and as it was reviewed."""

import difflib
import json
import shlex
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import typer
from cloudcoil.models.prometheus_operator import v1 as operator

from tests.helpers.chart import (
    GOLDEN,
    KUBERNETES,
    SETS,
    Document,
    containers,
    documents,
    environment,
    is_map,
    lint,
    of_kind,
    pods,
    rendered,
    values_of,
)
from threadlog.cli.main import make_app
from threadlog.settings import load_settings

OF_THE_OPERATOR: dict[str, Any] = {
    "ServiceMonitor": operator.ServiceMonitor,
    "PrometheusRule": operator.PrometheusRule,
}
SECRET_WORDS = ("PASSWORD", "API_KEY", "TOKEN", "SECRET")
each_set = pytest.mark.parametrize("name", SETS)


@each_set
def test_F105_helm_lints_each_set_of_values_strictly(name: str) -> None:
    operator_is_there = ("--set", "serviceMonitor.enabled=false,prometheusRule.enabled=false")
    ran = lint("-f", values_of(name), *operator_is_there)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[WARNING]" not in ran.stdout


@each_set
def test_F105_the_renders_are_those_that_were_reviewed(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    changed = difflib.unified_diff(
        path.read_text().splitlines(), rendered(name).splitlines(), "reviewed", "now", lineterm=""
    )
    assert not (found := "\n".join(changed)), f"if it is meant so: make chart\n{found[:4_000]}"


@each_set
def test_F105_kubernetes_knows_every_field_of_every_object(name: str) -> None:
    assert {each["kind"] for each in documents(name)} >= {"Deployment", "Service", "ConfigMap"}
    for each in documents(name):
        model = OF_THE_OPERATOR.get(each["kind"])
        if model is None:
            # Its command line warns of a kind that it does not know, and succeeds; this raises.
            kubernetes_validate.validate(each, KUBERNETES, strict=True)
            continue
        # The types drop what they do not know: what comes out must be what went in.
        read = model.model_validate(each)
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == each


def test_F105_the_operator_is_asked_for_only_where_it_is_there() -> None:
    kinds = {name: {each["kind"] for each in documents(name)} for name in SETS}
    assert set(OF_THE_OPERATOR) <= kinds.pop("monitored")
    assert not [name for name, found in kinds.items() if found & set(OF_THE_OPERATOR)]


@each_set
def test_F105_the_services_can_read_every_setting(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod, spec in pods(name):
        for container in containers(spec):
            with monkeypatch.context() as patch:
                for variable, value in environment(name, container).items():
                    patch.setenv(variable, "from-a-secret" if value is None else value)
                settings = load_settings()
            assert settings.is_cluster, pod
            assert settings.redis.is_set
            assert settings.blobs_folder() is not None
            assert settings.data_folder().is_absolute()


@each_set
def test_F105_the_command_line_takes_every_argument(name: str) -> None:
    for pod, spec in pods(name):
        for container in containers(spec):
            assert parsed(words_of(container)), f"{pod}: {container['name']}"


def words_of(container: Document) -> list[str]:
    """What `threadlog` is given, which is the image's entry point."""
    if "command" not in container:
        return list(container["args"])
    shell, flag, line = container["command"]
    assert (shell, flag) == ("sh", "-c")
    program, *words = shlex.split(line.partition("||")[0])
    assert program == "threadlog"
    return words


def parsed(words: list[str]) -> bool:
    """Whether the real program has such a command; nothing is run."""
    command: Any = typer.main.get_command(make_app())
    context = command.make_context("threadlog", words)
    while rest := [*context._protected_args, *context.args]:
        _, command, rest = command.resolve_command(context, rest)
        context = command.make_context(command.name, rest, parent=context)
    return not hasattr(command, "commands")


@each_set
def test_F105_no_secret_lies_in_a_map_or_in_the_pod(name: str) -> None:
    for each in documents(name):
        if is_map(each):
            for variable, value in each["data"].items():
                check_plain(variable, value)
    for _, spec in pods(name):
        for container in containers(spec):
            for variable, value in environment(name, container).items():
                if value is not None:
                    check_plain(variable, value)


def check_plain(variable: str, value: str) -> None:
    """It names no secret, unless it names the file of one, and no address has a password."""
    is_file = variable.endswith(("_FILE", ".json"))
    assert is_file or not any(word in variable for word in SECRET_WORDS), variable
    assert is_file or not ("://" in value and "@" in value), variable


def test_F105_model_keys_go_to_planners_alone_and_passwords_are_files() -> None:
    holders = {
        (pod, variable)
        for pod, spec in pods("secured")
        for container in containers(spec)
        for variable, value in environment("secured", container).items()
        if value is None
    }
    planner = "threadlog-planner"
    assert holders == {(planner, "OPENAI_API_KEY"), (planner, "ANTHROPIC_API_KEY")}
    for _, spec in pods("secured"):
        found = environment("secured", containers(spec)[0])
        mounts = {m["mountPath"]: m for m in containers(spec)[0]["volumeMounts"]}
        for variable in ("KAFKA__SASL_PASSWORD_FILE", "KAFKA__SSL_CA", "REDIS__URL_FILE"):
            path = str(found[f"THREADLOG_{variable}"])
            volume = next(
                v for v in spec["volumes"] if v["name"] == mounts[path.rpartition("/")[0]]["name"]
            )
            assert volume["secret"]["items"][0]["path"] == path.rpartition("/")[2]


def test_F105_prices_are_the_list_of_the_values() -> None:
    [text] = of_kind("secured", "ConfigMap")["prices"]["data"].values()
    assert json.loads(text)["models"]["openai/small"]["cache_read"] == 75_000
    assert "prices" not in of_kind("minimal", "ConfigMap")


def checksums(name: str, *more: str) -> Iterator[tuple[str, str]]:
    for service, each in of_kind(name, "Deployment", *more).items():
        yield service, each["spec"]["template"]["metadata"]["annotations"]["checksum/config"]


def test_F105_a_change_of_the_settings_or_the_prices_restarts_every_service() -> None:
    before = dict(checksums("secured"))
    for change in ("drainTimeoutSeconds=131", "models.prices.version=2027-01"):
        after = dict(checksums("secured", "--set", change))
        assert not [service for service, digest in after.items() if digest == before[service]]
    assert dict(checksums("secured", "--set", "planner.replicas=3")) == before


def test_F105_an_autoscaler_owns_the_number_of_gateways() -> None:
    deployments = of_kind("scaled", "Deployment")
    assert "replicas" not in deployments["gateway"]["spec"]
    assert deployments["planner"]["spec"]["replicas"] == 64
    scaler = of_kind("scaled", "HorizontalPodAutoscaler")["gateway"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 12)
    assert scaler["scaleTargetRef"]["name"] == deployments["gateway"]["metadata"]["name"]
    assert of_kind("minimal", "Deployment")["gateway"]["spec"]["replicas"] == 2


def test_F105_a_service_has_its_own_values_over_those_of_all_pods() -> None:
    specs = {n: d["spec"]["template"] for n, d in of_kind("scaled", "Deployment").items()}
    planner, runner = specs["planner"], specs["tool-runner"]["spec"]
    assert planner["metadata"]["annotations"].items() >= {
        ("example.com/team", "agents"),
        ("example.com/part", "planner"),
    }
    assert runner["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "sandbox"}
    assert planner["spec"]["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert planner["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "100m"
    assert specs["metering"]["spec"]["priorityClassName"] == "low"
    assert {"name": "TZ", "value": "UTC"} in runner["containers"][0]["env"]
    assert of_kind("scaled", "ConfigMap")["extra"]["data"] == {"a": "b"}


def test_F105_a_release_that_applies_topics_shows_the_plan_first() -> None:
    job = of_kind("relaxed", "Job")["topics"]
    spec = job["spec"]["template"]["spec"]
    assert [words_of(c) for c in containers(spec)] == [["topics", "plan"], ["topics", "apply"]]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    # It runs before anything of the release is there.
    assert "envFrom" not in spec["containers"][0]
    assert "serviceAccountName" not in spec
    looked = of_kind("fenced", "Job")["topics"]["spec"]["template"]["spec"]
    assert [words_of(c) for c in containers(looked)] == [["topics", "plan"]]
    assert not of_kind("minimal", "Job")


def test_F105_the_test_pod_is_doctor_where_commands_run() -> None:
    doctor = of_kind("minimal", "Pod")["doctor"]
    runner = of_kind("minimal", "Deployment")["tool-runner"]["spec"]["template"]["spec"]
    assert words_of(doctor["spec"]["containers"][0]) == ["doctor", "--json"]
    assert doctor["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert doctor["spec"]["securityContext"] == runner["securityContext"]
    assert doctor["spec"]["hostUsers"] is runner["hostUsers"] is False
