"""Values that cannot work are refused before anything is installed, with what to do."""

import json

import jsonschema
import pytest
import yaml

from tests.deploy.render_chart import SCHEMA, VALUES, rows
from tests.helpers.chart import SETS, template, values_of

WRONG = {
    "kafka.bootstrapServers=": ("bootstrapServers is missing", "kafka-1:9092"),
    "kafka.replication=1": ("a lost disk", "kafka.allowFewReplicas"),
    "kafka.sasl.mechanism=PLAIN": ("kafka.sasl.username is missing", "kubectl create secret"),
    "kafka.sasl.existingSecret=s": ("kafka.sasl.mechanism is missing", "SCRAM-SHA-512"),
    "kafka.tls.caSecret=s": ("no effect", "kafka.tls.enabled"),
    "redis.url=": ("redis.url is missing", "redis.existingSecret"),
    "redis.existingSecret=s": ("both set", "unset one"),
    "redis.url=redis://u:p@redis:6379": ("in a ConfigMap", "redis.existingSecret"),
    "blobs.existingClaim=": ("blobs.existingClaim is missing", "ReadWriteMany"),
    "workspaces.existingClaim=": ("workspaces.existingClaim is missing", "tool-runners"),
    "gateway.keys.existingSecret=": ("gateway.keys is missing", "threadlog keys create"),
    "gateway.keys.existingClaim=c": ("both set", "unset one"),
    "gateway.preStopSleepSeconds=60": ("gateway.terminationGracePeriodSeconds is 30", "to 80"),
    "gateway.autoscaling.enabled=true,gateway.autoscaling.maxReplicas=1": ("raise it",),
    "gateway.enabled=false,ingress.enabled=true": ("needs the gateway",),
    "models.openai.existingSecret=": ("models has no provider", "models.openai.existingSecret"),
    "planner.replicas=17": ("planner.replicas is 17", "to 16 at most"),
    "metering.replicas=9": ("metering.replicas is 9", "to 8 at most"),
    "toolRunner.replicas=17": ("toolRunner.replicas is 17", "cannot be changed"),
    "drainTimeoutSeconds=300": ("calls would be killed", "to 330"),
    "planner.terminationGracePeriodSeconds=10": ("planner has a grace period of 10 s", "to 160"),
    "toolRunner.sandbox.pod=": ("user namespaces", "userNamespaces", "restricted"),
    "toolRunner.sandbox.disabled=true,toolRunner.sandbox.pod=": (
        "without a sandbox",
        "toolRunner.sandbox.allowDisabled",
    ),
    "toolRunner.sandbox.disabled=true,toolRunner.sandbox.allowDisabled=true": ("unset it",),
    "toolRunner.sandbox.pod=restricted,toolRunner.sandbox.seccompLocalhostProfile=p": (
        "Localhost profile",
        "userNamespaces",
    ),
    "ingress.enabled=true": ("ingress.hosts is missing", "ingress.tlsSecret is missing"),
    "networkPolicy.egress.enabled=true": ("no effect alone", "networkPolicy.enabled"),
    "networkPolicy.enabled=true,networkPolicy.egress.enabled=true": (
        "egress.kafka is missing",
        "egress.redis is missing",
        "no host names",
    ),
    "serviceMonitor.enabled=true": ("Prometheus operator", "--api-versions"),
    "gateway.enabled=false,planner.enabled=false,toolRunner.enabled=false,projection.enabled=false,"
    "metering.enabled=false": ("no service is enabled",),
    # From here on the schema speaks, and names the place.
    "kafka.bootstrapServer=kafka:9092": ("/kafka", "bootstrapServer' not allowed"),
    "kafka.bootstrapServers=kafka": ("/kafka/bootstrapServers", "does not match"),
    "plannr.replicas=2": ("plannr' not allowed",),
    "planner.replicas=two": ("/planner/replicas", "want integer"),
    "planner.sandbox.pod=restricted": ("/planner", "sandbox' not allowed"),
    "settings.THREADLOG_KAFKA__HARTBEAT_MS=x": ("THREADLOG_KAFKA__HARTBEAT_MS", "HEARTBEAT_MS"),
    "settings.THREADLOG_KAFKA__SASL_PASSWORD=x": ("invalid propertyName",),
    "topics.hook=force": ("/topics/hook", "'apply'"),
    "image.digest=latest": ("/image/digest", "sha256"),
    "pod.runAsUser=0": ("/pod/runAsUser", "minimum"),
    "models.allowed={small}": ("/models/allowed/0", "does not match"),
    "models.prices.version=1": ("/models/prices",),
}

FREE = {
    "/definitions/env/items/properties/valueFrom",
    "/definitions/map",
    "/definitions/object",
    "/definitions/objects/items",
    "/properties/global",
    "/properties/settings",  # names are listed
    *(
        f"/definitions/resources/properties/{each}"
        for each in ("claims/items", "limits", "requests")
    ),
}


@pytest.mark.parametrize("change", WRONG)
def test_F105_a_wrong_value_is_refused_with_what_to_do(change: str) -> None:
    ran = template("-f", values_of("minimal"), "--set", change)
    assert ran.returncode != 0, f"{change} was taken"
    for said in WRONG[change]:
        assert said in ran.stderr, ran.stderr


def test_F105_all_that_is_missing_is_said_at_once() -> None:
    ran = template()
    assert ran.returncode != 0
    for name in ("kafka.bootstrapServers", "redis.url", "blobs.existingClaim", "gateway.keys"):
        assert f"- {name} " in ran.stderr
    for name in ("workspaces.existingClaim", "models", "toolRunner.sandbox.pod"):
        assert f"- {name} " in ran.stderr


def test_F105_an_old_cluster_is_refused_the_sandbox() -> None:
    ran = template("-f", values_of("minimal"), "--kube-version", "1.32")
    assert "needs Kubernetes 1.33" in ran.stderr
    assert template("-f", values_of("minimal"), "--kube-version", "1.29").returncode != 0


def test_F105_the_schema_is_strict_wherever_the_keys_are_ours() -> None:
    schema = json.loads(SCHEMA.read_text())
    loose = [
        path
        for path, node in objects(schema, "")
        if "properties" in node and node.get("additionalProperties") is not False
    ]
    assert not loose
    # What has any key at all is Kubernetes' own to check, or a list of names with a pattern.
    free = {path for path, node in objects(schema, "") if "properties" not in node}
    assert free == FREE


def objects(node: object, path: str) -> list[tuple[str, dict[str, object]]]:
    """Every part of a schema that describes an object."""
    found: list[tuple[str, dict[str, object]]] = []
    if isinstance(node, dict):
        if node.get("type") == "object":
            found.append((path, node))
        for key, value in node.items():
            found += objects(value, f"{path}/{key}")
    return found


def test_F105_the_schema_knows_the_keys_of_the_values_and_no_other() -> None:
    schema = json.loads(SCHEMA.read_text())
    values = yaml.safe_load(VALUES.read_text())
    jsonschema.Draft7Validator(schema).validate(values)
    known = {f"{path}" for path in keys_of(schema, schema, "")}
    written = {key for key, _, _ in rows()}
    pod = {key.removeprefix("pod.") for key in written if key.startswith("pod.")}
    services = {key for key in written if key.endswith(".enabled")} & {
        f"{name}.enabled" for name in ("gateway", "planner", "toolRunner", "projection", "metering")
    }
    shared = {f"{key.removesuffix('enabled')}{each}" for key in services for each in pod}
    assert known - {"global"} == written | shared


def keys_of(schema: dict[str, object], node: object, prefix: str) -> list[str]:
    """Every key that a schema names, with dots; a key of Kubernetes has none below."""
    assert isinstance(node, dict)
    found = []
    for key, value in node.get("properties", {}).items():
        below = [] if "oneOf" in value or "$ref" in value else keys_of(schema, value, f"{key}.")
        found += below or [key]
    return [f"{prefix}{each}" for each in found]


def test_F105_every_set_is_one_that_is_tested() -> None:
    assert {path.name for path in values_of("minimal").parent.iterdir()} == {
        f"{name}-values.yaml" for name in SETS
    }
