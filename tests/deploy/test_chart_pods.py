"""Pods: restricted but for the sandbox, probed as services answer, stopped in time."""

from collections.abc import Mapping

import pytest

from tests.helpers.chart import SERVICES, SETS, Document, containers, environment, of_kind, pods
from threadlog.bootstrap.gateway_service import METRICS_PORT
from threadlog.bootstrap.serving import PORTS
from threadlog.limits import GATEWAY_GRACE_MS

each_set = pytest.mark.parametrize("name", SETS)
KNOWN_PORTS: Mapping[str, int] = dict(PORTS.items(), gateway=METRICS_PORT, metering=9_105)
RELAXED = {"minimal", "fenced", "scaled", "secured"}
"""Sets that grant user namespaces to the sandbox."""
SELECTORS = {
    "Deployment": ("selector", "matchLabels"),
    "Service": ("selector",),
    "PodDisruptionBudget": ("selector", "matchLabels"),
    "NetworkPolicy": ("podSelector", "matchLabels"),
}


def is_sandbox(pod: str) -> bool:
    """Whether commands of models, or a trial of them, run in this pod."""
    return pod.endswith(("-tool-runner", "-doctor"))


@each_set
def test_F105_every_pod_is_restricted(name: str) -> None:
    for pod, spec in pods(name):
        assert spec["automountServiceAccountToken"] is False, pod
        assert spec["enableServiceLinks"] is False
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        of_pod = spec["securityContext"]
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["runAsUser"] == of_pod["runAsGroup"] == of_pod["fsGroup"] == 10_001
        if not is_sandbox(pod) or name not in RELAXED:
            assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
            assert "appArmorProfile" not in of_pod
            assert "hostUsers" not in spec
        for container in containers(spec):
            check_restricted(container, may_unmask=is_sandbox(pod) and name in RELAXED)
        for volume in spec["volumes"]:
            assert "hostPath" not in volume


def check_restricted(container: Document, *, may_unmask: bool) -> None:
    """Nothing but a masked /proc may be given up, and that for the sandbox."""
    found = dict(container["securityContext"])
    if may_unmask:
        assert found.pop("procMount") == "Unmasked"
    assert found == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "limits" in container["resources"]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/tmp", "/var/lib/threadlog/data"} <= mounts, "nowhere else can anything be written"


def test_F105_the_sandbox_is_granted_what_was_said_and_no_more() -> None:
    runner = of_kind("minimal", "Deployment")["tool-runner"]["spec"]["template"]["spec"]
    assert runner["hostUsers"] is False, "an unmasked /proc is refused without it"
    assert runner["securityContext"]["seccompProfile"] == {"type": "Unconfined"}
    assert runner["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    named = of_kind("secured", "Deployment")["tool-runner"]["spec"]["template"]["spec"]
    profile = {"type": "Localhost", "localhostProfile": "profiles/threadlog.json"}
    assert named["securityContext"]["seccompProfile"] == profile
    assert named["securityContext"]["appArmorProfile"]["localhostProfile"] == "threadlog-sandbox"
    for name in SETS:
        for pod, spec in pods(name):
            if not is_sandbox(pod):
                continue
            sandbox = environment(name, containers(spec)[0])["THREADLOG_SANDBOX"]
            assert sandbox == ("off" if name == "relaxed" else "bubblewrap")


@each_set
def test_F105_probes_ask_the_pages_of_the_service(name: str) -> None:
    for service, deployment in of_kind(name, "Deployment").items():
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        # The event loop alone decides about a restart; a Kafka or a Redis that is away does not.
        for probe, path in (
            ("liveness", "healthz"),
            ("startup", "healthz"),
            ("readiness", "readyz"),
        ):
            asked = container[f"{probe}Probe"]["httpGet"]
            assert asked == {"path": f"/{path}", "port": "metrics"}, service
        found = environment(name, container)
        assert found["THREADLOG_METRICS__PORT"] == str(ports["metrics"])
        assert ports["metrics"] == KNOWN_PORTS[service]
        assert found["THREADLOG_METRICS__HOST"] == "0.0.0.0", "a kubelet is not on loopback"
        if service == "gateway":
            assert found["THREADLOG_GATEWAY__PORT"] == str(ports["http"]) == "8080"
            assert found["THREADLOG_GATEWAY__HOST"] == "0.0.0.0"


@each_set
def test_F105_a_stop_has_more_time_than_it_takes(name: str) -> None:
    for service, deployment in of_kind(name, "Deployment").items():
        spec = deployment["spec"]["template"]["spec"]
        [container] = spec["containers"]
        grace_s = spec["terminationGracePeriodSeconds"]
        drain_ms = int(str(environment(name, container)["THREADLOG_WORKER__DRAIN_TIMEOUT_MS"]))
        if service == "gateway":
            sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {"seconds": 0})
            assert grace_s > sleep["seconds"] + GATEWAY_GRACE_MS / 1_000
        else:
            assert grace_s > drain_ms / 1_000
            assert "lifecycle" not in container
        rolling = deployment["spec"]["strategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 1, "maxUnavailable": 0}


@each_set
def test_F105_what_selects_pods_selects_those_of_one_service(name: str) -> None:
    deployments = of_kind(name, "Deployment")
    assert set(deployments) <= set(SERVICES)
    labels = {n: d["spec"]["template"]["metadata"]["labels"] for n, d in deployments.items()}
    for kind, path in SELECTORS.items():
        objects = of_kind(name, kind)
        assert set(objects) in (set(deployments), set()), kind
        for service, each in objects.items():
            selector = each["spec"]
            for key in path:
                selector = selector[key]
            wanted = selector.items()
            matched = [n for n, found in labels.items() if wanted <= found.items()]
            assert matched == [service], f"{kind} {service}"
    for service, each in of_kind(name, "PodDisruptionBudget").items():
        assert each["spec"]["maxUnavailable"] == 1, service


@each_set
def test_F105_the_gateway_answers_to_the_names_that_it_has(name: str) -> None:
    deployment = of_kind(name, "Deployment")["gateway"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    hosts = str(environment(name, container)["THREADLOG_GATEWAY__HOSTS"]).split(",")
    service = of_kind(name, "Service")["gateway"]["metadata"]["name"]
    assert {service, f"{service}.agents", f"{service}.agents.svc"} <= set(hosts)
    for ingress in of_kind(name, "Ingress").values():
        for rule in ingress["spec"]["rules"]:
            assert rule["host"] in hosts
            [path] = rule["http"]["paths"]
            assert path["backend"]["service"] == {"name": service, "port": {"name": "http"}}
        assert ingress["spec"]["tls"][0]["hosts"] == [r["host"] for r in ingress["spec"]["rules"]]


def test_F105_policies_let_in_and_out_what_was_named() -> None:
    policies = of_kind("fenced", "NetworkPolicy")
    assert set(policies) == set(SERVICES)
    for service, each in policies.items():
        spec = each["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        ports = [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
        assert ports == (["http", "metrics"] if service == "gateway" else ["metrics"])
        assert all(rule["from"] for rule in spec["ingress"])
        out = [port["port"] for rule in spec["egress"] for port in rule["ports"]]
        # The internet is for planners: a tool-runner has no way there.
        assert out == [53, 53, 9_092, 6_379, *([443] if service == "planner" else [])]
    assert not of_kind("minimal", "NetworkPolicy")


def test_F105_prometheus_finds_every_service_as_the_alerts_name_them() -> None:
    [monitor] = of_kind("monitored", "ServiceMonitor").values()
    [endpoint] = monitor["spec"]["endpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    for service, each in of_kind("monitored", "Service").items():
        assert wanted <= each["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in each["spec"]["ports"]}
        assert each["metadata"]["labels"]["app.kubernetes.io/component"] == service
    assert endpoint["honorLabels"] is True, "the label `service` of our own metrics stays"
    # The job of deploy/prometheus, whatever the release is called.
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "threadlog"}]
